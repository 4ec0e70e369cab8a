"""What is known of each replica of a job: of its pods as they are, and as they were seen last."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, NOW, T0, job_ref
from tests.workload_objects import TORCH, all_pods, pod
from visibility_api.jobs.job import JobRef, Phase
from visibility_api.jobs.observation import Observation
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.ranks import NO_RANKS, RankRow, Ranks
from visibility_api.workloads import replicas as module
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.pod_lists import MAX_LABELS_BYTES, PodLists
from visibility_api.workloads.replicas import (
    FRESH_S,
    Pushed,
    Replicas,
    ReplicaStatus,
    ReplicaStatuses,
    status_of,
)

from .test_workloads_failures import ended
from .test_workloads_inspection import Cluster, inspecting, replica, until

RUNNING: dict[str, Any] = {"running": {}}


class Bench:
    def __init__(self, *pages: Any) -> None:
        self.cluster = Cluster(*pages)
        self.time = 0.0
        lists = PodLists(cast(KubeClient, self.cluster), lambda _ref: all_pods(TORCH))
        self.replicas = Replicas(lists, clock=lambda: self.time, now=lambda: T0)

    async def read(self) -> dict[str, str]:
        """The state of each."""
        found = await self.replicas.read(JOB.ref)
        assert found.at == T0
        return {each.name: each.state for each in found.items}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("Running", "", 0, None)),
        ({"phase": "Pending", "scheduled": False, "state": {}}, ("Pending", "Unscheduled", 0, None)),
        (
            {"phase": "Pending", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
            ("Pending", "ImagePullBackOff", 0, None),
        ),
        ({"restarts": 2, "last": ended(137, "OOMKilled")}, ("Running", "", 2, "OOMKilled")),
        ({"phase": "Failed", "state": ended(1), "reason": "Evicted"}, ("Failed", "Evicted", 0, "Evicted")),
        ({"phase": "Succeeded", "state": ended(0, "Completed"), "deleting": True},
         ("Succeeded", "", 0, "Completed")),
        ({"deleting": True}, ("Terminating", "", 0, None)),
    ],
)  # fmt: skip
def test_a_pod_shows_its_state_and_how_it_ended_last(
    fields: dict[str, Any], expected: tuple[object, ...]
) -> None:
    found = status_of(pod(**fields), Replica(name="node-3"))
    last = found.last_termination.reason if found.last_termination is not None else None
    assert (found.state, found.reason, found.restart_count, last) == expected
    assert (found.name, found.node_name) == ("node-3", "" if fields.get("scheduled") is False else "gpu-1")


async def test_replicas_are_in_order_of_their_numbers_and_listed_once_in_a_while() -> None:
    bench = Bench([replica(index, RUNNING) for index in (10, 2, 0)])
    assert bench.replicas.fresh(JOB.ref) is None
    assert list(await bench.read()) == ["node-0", "node-2", "node-10"]
    bench.time = FRESH_S - 0.1
    assert bench.replicas.fresh(JOB.ref) is not None
    bench.time = FRESH_S
    assert bench.replicas.fresh(JOB.ref) is None


async def test_what_was_seen_stays_when_the_pods_are_gone() -> None:
    done = replica(1, ended(0, "Completed")) | {}
    done["status"]["phase"] = "Succeeded"
    bench = Bench([replica(0, RUNNING), done], [replica(0, RUNNING)], [])
    assert await bench.read() == {"node-0": "Running", "node-1": "Succeeded"}
    assert await bench.read() == {"node-0": "Running", "node-1": "Succeeded"}
    assert await bench.read() == {"node-0": "Gone", "node-1": "Succeeded"}
    bench.replicas.job_gone(JOB.ref)
    assert await bench.read() == {}


async def test_of_two_pods_of_a_replica_the_one_that_runs_is_shown() -> None:
    old, new = replica(0, ended(1)), replica(0, RUNNING)
    old["status"]["phase"] = "Failed"
    new["metadata"]["name"] = "bert-node-0-0-zzzzz"
    bench = Bench([new, old])
    found = await bench.replicas.read(JOB.ref)
    assert [each.pod_name for each in found.items] == ["bert-node-0-0-zzzzz"]


async def test_a_list_that_fails_shows_what_was_seen_before_and_else_fails() -> None:
    bench = Bench(ApiError(403, "Forbidden"), [replica(0, RUNNING)], ApiError(500))
    with pytest.raises(ApiError):
        await bench.read()
    assert await bench.read() == {"node-0": "Running"}
    assert await bench.read() == {"node-0": "Running"}


async def test_the_last_account_of_all_ranks_comes_with_them() -> None:
    bench = Bench([replica(0, RUNNING)], [])
    ranks = Ranks(1, T0, (RankRow(0, "bert", 5, 0.5),))
    for outcome in (
        Progress(timestamp=T0, ranks=ranks),
        Progress(timestamp=T0),
        Refused(reason="a", message=""),
    ):
        bench.replicas.observed(Observation(ref=JOB.ref, attempt="a", source="exec", at=T0, outcome=outcome))
    assert (await bench.replicas.read(JOB.ref)).ranks == ranks
    assert (await bench.replicas.read(replace(JOB.ref, uid="another"))).ranks == NO_RANKS
    bench.replicas.job_gone(JOB.ref)
    assert (await bench.replicas.read(JOB.ref)).ranks == NO_RANKS


async def test_what_a_pod_of_another_rank_pushed_last_comes_with_it() -> None:
    bench = Bench([replica(0, RUNNING), replica(1, RUNNING)])
    name = "bert-node-0-1-abcde"
    for report in (Progress(timestamp=NOW, step=4), Progress(step=5, rank=1)):
        bench.replicas.pushed(JOB.ref, name, report)
    bench.replicas.pushed(JOB.ref, "gone", Progress(step=9))
    bench.replicas.pushed(replace(JOB.ref, uid="another"), name, Progress(step=9))
    assert (await bench.replicas.read(JOB.ref)).pushed == {name: Pushed(at=T0, step=5, rank=1)}


async def test_pods_of_others_are_not_shown() -> None:
    bench = Bench([replica(0, RUNNING), replica(1, RUNNING, owner="another Job")])
    assert await bench.read() == {"node-0": "Running"}


async def test_labels_without_end_cost_their_pod_its_place_and_no_time() -> None:
    """100,000 labels of one pod kept the event loop for 27 ms."""
    large = replica(1, RUNNING)
    large["metadata"]["labels"] |= {f"a{number:05}": "" for number in range(MAX_LABELS_BYTES // 10)}
    bench = Bench([replica(0, RUNNING), large])
    assert await bench.read() == {"node-0": "Running"}


async def test_variables_without_end_cost_their_pod_its_place_and_no_time() -> None:
    """220,000 of them kept the event loop for 54 ms."""
    large = replica(1, RUNNING)
    large["spec"]["containers"] = [{"name": "node", "env": [{"name": "a"}] * 70_000}]
    bench = Bench([replica(0, RUNNING), large])
    assert await bench.read() == {"node-0": "Running"}


async def test_lists_of_one_namespace_leave_a_slot_for_those_of_another() -> None:
    class Slow:
        async def get(self, path: str, **_limits: object) -> bytes:
            if "team-a" in path:
                await asyncio.Event().wait()
            return b'{"metadata": {}, "items": []}'

    lists = PodLists(cast(KubeClient, Slow()), lambda _ref: all_pods(TORCH))

    async def read(ref: JobRef) -> list[Any]:
        return [each async for each in lists.read(ref)]

    slow = [asyncio.create_task(read(job_ref(f"job-{number}"))) for number in range(4)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await read(job_ref(namespace="team-b")) == []
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OF_JOB", 3)
    bench = Bench()
    some = [ReplicaStatus(name=f"node-{index}", pod_name="", state="Running") for index in range(9)]
    bench.replicas.note(JOB.ref, some)
    bench.time = 1
    found = bench.replicas.fresh(JOB.ref)
    assert isinstance(found, ReplicaStatuses)
    assert [each.name for each in found.items] == ["node-0", "node-1", "node-2"]
    monkeypatch.setattr(bench.replicas._kept, "_Cache__maxsize", 10)
    for number in range(4):
        bench.replicas.note(replace(JOB.ref, uid=f"{number}"), some)
    assert len(bench.replicas._kept) == 2


async def test_pods_of_a_job_that_was_asked_for_are_listed_once_more_when_it_ends() -> None:
    done = replica(0, ended(0, "Completed"))
    done["status"]["phase"] = "Succeeded"
    succeeded = replace(JOB, phase=Phase.SUCCEEDED)
    async with inspecting(Cluster([replica(0, RUNNING)], [done])) as bench:
        bench.inspector.job_changed(JOB, succeeded)
        await asyncio.sleep(0)
        assert bench.inspector.waiting == 0  # nobody has asked
        await bench.replicas.read(JOB.ref)
        bench.inspector.job_changed(JOB, succeeded)

        def has_seen_the_end() -> bool:
            found = bench.replicas.fresh(JOB.ref)
            return found is not None and [each.state for each in found.items] == ["Succeeded"]

        await until(has_seen_the_end)
