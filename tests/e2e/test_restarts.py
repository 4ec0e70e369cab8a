"""What the server knows outlives its process: in a rolling update, and after a kill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import wait_until
from tests.e2e.scripts import FILED_ONCE, PRINTED_ONCE, PUSHED_ONCE
from tests.e2e.visibility_server import NOBODY, VisibilityServer
from tests.e2e.volumes import VolumeJobs
from tests.e2e.workspace import Workspace

EVERY_WAY = ("source-exec", "source-logs", "source-push")
JOBS = {"filed": FILED_ONCE, "pushed": PUSHED_ONCE, "printed": PRINTED_ONCE}
LASTING = ("progressPercentage", "steps", "metrics", "lastUpdatedTime", "phase")


class Replicas:
    """Servers with one certificate, each the peer of the one before it; the last is behind the aggregator."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._made = 0
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
            flags=["--data-dir", str(directory / "data"), *([] if beside else [NOBODY])],
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
