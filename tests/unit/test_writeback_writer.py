"""When a summary is written into a TrainJob's status, and in what order.

Time is virtual; the API server is an object that keeps to server-side apply as far as it matters here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.jobs import T0, job_ref, reported
from visibility_api.jobs.job import Phase
from visibility_api.jobs.observation import Observation
from visibility_api.kube.client import Query
from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.reports.document import Progress
from visibility_api.reports.trainer_status import TrainerStatus
from visibility_api.workloads.inventory import reported_progress
from visibility_api.writeback.writer import CONCURRENCY, INTERVAL_S, WriteBack

from .virtual_time import in_virtual_time


class Apiserver:
    """TrainJobs by name, each with a status and the managers of it; says what it is told to say."""

    def __init__(self) -> None:
        self.uids: dict[tuple[str, str], str] = {}
        self.statuses: dict[tuple[str, str], TrainerStatus | None] = {}
        self.foreign: set[tuple[str, str]] = set()  # owned by trainer-status
        self.writes: list[tuple[float, str, TrainerStatus | None]] = []  # loop time, job
        self.errors: list[ClusterError] = []  # raised by the next calls, in turn
        self.too_large: set[str] = set()  # namespaces of objects that etcd refuses
        self.watchers: list[Callable[[str], None]] = []  # told the name of each job that is written
        self.latency_s = 0.005
        self.at_a_time = self.most_at_a_time = 0
        self.sent: tuple[Query, Mapping[str, str]] = ((), {})

    async def patch(self, path: str, body: bytes, *, query: Query, headers: Mapping[str, str]) -> bytes:
        self.sent = query, headers
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            await asyncio.sleep(self.latency_s)
            answer = self._answer(path, msgspec.json.decode(body))
            for watcher in self.watchers:
                watcher(path.split("/")[-2])
            return answer
        finally:
            self.at_a_time -= 1

    def _answer(self, path: str, body: dict[str, Any]) -> bytes:
        *_, namespace, resource, name, subresource = path.split("/")
        assert (resource, subresource) == ("trainjobs", "status")
        assert body["metadata"] == {"namespace": namespace, "name": name}
        assert body.get("status") != {}  # the CRD's status has `minProperties: 1`
        said = body.get("status", {}).get("trainerStatus")
        status = msgspec.convert(said, TrainerStatus) if said is not None else None
        self.writes.append((asyncio.get_running_loop().time(), name, status))
        if self.errors:
            raise self.errors.pop(0)
        if namespace in self.too_large:
            raise ApiError(500, "", "etcdserver: request is too large")
        key = namespace, name
        if key in self.foreign and status is not None:
            raise ApiError(409, "Conflict", 'Apply failed with 1 conflict: conflict with "trainer-status"')
        if key not in self.foreign:
            self.statuses[key] = status
        uid = self.uids.get(key, job_ref(name, namespace).uid)
        return msgspec.json.encode({"kind": "PartialObjectMetadata", "metadata": {"name": name, "uid": uid}})

    @property
    def order(self) -> list[str]:
        return [name for _, name, _ in self.writes]

    def times(self, name: str = "bert") -> list[float]:
        return [at for at, written, _ in self.writes if written == name]


class Bench:
    def __init__(self, **options: Any) -> None:
        self.apiserver = Apiserver()
        self.outcomes: Counter[str] = Counter()
        self.write_back = WriteBack(self.apiserver, count=lambda o: self.outcomes.update([o]), **options)

    def say(self, step: int, **more: Any) -> None:
        self.write_back.changed(reported(step, **more))

    def status(self, name: str = "bert", namespace: str = "team-a") -> TrainerStatus | None:
        return self.apiserver.statuses.get((namespace, name))

    def echo(self, name: str = "bert") -> None:
        """The watch shows what stands in the status now."""
        self.shows(reported_progress(self.status(name)), name)

    def shows(self, status: Progress | None, name: str = "bert") -> None:
        """The watch shows a status with this report."""
        seen = status and Observation(ref=job_ref(name), attempt="", source="status", at=T0, outcome=status)
        self.write_back.seen(job_ref(name), seen)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Bench]:
    bench = Bench(**options)
    task = asyncio.create_task(bench.write_back.run())
    try:
        yield bench
        assert not task.done(), "the loop has ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_the_first_report_is_written_at_once_within_the_crd() -> None:
    async with running() as bench:
        bench.say(120, remaining_s=795, metrics=(("loss", "0.23"),))
        await asyncio.sleep(0.1)
        assert msgspec.json.decode(msgspec.json.encode(bench.status())) == {
            "progressPercentage": 12,
            "estimatedRemainingSeconds": 795,
            "metrics": [
                {"name": "current_step", "value": "120"},
                {"name": "total_steps", "value": "1000"},
                {"name": "loss", "value": "0.23"},
            ],
            "lastUpdatedTime": "2026-01-23T10:02:00Z",
        }
        assert bench.outcomes == {"Written": 1}


@in_virtual_time
async def test_a_job_is_written_at_most_every_interval_and_then_with_its_latest_numbers() -> None:
    async with running() as bench:
        for step in range(100):
            bench.say(step)
            await asyncio.sleep(1)
        times = bench.apiserver.times()
        assert len(times) == 4
        assert min(b - a for a, b in itertools.pairwise(times)) >= INTERVAL_S
        status = bench.status()
        assert status is not None
        assert status.progress_percentage == 9


@in_virtual_time
async def test_a_report_with_the_same_numbers_is_not_written() -> None:
    async with running() as bench:
        for second in range(0, 600, 10):
            bench.say(120, at_s=second, remaining_s=1000 - second)
            await asyncio.sleep(10)
        assert len(bench.apiserver.writes) == 1


@in_virtual_time
async def test_a_job_that_ends_is_written_at_once_before_all_that_wait() -> None:
    async with running(writes_per_s=1.0) as bench:
        bench.say(1)
        await asyncio.sleep(1)
        for number in range(50):
            bench.say(1, of=job_ref(f"other-{number}"))
        bench.say(1000, phase=Phase.SUCCEEDED)
        await asyncio.sleep(2.1)
        assert "bert" in bench.apiserver.order[1:4]
        status = bench.status()
        assert status is not None
        assert status.progress_percentage == 100


@in_virtual_time
async def test_an_end_while_a_write_is_under_way_is_written_right_after_it() -> None:
    async with running() as bench:
        bench.apiserver.latency_s = 2.0
        bench.say(999)
        await asyncio.sleep(1)
        bench.say(1000, phase=Phase.SUCCEEDED)
        await asyncio.sleep(4)
        assert [s and s.progress_percentage for _, _, s in bench.apiserver.writes] == [99, 100]


@in_virtual_time
async def test_a_job_that_has_ended_is_not_hurried_a_second_time() -> None:
    async with running() as bench:
        for step in range(20):  # its labels change, say
            bench.say(step, phase=Phase.FAILED)
            await asyncio.sleep(1)
        assert len(bench.apiserver.writes) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"reporting": "False"},  # of an attempt that has ended
        {"reporting": "Unknown"},
        {"source": "status"},  # its own words
        {"of": msgspec.structs.replace(job_ref(), resource="jobsets")},
    ],
    ids=["old", "unknown", "status", "another kind"],
)
def test_only_current_reports_of_trainjobs_are_written(said: dict[str, Any]) -> None:
    @in_virtual_time
    async def case() -> None:
        async with running() as bench:
            bench.say(120, **said)
            await asyncio.sleep(60)
            assert not bench.apiserver.writes

    case()


@in_virtual_time
async def test_a_job_that_runs_elsewhere_or_has_not_reported_is_not_written() -> None:
    async with running() as bench:
        told = reported(120)
        bench.write_back.changed(msgspec.structs.replace(told, job=replace(told.job, runs_elsewhere=True)))
        bench.write_back.changed(msgspec.structs.replace(told, updated_at=None))
        await asyncio.sleep(60)
        assert not bench.apiserver.writes


@in_virtual_time
async def test_what_waits_is_forgotten_when_its_attempt_ends() -> None:
    async with running() as bench:
        bench.say(1)
        await asyncio.sleep(1)
        bench.say(2)
        bench.say(2, reporting="False")
        await asyncio.sleep(60)
        assert len(bench.apiserver.writes) == 1
        bench.say(3)
        await asyncio.sleep(1)
        assert len(bench.apiserver.writes) == 2


@in_virtual_time
async def test_a_deleted_job_is_forgotten() -> None:
    async with running() as bench:
        bench.say(1)
        await asyncio.sleep(1)
        bench.say(2)
        assert len(bench.write_back) == 1
        bench.write_back.gone(job_ref())
        assert len(bench.write_back) == 0
        await asyncio.sleep(60)
        assert len(bench.apiserver.writes) == 1


@in_virtual_time
async def test_writes_keep_to_the_rate_and_go_round_oldest_first() -> None:
    async with running(writes_per_s=2.0) as bench:
        names = [f"job-{number:03}" for number in range(200)]  # each waits 100 s for its turn
        for second in range(300):
            for name in names:
                bench.say(second, of=job_ref(name))
            await asyncio.sleep(1)
        writes = bench.apiserver.writes
        assert 590 <= len(writes) <= 601
        assert bench.apiserver.order[:200] == names
        for name in names:
            times = bench.apiserver.times(name)
            assert max(b - a for a, b in itertools.pairwise(times)) <= 100 + INTERVAL_S


@in_virtual_time
async def test_jobs_of_one_namespace_without_number_delay_those_of_another_by_one_write() -> None:
    async with running(writes_per_s=1.0) as bench:
        for number in range(600):
            bench.say(1, of=job_ref(f"crowd-{number}"))
        await asyncio.sleep(10)
        bench.say(1, of=job_ref("other", "team-b"))
        await asyncio.sleep(4)
        assert bench.apiserver.times("other"), bench.apiserver.order


@in_virtual_time
async def test_a_hanging_apiserver_holds_no_more_than_a_few_writes() -> None:
    async with running() as bench:
        bench.apiserver.latency_s = 1000.0
        for number in range(50):
            bench.say(1, of=job_ref(f"job-{number}"))
        await asyncio.sleep(60)
        assert bench.apiserver.most_at_a_time == CONCURRENCY


class TestEcho:
    @in_virtual_time
    async def test_what_was_written_by_another_replica_is_not_written_again(self) -> None:
        async with running() as ours, running() as theirs:
            theirs.apiserver = theirs.write_back._client = ours.apiserver
            ours.apiserver.watchers = [ours.echo, theirs.echo]
            for step in range(300):
                for replica in (ours, theirs):
                    replica.say(step)
                await asyncio.sleep(1)
            # Both write at first; from then on whoever is first spares the other, but for a rare tie.
            assert 10 <= len(ours.apiserver.writes) <= 15

    @in_virtual_time
    async def test_after_a_restart_nothing_is_written_that_stands_there(self) -> None:
        async with running() as bench:
            stands = Progress(timestamp=T0, step=120, total_steps=1000, progress_percentage=12)
            bench.shows(stands)
            bench.say(120, at_s=15)
            await asyncio.sleep(60)
            assert not bench.apiserver.writes
            bench.say(121)
            await asyncio.sleep(60)
            assert len(bench.apiserver.writes) == 1

    @in_virtual_time
    async def test_a_later_status_of_another_manager_stays(self) -> None:
        async with running() as bench:
            stands = Progress(timestamp=T0 + timedelta(seconds=500), progress_percentage=50)
            bench.shows(stands)
            bench.say(120)
            await asyncio.sleep(60)
            assert not bench.apiserver.writes
            bench.say(501)
            await asyncio.sleep(60)
            assert len(bench.apiserver.writes) == 1

    @in_virtual_time
    async def test_our_own_later_status_does_not_hold_back_a_new_attempt_whose_clock_is_behind(self) -> None:
        async with running() as bench:
            bench.say(900)
            await asyncio.sleep(1)
            bench.echo()
            bench.say(1, at_s=0)
            await asyncio.sleep(60)
            status = bench.status()
            assert status is not None
            assert status.progress_percentage == 0

    @in_virtual_time
    async def test_what_was_taken_away_is_written_again(self) -> None:
        async with running() as bench:
            bench.say(120)
            await asyncio.sleep(1)
            bench.echo()
            bench.apiserver.statuses.clear()
            bench.echo()
            bench.say(120, at_s=130)
            await asyncio.sleep(60)
            assert bench.status() is not None
