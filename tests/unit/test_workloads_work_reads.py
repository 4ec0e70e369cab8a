"""When the files of ranks are read: each job once a round, namespaces in turn, sooner where one is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from msgspec.structs import replace

from tests.jobs import JOB, T0
from tests.unit.test_workloads_inspection import replica
from tests.workload_objects import TORCH, all_pods
from visibility_api.diagnosis.claims import PodState
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.reports.ranks import Ranks, make_ranks
from visibility_api.workloads.pod_lists import PodLists
from visibility_api.workloads.training_pods import MAX_REFUSED, Refusals
from visibility_api.workloads.work_reads import ROUND_S, SOON_S, WorkReads

from .virtual_time import in_virtual_time

RUNNING = {"running": {"startedAt": "2026-01-23T10:00:00Z"}}


def ref(name: str, namespace: str = "team-a") -> JobRef:
    return replace(JOB.ref, name=name, namespace=namespace, uid=name)


class Fleet:
    """Jobs of one pod each."""

    def __init__(self, *jobs: JobRef, took_s: float = 1.0) -> None:
        self.jobs, self.took_s = jobs, took_s
        self.apart = dict.fromkeys(jobs, 1)
        self.read: list[tuple[float, str]] = []
        self.slow: set[JobRef] = set()
        self.refuses: set[str] = set()
        self.at_once = self.most_at_once = 0
        self.reads = WorkReads(
            PodLists(cast(KubeClient, self), lambda _ref: all_pods(TORCH)),
            self,
            Refusals(lambda: asyncio.get_running_loop().time()),
            jobs=lambda: list(self.jobs),
            find=lambda ref: JobProgress(job=replace(JOB, ref=ref), phase=JOB.phase),
            rounds_apart=self.apart.__getitem__,
            worked=lambda ref, _ranks: ref in self.slow,
        )

    async def get(self, path: str, **_more: object) -> bytes:
        return msgspec.json.encode({"metadata": {}, "items": [replica(0, RUNNING)]})

    async def read_work(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, apart_s: float
    ) -> Ranks:
        assert (len(pods), path) == (1, "/tmp/trainjob-progress.json")
        self.read.append((asyncio.get_running_loop().time(), namespace))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.took_s)
        self.at_once -= 1
        if namespace in self.refuses:
            raise ApiError(403, "Forbidden")
        return make_ranks(T0, [], is_median=True)


@asynccontextmanager
async def reading(fleet: Fleet, for_s: float) -> AsyncIterator[None]:
    task = asyncio.create_task(fleet.reads.run())
    await asyncio.sleep(for_s)
    assert not task.done()  # which would end the process
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    yield


@in_virtual_time
async def test_each_job_is_read_once_a_round_and_one_with_a_slow_rank_sooner() -> None:
    fleet = Fleet(ref("one"), ref("two", "team-b"), ref("never", "team-c"), ref("seldom", "team-d"))
    fleet.slow = {ref("two", "team-b")}
    fleet.apart |= {ref("never", "team-c"): 0, ref("seldom", "team-d"): 12}
    async with reading(fleet, 12 * ROUND_S + 1):
        number = {
            name: sum(each == name for _, each in fleet.read)
            for name in ["team-a", "team-b", "team-c", "team-d"]
        }
    assert number == {"team-a": 12, "team-b": 12 + 11 * 2, "team-c": 0, "team-d": 1}
    assert [at for at, name in fleet.read if name == "team-a"][:2] == [ROUND_S, 2 * ROUND_S]
    assert [at for at, name in fleet.read if name == "team-b"][:3] == [
        ROUND_S,
        ROUND_S + SOON_S,
        ROUND_S + 2 * SOON_S,
    ]


@in_virtual_time
async def test_a_namespace_with_many_jobs_delays_no_other_and_its_own_round_takes_longer() -> None:
    fleet = Fleet(*(ref(f"many-{number}") for number in range(300)), ref("one", "team-b"), took_s=10)
    async with reading(fleet, 3 * ROUND_S + 1):
        assert [at for at, name in fleet.read if name == "team-b"] == [ROUND_S, 2 * ROUND_S, 3 * ROUND_S]
    assert sum(name == "team-a" for _, name in fleet.read) == 2 * (2 * ROUND_S / 10) + 2
    assert fleet.most_at_once == 3  # of four, two of one namespace


@in_virtual_time
async def test_a_namespace_that_grants_no_exec_is_left_alone_for_ten_minutes() -> None:
    fleet = Fleet(ref("one"))
    fleet.refuses = {"team-a"}
    async with reading(fleet, 6 * ROUND_S + 1):
        assert [at for at, _ in fleet.read] == [ROUND_S, 4 * ROUND_S]


def test_refusals_of_namespaces_are_forgotten_in_time_and_beyond_a_number() -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    for number in range(MAX_REFUSED + 5):
        refusals.note(f"team-{number}", is_refused=True)
    assert ("team-4" in refusals, "team-5" in refusals, len(refusals._at)) == (False, True, MAX_REFUSED)
    refusals.note("team-5", is_refused=False)
    assert "team-5" not in refusals
    now[0] = 600
    refusals.note("team-x", is_refused=False)
    assert refusals._at == {}
