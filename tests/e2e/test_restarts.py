"""What the server knows outlives its process: in a rolling update, and after a kill."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import wait_until
from tests.e2e.replicas import Replicas
from tests.e2e.scripts import FILED_ONCE, PRINTED_ONCE, PUSHED_ONCE
from tests.e2e.visibility_server import PREFIX, VisibilityServer
from tests.e2e.volumes import VolumeJobs
from tests.e2e.workspace import Workspace
from tests.nats_servers import running
from visibility_api.replication.partitions import partition_of
from visibility_api.store.memory import EPOCH_BITS

EVERY_WAY = ("source-exec", "source-logs", "source-push")
JOBS = {"filed": FILED_ONCE, "pushed": PUSHED_ONCE, "printed": PRINTED_ONCE}
LASTING = ("progressPercentage", "steps", "metrics", "lastUpdatedTime", "phase")


@pytest.fixture
def replicas(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Replicas]:
    flags = ["--data-dir=DIRECTORY/data"]
    found = Replicas(cluster, tmp_path, components=EVERY_WAY, flags=flags)
    try:
        yield found
    finally:
        found.stop()
        server.register()


def shown(team: Workspace) -> dict[str, Object]:
    """Of each job what does not depend on who has looked when."""
    statuses = {name: team.document(name)["status"] for name in JOBS}
    return {name: {key: status.get(key) for key in LASTING} for name, status in statuses.items()}


def test_a_rolling_update_and_a_kill_lose_nothing(replicas: Replicas, workspace: Workspace) -> None:
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
    written = '{outcome="Written"}'
    wait_until(
        lambda: second.metrics("visibility_state_writes_total").get(written, 0) >= len(JOBS),
        what="the state is on disk",
    )
    second.kill()  # with nobody beside it
    second.wait_available()
    assert shown(workspace) == before


def test_the_log_moves_to_nats_and_back_while_replicas_are_exchanged(
    cluster: Cluster, replicas: Replicas, workspace: Workspace, tmp_path: Path
) -> None:
    if VisibilityServer.stores:
        pytest.skip("it is there already")
    with running(tmp_path / "nats") as nats:
        store = [*(f"--store={url}" for url in nats.urls), "--store-replicas=1"]
        jobs = VolumeJobs(workspace, replicas.start())
        jobs.start("pushed", PUSHED_ONCE)
        workspace.wait_document(
            "pushed", lambda status: status["progressPercentage"] == 55, what="has pushed"
        )
        before = workspace.document("pushed")["status"]["metrics"]
        pair = replicas.start(*store), replicas.start(*store)
        versions = [listed(cluster, each)[0] for each in pair]
        replicas.stop_oldest()
        wait_until(lambda: any(map(is_owner, pair)), what="one of them owns the jobs")
        follower = next(each for each in pair if not is_owner(each))
        wait_until(lambda: "following the log in NATS" in follower.log_text(), what="the other reads NATS")
        wait_until(lambda: listed(cluster, pair[0]) == listed(cluster, pair[1]), what="both show the same")
        last = replicas.start()
        for _ in pair:
            replicas.stop_oldest()
        wait_until(lambda: is_owner(last), what="it owns the jobs")
        assert workspace.document("pushed")["status"]["metrics"] == before
        assert listed(cluster, last)[0] > max(versions)


def listed(cluster: Cluster, server: VisibilityServer) -> tuple[int, dict[str, tuple[int, object]]]:
    """The list's version, and of each job its own and what is shown of it, by this very replica."""
    answer = server.get(f"{PREFIX}/trainjobs", cert=cluster.admin_pair)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    items = {
        item["metadata"]["name"]: (int(item["metadata"]["resourceVersion"]), item["status"].get("steps"))
        for item in found["items"]
    }
    return int(found["metadata"]["resourceVersion"]), items


def is_owner(server: VisibilityServer) -> bool:
    return server.metrics("visibility_log_owner") == {"": 1.0}


