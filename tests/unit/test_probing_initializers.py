"""When the logs of initializers are read, and what comes of it; the logs answer as the test sets them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, job_ref
from visibility_api.jobs.job import Initializer, JobRef, Phase, ProbeHints, TrainingJob
from visibility_api.probing.initializers import AT_A_TIME, InitializerReads
from visibility_api.reports.document import Refused, RetryClass

from .virtual_time import in_virtual_time, readings_in_loop_time

DATASET = Initializer(
    name="dataset-initializer",
    pod_name="bert-dataset-initializer-0-0-abcde",
    pod_uid="d1",
    node_name="cpu-1",
    container_name="dataset-initializer",
    restart_count=0,
)
MODEL = replace(
    DATASET, name="model-initializer", pod_name="bert-model-initializer-0-0-abcde", pod_uid="m1",
    container_name="model-initializer",
)  # fmt: skip
PREPARING = replace(JOB, phase=Phase.INITIALIZING, rank0=None, initializers=(DATASET,))
FORBIDDEN = Refused(reason="LogsForbidden", message="no right", retry=RetryClass.FORBIDDEN)


def bar(done: int) -> bytes:
    return f"\rFetching 12 files:  1%|█| {done}/12 [00:00<00:01, 8.35it/s]\n".encode()


def says(done: int) -> str:
    return f"Fetching 12 files {100 * done // 12} % ({done}/12)"


class Bench:
    def __init__(self, *, is_enabled: bool = True) -> None:
        self.answers: dict[str, bytes | Refused | Exception] = {}  # by the pod's name
        self.hangs: asyncio.Event | None = None
        self.asked: list[tuple[float, str, str]] = []
        self.said: list[tuple[JobRef, Mapping[str, str]]] = []
        self.at_a_time = self.most_at_a_time = 0
        self.outcomes: list[str] = []
        self.reads = InitializerReads(
            self if is_enabled else None,
            said=lambda ref, said: self.said.append((ref, said)),
            interval_s=15.0,
            on_probe=lambda source, outcome, *_: self.outcomes.append(f"{source} {outcome}"),
            readings=readings_in_loop_time(),
        )

    async def tail(self, _ref: JobRef, pod_name: str, container_name: str) -> bytes | Refused:
        self.asked.append((asyncio.get_running_loop().time(), pod_name, container_name))
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            if self.hangs is not None:
                await self.hangs.wait()
            answer = self.answers.get(pod_name, b"")
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            self.at_a_time -= 1

    def pauses_s(self) -> list[float]:
        times = [at for at, *_ in self.asked]
        return [later - at for at, later in itertools.pairwise(times)]

    async def begin(self, *, files: int) -> None:
        """The dataset's initializer says so many, and its first read is due."""
        self.answers[DATASET.pod_name] = bar(files)
        self.reads.job_changed(PREPARING)
        await asyncio.sleep(10)


