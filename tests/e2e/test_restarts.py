"""What the server knows outlives its process: in a rolling update, and after a kill."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import free_port, wait_until
from tests.e2e.scripts import FILED_ONCE, PRINTED_ONCE, PUSHED_ONCE
from tests.e2e.visibility_server import PREFIX, VisibilityServer
from tests.e2e.volumes import VolumeJobs
from tests.e2e.workspace import Workspace
from visibility_api.store.memory import EPOCH_BITS

EVERY_WAY = ("source-exec", "source-logs", "source-push")
JOBS = {"filed": FILED_ONCE, "pushed": PUSHED_ONCE, "printed": PRINTED_ONCE}
LASTING = ("progressPercentage", "steps", "metrics", "lastUpdatedTime", "phase")


class Replicas:
    """Servers with one certificate, each told where all are; the last is behind the aggregator."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._made = 0
        self._ports = [free_port() for _ in range(3)]
        self._running: list[VisibilityServer] = []

    def start(self) -> VisibilityServer:
        self._made += 1
        directory = self._directory / f"replica-{self._made}"
        beside = self._running[-1] if self._running else None
        found = VisibilityServer(
            self._cluster,
            directory,
            components=EVERY_WAY,
            beside=beside,
            flags=["--data-dir", str(directory / "data"), *(f"--peers=127.0.0.1:{n}" for n in self._ports)],
            port=self._ports[self._made - 1],
        )
        self._running.append(found)
        return found

    def stop_oldest(self) -> None:
        oldest = self._running.pop(0)
        assert oldest.stop() == 0, oldest.log_text()[-2000:]

    def stop(self) -> None:
        while self._running:
            self._running.pop().stop()


@pytest.fixture
def replicas(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Replicas]:
    found = Replicas(cluster, tmp_path)
    try:
        yield found
    finally:
        found.stop()
        server.register()


def shown(team: Workspace) -> dict[str, Object]:
    """Of each job what does not depend on who has looked when."""
    statuses = {name: team.document(name)["status"] for name in JOBS}
    return {name: {key: status.get(key) for key in LASTING} for name, status in statuses.items()}


def written(cluster: Cluster, server: VisibilityServer) -> int:
    """How many states of jobs the server has written."""
    metrics = server.get("/metrics", cert=(cluster.admin_pair.cert, cluster.admin_pair.key)).text
    found = re.search(r'^visibility_state_writes_total\{outcome="Written"\} (\d+)', metrics, re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_rolling_update_and_a_kill_lose_nothing(
    cluster: Cluster, replicas: Replicas, workspace: Workspace
) -> None:
    first = replicas.start()
    jobs = VolumeJobs(workspace, first)
    for name, script in JOBS.items():
        jobs.start(name, script)
    workspace.wait_document("pushed", lambda status: status["progressPercentage"] == 55, what="has pushed")
    workspace.wait_document("filed", lambda status: status["steps"]["current"] == 40, what="was read")
    workspace.wait_document(
        "printed",
        lambda status: status["steps"]["current"] == 30 and status["phase"] == "Succeeded",
        what="was read and has ended",
    )
    before = shown(workspace)
    jobs.leave_sign("filed", "forget")
    workspace.wait_document(
        "filed",
        lambda status: status["observation"]["reason"] == "NoProgressFile",
        what="has no file any more",
    )
    second = replicas.start()
    assert shown(workspace) == before
    replicas.stop_oldest()
    assert shown(workspace) == before
    wait_until(lambda: written(cluster, second) >= len(JOBS), what="the state is on disk")
    second.kill()  # with nobody beside it
    second.wait_available()
    assert shown(workspace) == before


def listed(cluster: Cluster, server: VisibilityServer) -> tuple[int, dict[str, tuple[int, object]]]:
    """The list's version, and of each job its own and what is shown of it, by this very replica."""
    answer = server.get(f"{PREFIX}/trainjobs", cert=(cluster.admin_pair.cert, cluster.admin_pair.key))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    items = {
        item["metadata"]["name"]: (int(item["metadata"]["resourceVersion"]), item["status"].get("steps"))
        for item in found["items"]
    }
    return int(found["metadata"]["resourceVersion"]), items


def is_owner(cluster: Cluster, server: VisibilityServer) -> bool:
    metrics = server.get("/metrics", cert=(cluster.admin_pair.cert, cluster.admin_pair.key)).text
    return "visibility_log_owner 1.0" in metrics


def test_an_owner_that_is_stopped_for_longer_than_its_lease_writes_nothing_more(
    cluster: Cluster, replicas: Replicas, workspace: Workspace
) -> None:
    """Its clock goes on while it does not: the moment it goes on, it must know that others may have
    written."""
    stopped, other = replicas.start(), replicas.start()
    workspace.start_job("filed", FILED_ONCE)
    workspace.wait_document("filed", lambda status: status["steps"]["current"] == 40, what="was read")
    assert (is_owner(cluster, stopped), is_owner(cluster, other)) == (True, False)
    before, _ = listed(cluster, other)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_owner(cluster, other), what="the other replica owns the jobs")
        workspace.start_job("later", FILED_ONCE)
        workspace.wait_document("later", lambda status: status["steps"]["current"] == 40, what="was read")
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert not is_owner(cluster, stopped)
    after, items = listed(cluster, other)
    assert after >> EPOCH_BITS > before >> EPOCH_BITS
    assert items["later"][0] >> EPOCH_BITS == after >> EPOCH_BITS
    wait_until(lambda: listed(cluster, stopped) == listed(cluster, other), what="both show the same")
    assert is_owner(cluster, other)
