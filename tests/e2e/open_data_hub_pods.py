"""A training that Open Data Hub's own SDK has started. Run by test_http.py."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.http_pods import pod_ip, server, told
from tests.e2e.workspace import TRAINER, Workspace, condition

__all__ = ["pod_ip", "server"]  # fixtures

# Names a Python with Hugging Face's Trainer and opendatahub-io/kubeflow-sdk, which no package index has.
PYTHON_VARIABLE = "OPEN_DATA_HUB_PYTHON"
PORT_ANNOTATION = "trainer.opendatahub.io/metrics-port"
CLIENT = Path(__file__).with_name("open_data_hub_client.py")


@pytest.fixture
def runtime(cluster: Cluster) -> Iterator[str]:
    """One without torchrun, which would look for the pod's name in a DNS that is not here."""
    runtimes, name = f"{TRAINER}/clustertrainingruntimes", "plain"
    found = cluster.admin.get(f"{runtimes}/torch-distributed")
    spec = found["spec"] | {"mlPolicy": {"numNodes": 1}}
    meta = {"name": name, "labels": {"trainer.kubeflow.org/framework": "plainml"}}
    cluster.admin.create(runtimes, found | {"metadata": meta, "spec": spec})
    yield name
    cluster.admin.delete(f"{runtimes}/{name}")


def test_what_the_sdk_has_injected_is_read_as_the_training_goes_on(
    cluster: Cluster, workspace: Workspace, runtime: str
) -> None:
    argv = [os.environ[PYTHON_VARIABLE], CLIENT, workspace.admin.kubeconfig, workspace.name, runtime]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:]
    job = answer.stdout.split()[-1]
    document = workspace.wait_document(
        job, lambda status: status.get("metrics"), what="reports a metric", timeout_s=180
    )
    status = document["status"]
    assert told(status) == ("http", f"Declared by annotation {PORT_ANNOTATION}.")
    assert status["steps"]["total"] == 100_000
    assert {"loss", "grad_norm", "learning_rate"} <= {metric["name"] for metric in status["metrics"]}
    assert condition(status, "Fresh")["status"] == "True"
    later = workspace.wait_reporting(job, beyond_step=status["steps"]["current"])["status"]
    assert told(later) == told(status)
    assert cluster.agent.execs[workspace.name] == 0
