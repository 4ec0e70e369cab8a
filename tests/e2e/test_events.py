"""Events on TrainJobs as kube-apiserver takes them, with just the rights of deploy/components/events.

Two servers write for the jobs of one namespace: the one that holds the Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.canary import assert_untold
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import NAMESPACE, apply_rights
from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.replicas import Replicas
from tests.e2e.scripts import LOADING
from tests.e2e.visibility_server import VisibilityServer, service_account_kubeconfig
from tests.e2e.workspace import Workspace
from tests.jobs import document
from visibility_api.assembly import LEASE
from visibility_api.events.announcer import Announcer
from visibility_api.jobs.summary import Condition
from visibility_api.kube.client import KubeClient
from visibility_api.kube.lease import Lease

COMPONENT = "events"
CONTROLLER = "visibility.trainer.kubeflow.org/visibility-api"
# Diverges, and ends when there is a file at the path that stands for STOP.
DIVERGING = """
import pathlib, time
from trainjob_progress import report

with report(total_steps=1000) as r:
    for step in range(20):
        r.step(loss=0.5)
        time.sleep(0.05)
    while not pathlib.Path("STOP").exists():
        r.step(loss=float("nan"))
        time.sleep(0.05)
"""


@pytest.fixture
def rights(cluster: Cluster) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in has no events.k8s.io")
    apply_rights(cluster.admin, [COMPONENT])


@pytest.fixture
def replicas(cluster: Cluster, rights: None, workspace: Workspace, tmp_path: Path) -> Iterator[Replicas]:
    flags = ["--namespaces", workspace.name]
    found = Replicas(
        cluster, tmp_path, components=["source-exec", COMPONENT], flags=flags, is_registered=False
    )
    for _ in range(2):
        found.start()
    yield found
    found.stop()


def _events(workspace: Workspace, job: str) -> list[Object]:
    found = workspace.cluster.admin.items(f"/apis/events.k8s.io/v1/namespaces/{workspace.name}/events")
    return [e for e in found if e["reportingController"] == CONTROLLER and e["regarding"]["name"] == job]


def _stalled(ago_s: float, *, is_true: bool = True) -> Condition:
    return Condition(
        type="Stalled",
        status=str(is_true),
        reason="NoAdvance" if is_true else "Advancing",
        message="\N{SNOWMAN}" * 2000,  # the most that a note may be is bytes
        since=datetime.now(UTC) - timedelta(seconds=ago_s),
    )


async def test_the_rights_of_the_component_are_enough_and_kube_apiserver_takes_all_that_is_written(
    cluster: Cluster, rights: None, workspace: Workspace, tmp_path: Path
) -> None:
    outcomes: list[str] = []
    kubeconfig = await asyncio.to_thread(service_account_kubeconfig, cluster, tmp_path)
    async with await KubeClient.connect(kubeconfig) as client:
        lease, another = (
            Lease(client, namespace=NAMESPACE, name=LEASE, identity=name) for name in ("a", "b")
        )
        async with asyncio.timeout(PATIENCE_S):  # a server of another test may have held it
            await lease.acquire(may=lambda: True)
        assert not await another.try_acquire(lambda: True, lambda: 0)
        assert (lease.is_held, another.is_held, await lease.renew()) == (True, False, True)

        announcer = Announcer(client, instance="a", may_write=lambda: lease.is_held, count=outcomes.append)
        running = asyncio.create_task(announcer.run())
        for number, ago_s in enumerate((900, 600), start=1):
            for condition in (_stalled(ago_s + 100, is_true=False), _stalled(ago_s)):
                announcer.changed(document(namespace=workspace.name, conditions=(condition,)))
            async with asyncio.timeout(PATIENCE_S):
                while len(outcomes) < 2 * number - 1:  # noqa: ASYNC110 - a list has no event
                    await asyncio.sleep(0.05)
        running.cancel()
        await lease.release()
    found = sorted(event["reason"] for event in await asyncio.to_thread(_events, workspace, "bert"))
    assert found == ["TrainingRecovered", "TrainingStalled", "TrainingStalled"]
    assert outcomes == ["Created"] * 3


def test_what_happens_to_a_run_is_an_event_once_whichever_replica_saw_it_and_after_a_restart(
    cluster: Cluster, workspace: Workspace, replicas: Replicas, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    workspace.start_job("unstable", DIVERGING.replace("STOP", str(stop)))

    def is_told(reason: str) -> Object:
        found = [event for event in _events(workspace, "unstable") if event["reason"] == reason]
        assert len(found) == 1
        return found[0]

    told = wait_until(lambda: is_told("TrainingDiverged"), what="the divergence is an Event")
    (job,) = cluster.admin.items(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{workspace.name}/trainjobs")
    assert (told["type"], told["regarding"]["uid"]) == ("Warning", job["metadata"]["uid"])
    assert "loss" in told["note"]
    described = workspace.admin.kubectl("events", "-n", workspace.name, "--for", "trainjob/unstable")
    assert "TrainingDiverged" in described.stdout, described.stderr

    lease = cluster.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
    owner = told["reportingInstance"]  # with --store one of the Lease's holder and the members
    assert VisibilityServer.stores or owner == lease["spec"]["holderIdentity"]

    port = owner.rpartition("_")[2]
    replicas.stop_at(f"127.0.0.1:{port}")
    replicas.start()
    stop.touch()
    wait_until(lambda: is_told("TrainingFinished"), what="the end is an Event")
    events = _events(workspace, "unstable")
    assert sorted(event["reason"] for event in events) == ["TrainingDiverged", "TrainingFinished"]
    assert_untold(str(events), where="Events")


def test_a_crash_loop_and_a_run_without_a_checkpoint_are_events(
    workspace: Workspace, replicas: Replicas
) -> None:
    file = {"TRAINJOB_PROGRESS_FILE": "/tmp/trainjob-progress.json"}  # never written
    workspace.start_job("crashes", "raise SystemExit(1)", env=file)
    workspace.start_job("unsaved", LOADING, annotations={"at-risk-after": "10s", "interval": "5s"})
    expected = {
        "crashes": ("NoProgress", "attempts in a row"),
        "unsaved": ("AtRisk", "checkpoint is of step 1."),
    }
    for job, (condition, says) in expected.items():
        waited = workspace.wait_condition(job, condition, "True")
        assert says in waited["message"]

        def is_told(job: str = job, reason: str = f"Training{condition}") -> Object:
            told = [event for event in _events(workspace, job) if event["reason"] == reason]
            assert len(told) == 1
            return told[0]

        told = wait_until(is_told, what=f"{condition} is an Event")
        assert told["type"] == "Warning"
        assert says in told["note"]