@asynccontextmanager
async def reading(*, is_enabled: bool = True) -> AsyncIterator[Bench]:
    bench = Bench(is_enabled=is_enabled)
    task = asyncio.create_task(bench.reads.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait([task])


@in_virtual_time
async def test_an_initializer_is_read_at_each_interval_until_it_has_ended() -> None:
    async with reading() as bench:
        await bench.begin(files=3)
        assert bench.said == [(JOB.ref, {"d1/0": says(3)})]
        assert bench.asked[0][1:] == (DATASET.pod_name, DATASET.container_name)
        bench.answers[DATASET.pod_name] = bar(7)
        await asyncio.sleep(65)
        assert bench.said[-1] == (JOB.ref, {"d1/0": says(7)})
        assert all(13.5 <= pause <= 15 for pause in bench.pauses_s())
        read = len(bench.asked)
        bench.reads.job_changed(JOB)  # rank 0 runs
        await asyncio.sleep(600)
        assert (len(bench.asked), len(bench.reads)) == (read, 0)
        assert set(bench.outcomes) == {"logs Reported"}


@in_virtual_time
async def test_both_initializers_of_a_job_are_read() -> None:
    async with reading() as bench:
        bench.answers |= {DATASET.pod_name: bar(3), MODEL.pod_name: bar(4)}
        bench.reads.job_changed(replace(PREPARING, initializers=(DATASET, MODEL)))
        await asyncio.sleep(10)
        assert bench.said == [(JOB.ref, {"d1/0": says(3), "m1/0": says(4)})]
        # One has ended: the other is read anew.
        bench.reads.job_changed(replace(PREPARING, initializers=(MODEL,)))
        await asyncio.sleep(3)
        assert bench.said[-1] == (JOB.ref, {"m1/0": says(4)})


@pytest.mark.parametrize(
    ("source", "is_read"), [(None, True), ("logs", True), ("exec", False), ("none", False)]
)
@in_virtual_time
async def test_logs_are_read_only_where_the_job_lets_its_logs_be_read(
    source: str | None, is_read: bool
) -> None:
    async with reading() as bench:
        bench.reads.job_changed(replace(PREPARING, hints=ProbeHints(source=source)))
        await asyncio.sleep(60)
        assert bool(bench.asked) is is_read


@in_virtual_time
async def test_without_the_source_nothing_is_read() -> None:
    async with reading(is_enabled=False) as bench:
        bench.reads.job_changed(PREPARING)
        await asyncio.sleep(60)
        assert (bench.asked, len(bench.reads)) == ([], 0)


@in_virtual_time
async def test_an_interval_of_the_job_counts() -> None:
    async with reading() as bench:
        bench.answers[DATASET.pod_name] = bar(3)
        bench.reads.job_changed(replace(PREPARING, hints=ProbeHints(interval_s=2.0)))
        await asyncio.sleep(60)
        assert len(bench.asked) > 25


@in_virtual_time
async def test_a_missing_right_is_tried_again_every_five_minutes_and_nothing_old_is_said() -> None:
    async with reading() as bench:
        await bench.begin(files=3)
        bench.answers[DATASET.pod_name] = FORBIDDEN
        await asyncio.sleep(3 * 3600)
        assert bench.said[-1] == (JOB.ref, {})
        assert 270 <= bench.pauses_s()[-1] <= 300
        assert bench.outcomes[-1] == "logs LogsForbidden"


@in_virtual_time
async def test_one_that_prints_no_progress_is_read_less_and_less_often() -> None:
    async with reading() as bench:
        bench.reads.job_changed(PREPARING)
        await asyncio.sleep(8 * 3600)
        assert bench.pauses_s()[0] <= 15
        assert bench.pauses_s()[-1] > 1500
        assert bench.outcomes[-1] == "logs NoProgressInLog"


@in_virtual_time
async def test_no_more_than_so_many_jobs_of_a_namespace_are_read_at_a_time() -> None:
    most = AT_A_TIME // 2

    def job(number: int) -> TrainingJob:
        on = replace(DATASET, pod_uid=f"d{number}", node_name=f"cpu-{number}")
        return replace(PREPARING, ref=job_ref(f"job-{number}"), initializers=(on,))

    async with reading() as bench:
        bench.hangs = asyncio.Event()
        for number in range(3 * AT_A_TIME):
            bench.reads.job_changed(job(number))
        await asyncio.sleep(10)
        assert len(bench.asked) == most
        bench.hangs.set()
        await asyncio.sleep(1)
        assert len(bench.said) == 3 * AT_A_TIME
        assert bench.most_at_a_time == most


@in_virtual_time
async def test_a_fault_of_one_job_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with reading() as bench:
        bench.answers |= {DATASET.pod_name: ValueError("s3cr3t"), MODEL.pod_name: bar(4)}
        bench.reads.job_changed(PREPARING)
        bench.reads.job_changed(replace(PREPARING, ref=job_ref("other"), initializers=(MODEL,)))
        await asyncio.sleep(60)
        assert (job_ref("other"), {"m1/0": says(4)}) in bench.said
        assert "s3cr3t" not in caplog.text


@in_virtual_time
async def test_of_a_job_that_goes_while_it_is_read_nothing_is_said() -> None:
    async with reading() as bench:
        bench.hangs = asyncio.Event()
        await bench.begin(files=3)
        bench.reads.job_gone(JOB.ref)
        bench.hangs.set()
        await asyncio.sleep(60)
        assert (bench.said, len(bench.asked)) == ([], 1)
