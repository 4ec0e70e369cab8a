"""`--write-back` end to end, with just the rights of deploy/components/write-back beside the ordinary ones.

A second server writes, for the jobs of one namespace only, so that no other test's jobs are touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.exec_faults import Fault
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.scripts import REPORTING, SHORT, SILENT
from tests.e2e.visibility_server import VisibilityServer, service_account_kubeconfig
from tests.e2e.workspace import TRAINER, Workspace
from tests.jobs import reported
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.writeback.status_client import FIELD_MANAGER
from visibility_api.writeback.writer import WriteBack

COMPONENT = "write-back"


@pytest.fixture
def writer(
    cluster: Cluster, server: VisibilityServer, workspace: Workspace, tmp_path: Path
) -> Iterator[VisibilityServer]:
    found = VisibilityServer(
        cluster,
        tmp_path,
        components=["source-exec", COMPONENT],
        flags=["--namespaces", workspace.name],
        is_registered=False,
    )
    yield found
    assert found.stop() == 0, found.log_text()[-2000:]


def outcomes(writer: VisibilityServer) -> set[str]:
    """The words that attempts have come to."""
    return {labels.split('"')[1] for labels in writer.metrics("visibility_write_backs_total")}


def job_of(workspace: Workspace, name: str) -> Object:
    return workspace.cluster.admin.get(f"{TRAINER}/namespaces/{workspace.name}/trainjobs/{name}")


def wait_written(workspace: Workspace, name: str, *, percent: int | None = None) -> Object:
    """The trainerStatus, once it is there and at that percentage."""

    def look() -> Object:
        found: Object = job_of(workspace, name)["status"]["trainerStatus"]
        assert percent is None or found["progressPercentage"] == percent, found
        return found

    return wait_until(look, what=f"the status of {name} says {percent or 'something'}")


def apply_as_kubeflow(workspace: Workspace, name: str, percent: int) -> None:
    """What Kubeflow Trainer's status server does with a push."""
    workspace.cluster.admin.apply(
        f"{TRAINER}/namespaces/{workspace.name}/trainjobs/{name}/status",
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "status": {
                "trainerStatus": {
                    "progressPercentage": percent,
                    "lastUpdatedTime": "2026-01-23T10:30:45.123456Z",
                }
            },
        },
        field_manager="trainer-status",
    )


def test_the_numbers_appear_in_the_status_and_the_end_follows_at_once(
    writer: VisibilityServer, workspace: Workspace
) -> None:
    workspace.start_job("short", SHORT)
    status = wait_written(workspace, "short", percent=100)
    assert {"name": "current_step", "value": "5"} in status["metrics"]
    assert {"name": "total_steps", "value": "5"} in status["metrics"]
    assert status["estimatedRemainingSeconds"] == 0
    document = writer.document(workspace.name, "short")["status"]
    assert status["lastUpdatedTime"][:19] == document["lastUpdatedTime"][:19]
    assert outcomes(writer) == {"Written"}
    if workspace.cluster.kind == "local":
        return  # the stand-in keeps no managedFields
    managers = {
        entry["manager"]: entry
        for entry in job_of(workspace, "short")["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    }
    assert managers[FIELD_MANAGER]["subresource"] == "status"
    assert managers[FIELD_MANAGER]["fieldsV1"].keys() == {"f:status"}
    assert managers[FIELD_MANAGER]["fieldsV1"]["f:status"].keys() == {"f:trainerStatus"}


def test_what_kubeflow_trainer_owns_is_left_to_it(
    cluster: Cluster, writer: VisibilityServer, workspace: Workspace
) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in knows no field ownership: an apply is a merge")
    with cluster.agent.inject(workspace.name, Fault.HANGS):  # or our own write could come first
        workspace.start_job("pushed", REPORTING)
        apply_as_kubeflow(workspace, "pushed", 77)
    wait_until(lambda: "OwnedByOther" in outcomes(writer), what="our write is refused")
    status = job_of(workspace, "pushed")["status"]["trainerStatus"]
    assert status == {"progressPercentage": 77, "lastUpdatedTime": "2026-01-23T10:30:45.123456Z"}
    assert outcomes(writer) == {"OwnedByOther"}


def test_the_numbers_of_a_deleted_job_do_not_stay_with_one_that_took_its_name(
    cluster: Cluster, writer: VisibilityServer, workspace: Workspace, tmp_path: Path
) -> None:
    """kube-apiserver takes a write to status whatever uid it names, so this is found out afterwards."""
    if cluster.kind == "local":
        pytest.skip("the stand-in knows no field ownership: nothing can be taken away")
    workspace.start_job("bert", SILENT)
    former = JobRef(resource="trainjobs", namespace=workspace.name, name="bert", uid="of-a-deleted-job")

    async def write() -> str:
        outcomes: asyncio.Queue[str] = asyncio.Queue()
        kubeconfig = service_account_kubeconfig(cluster, tmp_path)
        async with await KubeClient.connect(kubeconfig) as client:
            write_back = WriteBack(client, count=outcomes.put_nowait)
            write_back.changed(reported(120, of=former))
            writing = asyncio.create_task(write_back.run())
            async with asyncio.timeout(PATIENCE_S):
                outcome = await outcomes.get()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            return outcome

    assert asyncio.run(write()) == "Recreated"
    assert "trainerStatus" not in job_of(workspace, "bert").get("status", {})
