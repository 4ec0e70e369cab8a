"""When the ranks of a job are read: once a stall, once a minute at most, and of which pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, T0
from tests.unit.test_workloads_inspection import Cluster, replica, until
from tests.workload_objects import TORCH, all_pods
from visibility_api.diagnosis.claims import PodState
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.jobs.job import JobRef, ProbeHints
from visibility_api.jobs.summary import Condition, JobProgress
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError
from visibility_api.workloads import training_pods
from visibility_api.workloads.diagnoser import Diagnoser, is_due
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.objects import Pod
from visibility_api.workloads.pod_lists import PodLists
from visibility_api.workloads.training_pods import TOO_MANY, is_done

RUNNING = {"running": {"startedAt": "2026-01-23T10:00:00Z"}}


def job(status: str = "True", *, read_after_s: float | None = None, **more: Any) -> JobProgress:
    """One whose condition Stalled has had this status since T0."""
    stalled = Condition(type="Stalled", status=status, reason="NoAdvance", message="", since=T0)
    last = None
    if read_after_s is not None:
        last = Diagnosis(at=T0 + timedelta(seconds=read_after_s), reason="NotKnown", message="None.")
    return JobProgress(job=replace(JOB, **more), phase=JOB.phase, conditions=(stalled,), diagnosis=last)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(job(), True, id="stalled, and never read"),
        pytest.param(job("False"), False, id="not stalled"),
        pytest.param(job(read_after_s=9), False, id="read since"),
        pytest.param(job(read_after_s=-9), True, id="read in an earlier stall"),
        pytest.param(job(hints=ProbeHints(source="none")), False, id="its annotation switches probing off"),
        pytest.param(job(runs_elsewhere=True), False, id="its pods are in another cluster"),
        pytest.param(job(rank0=None), False, id="its pods are not known yet, after a takeover"),
    ],
)
def test_a_stall_is_a_reason_once(document: JobProgress, expected: bool) -> None:
    assert is_due(document) is expected


@pytest.fixture(autouse=True)
def _of_three_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_pods, "MAX_PODS", 3)


class Bench:
    def __init__(self, cluster: Cluster, document: JobProgress) -> None:
        self.document: JobProgress | None = document
        self.asked: list[Sequence[PodState]] = []
        self.requested: list[bool] = []
        self.found: list[Diagnosis] = []
        self.untold = 0
        self.now = 100.0
        self.is_hang, self.reason = False, "NotKnown"
        self.refusal: ApiError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        lists = PodLists(cast(KubeClient, cluster), lambda _ref: all_pods(TORCH))
        self.diagnoser = Diagnoser(
            lists,
            self,
            find=lambda _ref: self.document,
            found=self._found,
            clock=lambda: self.now,
        )

    def _found(self, ref: JobRef, found: Diagnosis, is_told: bool) -> None:
        assert ref == JOB.ref
        self.untold += not is_told
        if is_told:
            self.found.append(found)

    async def diagnose(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, is_requested: bool
    ) -> Diagnosis:
        assert (namespace, path, within_s) == ("team-a", RANK0.progress_path, 60)
        self.asked.append(pods)
        self.requested.append(is_requested)
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal
        return Diagnosis(
            at=T0, reason=self.reason, message="None.", is_requested=is_requested, is_hang=self.is_hang
        )


@asynccontextmanager
async def diagnosing(
    document: JobProgress, *pages: Sequence[dict[str, Any]] | Exception
) -> AsyncIterator[Bench]:
    bench = Bench(Cluster(*pages), document)
    task = asyncio.create_task(bench.diagnoser.run())
    try:
        yield bench
        assert not task.done()  # which would end the process
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_all_replicas_are_asked_the_one_that_runs_of_each() -> None:
    older = replica(1, {"terminated": {"exitCode": 1}})
    older["metadata"]["name"], older["status"]["phase"] = "bert-node-0-1-zzzzz", "Failed"
    waits = replica(10, {"waiting": {"reason": "ImagePullBackOff"}})
    pods = [waits, older, replica(2, RUNNING), replica(1, RUNNING), replica(11, RUNNING)]
    async with diagnosing(job(), pods) as bench:
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.found) == 1)
    assert [(each.name, each.index, each.not_running or each.unread) for each in bench.asked[0]] == [
        ("bert-node-0-1-abcde", 1, ""),
        ("bert-node-0-2-abcde", 2, ""),
        ("bert-node-0-10-abcde", 10, "ImagePullBackOff"),
        ("bert-node-0-11-abcde", 11, TOO_MANY),
    ]
    assert bench.requested == [False]


async def test_what_has_done_its_work_is_not_missed() -> None:
    done, beside = (replica(index, {"terminated": {"exitCode": 0}}) for index in (1, 2))
    done["status"]["phase"] = "Succeeded"  # a sidecar keeps the other one running
    ended = replica(3, {"terminated": {"exitCode": 1}})
    async with diagnosing(job(), [replica(0, RUNNING), done, beside, ended]) as bench:
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.found) == 1)
    assert [(each.index, each.not_running) for each in bench.asked[0]] == [(0, ""), (3, "ContainerEnded")]


@pytest.mark.parametrize(
    ("name", "owner", "expected"), [("a", "Job", True), ("a", "X", False), ("b-0", "Job", False)]
)
def test_a_job_that_is_not_indexed_replaces_a_pod_that_failed(name: str, owner: str, expected: bool) -> None:
    meta = {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "ownerReferences": [
            {"kind": owner, "name": "j", "uid": "d", "controller": True, "blockOwnerDeletion": True}
        ],
    }
    pod = msgspec.convert({"metadata": meta, "status": {"phase": "Failed"}}, Pod)
    assert is_done(pod, Replica(name=name), "node") is expected


async def test_a_job_is_read_once_a_minute_at_most_whoever_wants_it() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job(), pods, pods) as bench:
        bench.diagnoser.changed(job())
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.found) == 1)
        bench.now += 18
        assert bench.diagnoser.request(JOB.ref) == 42
        bench.now += 42
        assert bench.diagnoser.request(JOB.ref) == 0
        await until(lambda: len(bench.found) == 2)
    assert bench.requested == [False, True]


async def test_a_stall_that_ends_before_its_turn_is_not_read() -> None:
    async with diagnosing(job("False"), [replica(0, RUNNING)]) as bench:
        bench.diagnoser.changed(job())
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.asked == []


async def test_pods_that_cannot_be_listed_are_listed_again_a_minute_later() -> None:
    async with diagnosing(job(), ApiError(403, "no"), [replica(0, RUNNING)]) as bench:
        bench.diagnoser.changed(job())
        for _ in range(20):
            await asyncio.sleep(0)
        bench.diagnoser.changed(job())
        assert bench.asked == []
        bench.now += 60
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.found) == 1)


async def test_a_run_that_stands_still_is_read_ever_less_often_and_told_only_if_it_hangs() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job("False"), pods, pods) as bench:
        bench.diagnoser.suspect(JOB.ref, 120)
        await until(lambda: len(bench.asked) == 1)
        bench.now += 100
        bench.diagnoser.suspect(JOB.ref, 220)  # half of that time has not passed since
        assert (bench.found, bench.untold) == ([], 1)
        bench.now += 200
        bench.is_hang = True
        bench.diagnoser.suspect(JOB.ref, 420)
        await until(lambda: len(bench.found) == 1)
    assert bench.requested == [False, False]


async def test_a_stall_of_which_nothing_was_known_is_told_as_soon_as_more_is() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job(read_after_s=9), pods, pods) as bench:
        bench.diagnoser.suspect(JOB.ref, 60)
        await until(lambda: len(bench.asked) == 1)
        bench.now += 60
        bench.reason = "InDataLoader"
        bench.diagnoser.suspect(JOB.ref, 120)
        await until(lambda: len(bench.found) == 1)
    assert bench.found[0].reason == "InDataLoader"


async def test_what_is_being_read_is_not_read_twice_and_answers_who_asks_meanwhile() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job("False"), pods, pods) as bench:
        bench.may_answer.clear()
        bench.diagnoser.suspect(JOB.ref, 120)
        await until(lambda: len(bench.asked) == 1)
        bench.now += 61
        bench.diagnoser.changed(job())
        bench.diagnoser.suspect(JOB.ref, 181)
        assert bench.diagnoser.request(JOB.ref) == 0
        bench.may_answer.set()
        await until(lambda: len(bench.found) == 1)
        assert bench.found[0].is_requested
        assert bench.diagnoser.request(JOB.ref) == 60  # since its end
        bench.now += 60
        assert bench.diagnoser.request(JOB.ref) == 0
        await until(lambda: len(bench.found) == 2)


async def test_a_suspicion_that_shows_nothing_delays_neither_a_request_nor_a_stall() -> None:
    pods = [replica(0, RUNNING)]
    for ask in (lambda bench: bench.diagnoser.request(JOB.ref), lambda bench: bench.diagnoser.changed(job())):
        async with diagnosing(job("False"), pods, pods) as bench:
            bench.diagnoser.suspect(JOB.ref, 120)
            await until(lambda: len(bench.asked) == 1)
            bench.document = job()
            ask(bench)
            await until(lambda: len(bench.found) == 1)


async def test_where_no_exec_is_granted_nothing_is_told_or_asked_again_without_a_request() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job(), pods, pods, pods) as bench:
        bench.refusal = ApiError(403, "Forbidden")
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.asked) == 1)
        bench.now += 300
        bench.diagnoser.changed(job())
        bench.diagnoser.suspect(JOB.ref, 300)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(bench.asked), bench.found) == (1, [])
        assert bench.diagnoser.request(JOB.ref) == 0
        await until(lambda: len(bench.found) == 1)
        assert bench.found[0].message == "No rank could be read: this server has no right to exec into it."
        assert bench.found[0].is_requested
        bench.now += 600
        bench.refusal = None
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.found) == 2)


async def test_a_job_that_is_gone_is_forgotten_even_if_it_goes_while_it_is_read() -> None:
    pods = [replica(0, RUNNING)]
    async with diagnosing(job(), pods, pods) as bench:
        bench.may_answer.clear()
        bench.diagnoser.changed(job())
        await until(lambda: len(bench.asked) == 1)
        bench.document = None
        bench.diagnoser.job_gone(JOB.ref)
        assert bench.diagnoser.request(JOB.ref) == 0  # of another replica, which has not heard of it yet
        bench.may_answer.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(bench.asked), bench.found) == (1, [])
        bench.document = job()
        assert bench.diagnoser.wait_s(JOB.ref) == 0


async def test_a_request_for_a_job_without_pods_is_told_so() -> None:
    async with diagnosing(job("False"), []) as bench:
        assert bench.diagnoser.request(JOB.ref) == 0
        await until(lambda: len(bench.found) == 1)
    assert (bench.asked, bench.found[0].message) == (
        [],
        "No rank could be read: the job has no pod that trains.",
    )