def test_an_owner_that_is_stopped_for_longer_than_its_lease_writes_nothing_more(
    cluster: Cluster, replicas: Replicas, workspace: Workspace
) -> None:
    """Its clock goes on while it does not: the moment it goes on, it must know that others may have
    written."""
    stopped, other = replicas.start(), replicas.start()
    workspace.start_job("filed", FILED_ONCE)
    workspace.wait_document("filed", lambda status: status["steps"]["current"] == 40, what="was read")
    assert (is_owner(stopped), is_owner(other)) == (True, False)
    before, _ = listed(cluster, other)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_owner(other), what="the other replica owns the jobs")
        workspace.start_job("later", FILED_ONCE)
        workspace.wait_document("later", lambda status: status["steps"]["current"] == 40, what="was read")
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert not is_owner(stopped)
    after, items = listed(cluster, other)
    assert after >> EPOCH_BITS > before >> EPOCH_BITS
    assert items["later"][0] >> EPOCH_BITS == after >> EPOCH_BITS
    wait_until(lambda: listed(cluster, stopped) == listed(cluster, other), what="both show the same")
    assert is_owner(other)


def partitions(server: VisibilityServer) -> set[int]:
    """What this replica works on, by its log."""
    held: set[int] = set()
    for line in server.log_text().splitlines():
        if '"event": "partitions taken over"' in line:
            held |= set(json.loads(line)["partitions"])
        elif '"event": "partitions given up"' in line:
            held -= set(json.loads(line)["partitions"])
    return held


def held_by_both(one: VisibilityServer, other: VisibilityServer) -> set[int]:
    """Partitions that one holds before and after the other is read: none has moved meanwhile."""
    return partitions(one) & partitions(other) & partitions(one)


def test_replicas_share_the_jobs_out_and_take_over_from_one_that_stands_still(
    cluster: Cluster, replicas: Replicas, workspace: Workspace, tmp_path: Path
) -> None:
    with running(tmp_path / "nats") as nats:
        store = [*(f"--store={url}" for url in nats.urls), "--store-replicas=1", "--store-name=shared"]
        trio = [replicas.start(*store) for _ in range(3)]
        wait_until(lambda: sum(map(is_owner, trio)) == 1, what="one owns the log")
        still, other, writer = sorted(trio, key=is_owner)
        wait_until(lambda: partitions(still) and partitions(other), what="both have a share")
        jobs = VolumeJobs(workspace, other)
        pushing, filed = (
            [f"pushed-{number}" for number in range(4)],
            [f"filed-{number}" for number in range(4)],
        )
        for name in (*pushing, *filed):
            jobs.start(name, PUSHED_ONCE if name in pushing else FILED_ONCE)
        for name in pushing:
            workspace.wait_document(
                name, lambda status: status["progressPercentage"] == 55, what="has pushed"
            )
        for name in filed:
            workspace.wait_document(name, lambda status: status["steps"]["current"] == 40, what="was read")
        used = {partition_of("trainjobs", workspace.name, name) for name in (*pushing, *filed)}
        wait_until(
            lambda: used & (partitions(still) | partitions(other)), what="they have some of these jobs"
        )
        assert not held_by_both(still, other)
        wait_until(lambda: listed(cluster, still) == listed(cluster, writer), what="all show the same")
        # A crowded machine may have lost members before: only what is logged from here on counts.
        logged = {each: len(each.log_text()) for each in (writer, still)}

        def has_logged(server: VisibilityServer, event: str) -> bool:
            return event in server.log_text()[logged[server] :]

        os.kill(still.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: has_logged(writer, "member lost"), what="its share is given to others")
            for number in range(4):
                workspace.start_job(f"later-{number}", FILED_ONCE)
            for number in range(4):
                workspace.wait_document(
                    f"later-{number}", lambda status: status["steps"]["current"] == 40, what="was read"
                )
        finally:
            os.kill(still.pid, signal.SIGCONT)
        gave_up = "partitions given up: no answer from the owner of the log"
        wait_until(lambda: has_logged(still, gave_up), what="it gives up its share")
        wait_until(
            lambda: partitions(still) and listed(cluster, still) == listed(cluster, writer), what="it is back"
        )
        assert not held_by_both(still, other)
