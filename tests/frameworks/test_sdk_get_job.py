"""What `--write-back` wrote, read with the real Kubeflow SDK.

`TrainerClient.get_job` of 0.5.0 parses the whole TrainJob, bounds and all, and hands on a summary that has
no room for trainerStatus. So two things are tested: that it takes a job with our status, and what the SDK's
own model of the object, by which it parses, says of the progress.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("kubeflow", reason="the Kubeflow SDK is not installed")

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import TrainerClient
from kubeflow_trainer_api import models

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"  # the server's environment is not the frameworks'
TEAM = "team-a"

TRAINING = """
import time
from trainjob_progress import report, termination

termination.FLUSH_TIMEOUT_S = 60  # the last document comes however slow the machine is
with report(total_steps=5) as r:
    for step in range(5):
        r.step(loss=1 / (step + 1))
        time.sleep(0.1)
"""


def wait_until(look: Callable[[], T], what: str, timeout_s: float = 90) -> T:
    deadline_s = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"not in time: {what}"
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def process(log: Path, *arguments: str) -> Iterator[None]:
    with log.open("wb") as output:
        running = subprocess.Popen(
            [str(PYTHON), *arguments], cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        running.terminate()
        running.wait(90)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """An administrator's, of a local cluster beside which the server runs with `--write-back`."""
    if not PYTHON.exists():
        pytest.skip("the server is not installed: make .venv/.installed")
    cluster_log = tmp_path / "cluster.log"
    with process(cluster_log, "-m", "localcluster", "--dir", str(tmp_path / "cluster")):
        line = "export KUBECONFIG="
        wait_until(lambda: line in cluster_log.read_text(), "the local cluster runs")
        found = next(
            each.removeprefix(line) for each in cluster_log.read_text().splitlines() if each.startswith(line)
        )
        with process(
            tmp_path / "server.log",
            *("-m", "visibility_api", "serve", "--kubeconfig", found),
            *("--bind-address", "127.0.0.1", "--secure-port", "0", "--cert-dir", str(tmp_path / "tls")),
            *("--probe-interval", "1s", "--probe-timeout", "1s", "--shutdown-delay-duration", "0s"),
            *("--write-back", "true"),
        ):
            yield Path(found)


def test_the_sdk_takes_a_job_with_our_status_and_its_model_shows_the_progress(kubeconfig: Path) -> None:
    client = TrainerClient(KubernetesBackendConfig(config_file=str(kubeconfig), namespace=TEAM))
    backend = client.backend
    where = ("trainer.kubeflow.org", "v1alpha1", TEAM, "trainjobs")
    script = os.fspath(kubeconfig.parent / "training.py")
    Path(script).write_text(TRAINING)
    job: dict[str, Any] = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "bert"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"command": [str(PYTHON), script]},
        },
    }
    backend.custom_api.create_namespaced_custom_object(*where, job)

    def trainer_status() -> models.TrainerV1alpha1TrainerStatus | None:
        found = models.TrainerV1alpha1TrainJob.from_dict(
            backend.custom_api.get_namespaced_custom_object(*where, "bert")
        )
        said = found.status.trainer_status if found and found.status else None
        return said if said and said.progress_percentage == 100 else None

    status = wait_until(trainer_status, "the status says 100 %")
    assert {"current_step": "5", "total_steps": "5", "loss": "0.2"}.items() <= {
        metric.name: metric.value for metric in status.metrics or []
    }.items()
    assert status.estimated_remaining_seconds == 0
    assert status.last_updated_time.tzinfo is not None
    assert client.wait_for_job_status("bert", polling_interval=1, timeout=90).status == "Complete"
    assert client.get_job("bert").name == "bert"
