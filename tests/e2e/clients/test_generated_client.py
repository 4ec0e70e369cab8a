"""A typed client generated from the published OpenAPI; it knows of Kubernetes what stands in there."""

from __future__ import annotations

import importlib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.workspace import Workspace

_OPENAPI = Path(__file__).parents[3] / "openapi" / "v3.json"
_PACKAGE = "generated_progress_client"
_OPERATIONS = f"{_PACKAGE}.api.visibility_trainer_kubeflow_org_v_1_alpha_1"
_NAME = "visibility_trainer_kubeflow_org_v1_alpha_1_namespaced_train_job_progress"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The generated package, importable."""
    directory = tmp_path_factory.mktemp("generated")
    config = directory / "config.json"
    config.write_text(f'{{"package_name_override": "{_PACKAGE}", "post_hooks": []}}')
    subprocess.run(
        [
            Path(sys.executable).with_name("openapi-python-client"),
            *("generate", "--path", _OPENAPI, "--config", config, "--meta", "none"),
            *("--output-path", directory / _PACKAGE),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    sys.path.insert(0, str(directory))
    yield
    sys.path.remove(str(directory))


@pytest.fixture
def alice(package: None, cluster: Cluster, workspace: Workspace) -> Iterator[Any]:
    """alice's connection through the aggregator."""
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.load_cert_chain(*workspace.alice.pair)
    with importlib.import_module(_PACKAGE).Client(base_url=cluster.url, verify_ssl=context) as client:
        yield client


def test_documents_are_read_and_listed_as_typed_values(alice: Any, bert: QuietJobs) -> None:
    read = importlib.import_module(f"{_OPERATIONS}.read_{_NAME}")
    progress = read.sync(client=alice, namespace=bert.namespace, name="bert")
    assert (progress.kind, progress.metadata.name) == ("TrainJobProgress", "bert")
    assert progress.status.phase == "Pending"
    assert {c.type_: c.status for c in progress.status.conditions}["Reporting"] == "False"

    list_ = importlib.import_module(f"{_OPERATIONS}.list_{_NAME}")
    listed = list_.sync(client=alice, namespace=bert.namespace, label_selector="tier=gold")
    assert [item.metadata.name for item in listed.items] == ["bert"]
    assert int(listed.metadata.resource_version) >= int(progress.metadata.resource_version)

    subresource = importlib.import_module(f"{_OPERATIONS}.read_{_NAME}_progress")
    below = subresource.sync(client=alice, namespace=bert.namespace, name="bert")
    assert below.to_dict() == progress.to_dict()
