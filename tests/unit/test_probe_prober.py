"""The asking loop, with a source that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from visibility_api.probe.prober import PER_NODE, Prober
from visibility_api.probe.source import Answer, Patience
from visibility_api.progress.document import Progress, Refused
from visibility_api.progress.job import JobRef, Phase, ProbeHints, Rank0, TrainingJob
from visibility_api.progress.observation import Observation

from .test_progress_tracker import JOB, RANK0, REF, T0

REPORT = Answer(outcome=Progress(timestamp=T0, step=1))
SILENT = Answer(outcome=Refused(reason="NoProgressFile", message="none"), patience=Patience.LATER)


class ToldSource:
    """Answers by pod uid; a pod in `hanging` answers when its event is set."""

    name = "exec"

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.raising: set[str] = set()
        self.asked: list[str] = []
        self.at_a_time = self.most_at_a_time = 0
        self.heard = asyncio.Condition()

    async def ask(self, ref: JobRef, rank0: Rank0) -> Answer:
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        self.asked.append(rank0.pod_uid)
        async with self.heard:
            self.heard.notify_all()
        try:
            if rank0.pod_uid in self.hanging:
                await self.hanging[rank0.pod_uid].wait()
            if rank0.pod_uid in self.raising:
                raise ValueError("s3cr3t")
            return self.answers.get(rank0.pod_uid, REPORT)
        finally:
            self.at_a_time -= 1

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(10), self.heard:
            await self.heard.wait_for(lambda: len(self.asked) >= times)


class Bench:
    def __init__(self, *, concurrency: int = 64) -> None:
        self.source = ToldSource()
        self.observations: asyncio.Queue[Observation] = asyncio.Queue()
        self.prober = Prober(
            {"exec": self.source},
            record=self.observations.put_nowait,
            now=lambda: datetime.now(UTC),
            interval_s=15.0,
            concurrency=concurrency,
        )

    async def next(self) -> Observation:
        async with asyncio.timeout(10):
            return await self.observations.get()


@asynccontextmanager
async def running(*, concurrency: int = 64) -> AsyncIterator[Bench]:
    bench = Bench(concurrency=concurrency)
    task = asyncio.create_task(bench.prober.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def job(number: int, *, node: str = "gpu-1", **changes: object) -> TrainingJob:
    rank0 = replace(RANK0, pod_uid=f"p{number}", node_name=node)
    return replace(JOB, ref=replace(REF, name=f"job-{number}", uid=str(number)), rank0=rank0, **changes)  # type: ignore[arg-type]


async def test_a_running_job_is_asked_soon_after_it_appears() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        seen = await bench.next()
        assert seen.outcome == REPORT.outcome
        assert seen.attempt == RANK0.attempt
        assert seen.next_at is not None
        assert seen.latency_s is not None


async def test_jobs_that_cannot_answer_are_never_asked() -> None:
    async with running() as bench:
        bench.prober.job_changed(replace(JOB, rank0=None))
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, is_running=False)))
        bench.prober.job_changed(replace(JOB, phase=Phase.SUCCEEDED))
        bench.prober.job_changed(replace(JOB, hints=ProbeHints(source="none")))
        assert len(bench.prober) == 0
        bench.prober.job_changed(job(1))
        await bench.next()
        assert bench.source.asked == ["p1"]


async def test_a_pod_that_begins_to_terminate_is_read_once_more_at_once() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        await bench.next()
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, is_terminating=True)))
        await bench.next()
        assert len(bench.source.asked) == 2


async def test_a_new_attempt_is_asked_without_waiting_for_the_interval() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        await bench.next()
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, restart_count=1)))
        assert (await bench.next()).attempt == "p1/1/0"


async def test_one_hanging_job_delays_no_other() -> None:
    async with running() as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(job(1))
        await bench.source.until_asked(1)
        bench.prober.job_changed(job(2))
        assert (await bench.next()).ref.name == "job-2"


async def test_a_node_full_of_hanging_pods_delays_no_other_node() -> None:
    async with running(concurrency=PER_NODE + 1) as bench:
        for number in range(3 * PER_NODE):
            bench.source.hanging[f"p{number}"] = asyncio.Event()
            bench.prober.job_changed(job(number, node="broken"))
        await bench.source.until_asked(PER_NODE)
        bench.prober.job_changed(job(100, node="fine"))
        assert (await bench.next()).ref.name == "job-100"
        assert bench.source.most_at_a_time == PER_NODE + 1


async def test_no_more_looks_are_under_way_than_allowed() -> None:
    async with running(concurrency=3) as bench:
        for number in range(30):
            bench.prober.job_changed(job(number, node=f"gpu-{number}"))
        for _ in range(30):
            await bench.next()
        assert bench.source.most_at_a_time <= 3


async def test_a_job_that_is_gone_while_it_is_asked_is_not_scheduled_again() -> None:
    async with running() as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(job(1))
        await bench.source.until_asked(1)
        bench.prober.job_gone(job(1).ref)
        bench.source.hanging["p1"].set()
        assert (await bench.next()).next_at is None
        assert len(bench.prober) == 0


async def test_under_mpi_the_other_pod_is_asked_when_the_launcher_has_no_document() -> None:
    other = replace(RANK0, pod_uid="node-pod")
    async with running() as bench:
        bench.source.answers["p1"] = SILENT
        bench.prober.job_changed(replace(JOB, alternates=(other,)))
        seen = await bench.next()
        assert seen.attempt == other.attempt
        assert seen.outcome == REPORT.outcome
        assert bench.source.asked == ["p1", "node-pod"]


async def test_when_neither_mpi_pod_has_a_document_the_launchers_word_stands() -> None:
    other = replace(RANK0, pod_uid="node-pod")
    async with running() as bench:
        bench.source.answers.update({"p1": SILENT, "node-pod": SILENT})
        bench.prober.job_changed(replace(JOB, alternates=(other,)))
        seen = await bench.next()
        assert seen.attempt == RANK0.attempt
        assert seen.outcome == SILENT.outcome
        assert seen.latency_s is None


async def test_a_look_that_fails_unforeseen_is_that_jobs_trouble_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running() as bench:
        bench.source.raising.add(RANK0.pod_uid)
        bench.prober.job_changed(JOB)
        outcome = (await bench.next()).outcome
        assert isinstance(outcome, Refused)
        assert outcome.reason == "InternalError"
        other = replace(JOB, ref=replace(REF, name="other"), rank0=replace(RANK0, pod_uid="p2"))
        bench.prober.job_changed(other)
        assert (await bench.next()).outcome == REPORT.outcome
    said = capsys.readouterr()
    assert "s3cr3t" not in said.out + said.err


async def test_an_answer_that_cannot_be_taken_over_stops_nobody() -> None:
    async with running() as bench:
        taken: list[Observation] = []

        def take(observation: Observation) -> None:
            taken.append(observation)
            bench.observations.put_nowait(observation)
            raise ValueError

        bench.prober._record = take
        for name in ("one", "two"):
            bench.prober.job_changed(replace(JOB, ref=replace(REF, name=name)))
            await bench.next()
        assert len(taken) == 2
