"""`trainjob_client`, our own: what it gives, and that its watch neither loses nor doubles a change."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.e2e.processes import PATIENCE_S, wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.scripts import REPORTING
from tests.e2e.tcp_proxy import TcpProxy
from tests.e2e.workspace import Workspace
from trainjob_client import (
    AsyncClient,
    Client,
    Connection,
    ForbiddenError,
    JobEndedError,
    JobEvent,
    NotFoundError,
    kubeconfig,
    requests,
    watching,
)


@pytest.fixture
def client(workspace: Workspace) -> Iterator[Client]:
    with Client(workspace.name, workspace.alice.kubeconfig) as found:
        yield found


def test_one_job_is_read_in_every_way(workspace: Workspace, client: Client) -> None:
    workspace.start_job("bert", REPORTING)
    workspace.wait_reporting("bert")
    job = client.get_job("bert")
    assert (job.name, job.namespace, job.workload, job.phase) == (
        "bert",
        workspace.name,
        "TrainJob",
        "Running",
    )
    assert job.metric("loss") == 0.5
    assert [each.name for each in client.list_jobs("tjp")] == ["bert"]
    assert [(each.name, each.workload) for each in client.list_jobs()] == [("bert", "TrainJob")]
    history = wait_until(
        lambda: next(iter([h for h in [client.get_job_history("bert", metrics="loss")] if h.series]), None),
        what="the history has a point",
    )
    columns = history.columns()
    assert {len(each) for each in columns.values()} == {len(columns["time"])}
    assert set(columns["metric"]) == {"loss"}
    reached = client.wait_for_job_status("bert", lambda job: (job.status.steps.current or 0) > 1, 60, 0.1)
    assert reached.metadata.uid == job.metadata.uid
    with pytest.raises(TimeoutError):
        client.wait_for_job_status("bert", "Failed", timeout=0.2, polling_interval=0.1)


def test_what_is_refused_says_why(workspace: Workspace, client: Client, own_jobs: QuietJobs) -> None:
    own_jobs.create("gone")
    own_jobs.wait_served("gone")
    own_jobs.end("gone", condition="Failed")
    own_jobs.wait_phase("gone", "Failed")
    with pytest.raises(JobEndedError, match="gone has ended: Failed"):
        client.wait_for_job_status("gone", polling_interval=0.1)
    with pytest.raises(NotFoundError, match='"nobody" not found'):
        client.get_job("nobody")
    with pytest.raises(ForbiddenError, match="cannot list"):
        client.list_jobs("TrainJob", all_namespaces=True)
    with pytest.raises(ValueError, match="serves no 'Nothing'"):
        client.list_jobs("Nothing")


def _through(workspace: Workspace, port: int) -> Connection:
    """Alice's connection, past a relay."""
    own = kubeconfig.load(workspace.alice.kubeconfig)
    return Connection(
        dataclasses.replace(own, cluster={**own.cluster, "server": f"https://127.0.0.1:{port}"})
    )


def test_the_name_in_the_servers_certificate_may_be_another(workspace: Workspace) -> None:
    own = kubeconfig.load(workspace.alice.kubeconfig)
    for name, is_right in (("kubernetes.default.svc", True), ("example.com", False)):
        other = dataclasses.replace(own, cluster={**own.cluster, "tls-server-name": name})
        with Client(workspace.name, connection=Connection(other)) as client:
            if is_right:
                assert client.list_jobs() == []
            else:
                answer = client._session.send(requests.Call(requests.PREFIX))
                assert "certificate verify failed" in str(answer)


@contextlib.asynccontextmanager
async def _collect(client: AsyncClient, resource: str | None) -> AsyncIterator[list[JobEvent]]:
    events: list[JobEvent] = []

    async def follow() -> None:
        async for event in client.watch_jobs(resource):
            events.append(event)  # noqa: PERF401

    task = asyncio.create_task(follow())
    try:
        yield events
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("kind", "cuts"), [("TrainJob", 150), (None, 50)], ids=["one kind", "all kinds"])
async def test_a_watch_that_is_cut_at_random_tells_each_change_once(
    workspace: Workspace, own_jobs: QuietJobs, monkeypatch: pytest.MonkeyPatch, kind: str | None, cuts: int
) -> None:
    monkeypatch.setattr(requests, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(watching, "_EMPTY_PAUSE_S", 0.0)
    chance = random.Random(32)
    relay = TcpProxy(workspace.cluster.port)
    await relay.start()
    own = AsyncClient(workspace.name, connection=_through(workspace, relay.port))
    other = AsyncClient(workspace.name, workspace.alice.kubeconfig)
    over = asyncio.Event()

    async def change() -> None:
        """Until it is told to end: jobs come, change and go."""
        there: set[str] = set()
        number = 0
        while not over.is_set():
            number += 1
            name = f"job-{chance.randrange(6)}"
            if name not in there:
                await asyncio.to_thread(own_jobs.create, name)
                there.add(name)
            elif chance.random() < 0.3:
                await asyncio.to_thread(own_jobs.delete, name)
                there.remove(name)
            else:
                await asyncio.to_thread(own_jobs.label, name, number=str(number))

    async def both_have(name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not all(name in [each.job.name for each in found[-1:]] for found in (seen, truth)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    own_jobs.create("the-first")
    own_jobs.wait_served("the-first")
    async with _collect(own, kind) as seen, _collect(other, kind) as truth:
        await both_have("the-first")
        changes = asyncio.create_task(change())
        for _ in range(cuts):
            await asyncio.sleep(chance.expovariate(1 / 0.02))
            await relay.cut()
        over.set()
        await changes
        await asyncio.to_thread(own_jobs.create, "the-last")
        await both_have("the-last")
    await asyncio.gather(own.close(), other.close(), relay.stop())
    assert _told(seen) == _told(truth)
    assert len(seen) > cuts / 50


def _told(events: list[JobEvent]) -> list[tuple[str, str, str]]:
    return [(each.type, each.job.name, each.job.metadata.resource_version or "") for each in events]
