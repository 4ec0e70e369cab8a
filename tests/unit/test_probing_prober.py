"""The probing loop, with a source that answers as the test sets it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF, T0
from visibility_api.jobs.job import JobRef, Phase, ProbeHints, Rank0, Termination, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.probing.prober import PER_NODE, TOGETHER, Prober
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

REPORT = Progress(timestamp=T0, step=1)
SILENT = Refused(reason="NoProgressFile", message="none", retry=RetryClass.LATER)


FORBIDDEN = Refused(reason="ExecForbidden", message="may not exec", retry=RetryClass.FORBIDDEN)


class ToldSource:
    """Answers by pod uid; a pod in `hanging` answers when its event is set."""

    def __init__(self, name: str = "exec") -> None:
        self.name = name
        self.answers: dict[str, Outcome] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.raising: set[str] = set()
        self.probed: list[str] = []
        self.at_a_time = self.most_at_a_time = 0
        self.changed = asyncio.Condition()

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        self.probed.append(rank0.pod_uid)
        async with self.changed:
            self.changed.notify_all()
        try:
            if rank0.pod_uid in self.hanging:
                await self.hanging[rank0.pod_uid].wait()
            if rank0.pod_uid in self.raising:
                raise ValueError("s3cr3t")
            return self.answers.get(rank0.pod_uid, REPORT)
        finally:
            self.at_a_time -= 1

    async def until_probed(self, times: int) -> None:
        async with asyncio.timeout(90), self.changed:
            await self.changed.wait_for(lambda: len(self.probed) >= times)


class ToldLogs(ToldSource):
    """Remembers too: a last word for each call, of the container as it is shown."""

    def __init__(self) -> None:
        super().__init__("logs")
        self.remembered: list[Rank0] = []

    async def final_read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        self.remembered.append(rank0)
        return await self.probe(ref, rank0)


class Bench:
    def __init__(self, *, concurrency: int, deadline_s: float, passive: Collection[str]) -> None:
        self.source = ToldSource()
        self.logs = ToldLogs()
        self.observations: asyncio.Queue[Observation] = asyncio.Queue()
        self.probes: list[tuple[str, str]] = []
        self.prober = Prober(
            {"exec": self.source, "logs": self.logs},
            record=self.observations.put_nowait,
            now=lambda: datetime.now(UTC),
            interval_s=15.0,
            concurrency=concurrency,
            deadline_s=deadline_s,
            passive=passive,
            on_probe=lambda source, outcome, *_: self.probes.append((source, outcome)),
        )

    async def next(self) -> Observation:
        async with asyncio.timeout(90):
            return await self.observations.get()


@asynccontextmanager
async def running(
    *, concurrency: int = 64, deadline_s: float = 60.0, passive: Collection[str] = ()
) -> AsyncIterator[Bench]:
    bench = Bench(concurrency=concurrency, deadline_s=deadline_s, passive=passive)
    task = asyncio.create_task(bench.prober.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def job(number: int, *, node: str = "gpu-1", **changes: object) -> TrainingJob:
    rank0 = replace(RANK0, pod_uid=f"p{number}", node_name=node)
    return replace(
        JOB, ref=structs.replace(REF, name=f"job-{number}", uid=str(number)), rank0=rank0, **changes
    )  # type: ignore[arg-type]


async def test_a_running_job_is_probed_soon_after_it_appears() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        seen = await bench.next()
        assert seen.outcome == REPORT
        assert seen.attempt == RANK0.attempt
        assert seen.next_at is not None
        assert seen.latency_s is not None


async def test_jobs_that_cannot_answer_are_never_probed() -> None:
    async with running() as bench:
        bench.prober.job_changed(replace(JOB, rank0=None))
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, is_running=False)))
        bench.prober.job_changed(replace(JOB, phase=Phase.SUCCEEDED))
        bench.prober.job_changed(replace(JOB, hints=ProbeHints(source="none")))
        assert len(bench.prober) == 0
        bench.prober.job_changed(job(1))
        await bench.next()
        assert bench.source.probed == ["p1"]


async def test_a_pod_that_begins_to_terminate_is_read_once_more_at_once() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        await bench.next()
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, is_terminating=True)))
        await bench.next()
        assert len(bench.source.probed) == 2


async def test_a_new_attempt_is_probed_without_waiting_for_the_interval() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        await bench.next()
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, restart_count=1)))
        assert (await bench.next()).attempt == "p1/1/0"


async def test_one_hanging_job_delays_no_other() -> None:
    async with running() as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(job(1))
        await bench.source.until_probed(1)
        bench.prober.job_changed(job(2))
        assert (await bench.next()).ref.name == "job-2"


async def test_a_node_full_of_hanging_pods_delays_no_other_node() -> None:
    of_a_namespace = PER_NODE // 2
    async with running() as bench:
        for number in range(3 * PER_NODE):
            bench.source.hanging[f"p{number}"] = asyncio.Event()
            bench.prober.job_changed(job(number, node="broken"))
        await bench.source.until_probed(of_a_namespace)
        bench.prober.job_changed(job(100, node="fine"))
        assert (await bench.next()).ref.name == "job-100"
        assert bench.source.most_at_a_time == of_a_namespace + 1


async def test_no_more_probes_are_under_way_than_allowed() -> None:
    async with running(concurrency=3) as bench:
        for number in range(30):
            bench.prober.job_changed(job(number, node=f"gpu-{number}"))
        for _ in range(30):
            await bench.next()
        assert bench.source.most_at_a_time <= 3


async def test_a_job_that_is_gone_while_it_is_probed_is_not_scheduled_again() -> None:
    async with running() as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(job(1))
        await bench.source.until_probed(1)
        bench.prober.job_gone(job(1).ref)
        bench.source.hanging["p1"].set()
        assert (await bench.next()).next_at is None
        assert len(bench.prober) == 0


async def test_under_mpi_the_other_pod_is_probed_when_the_launcher_has_no_document() -> None:
    other = replace(RANK0, pod_uid="node-pod")
    async with running() as bench:
        bench.source.answers["p1"] = SILENT
        bench.prober.job_changed(replace(JOB, alternates=(other,)))
        seen = await bench.next()
        assert seen.attempt == other.attempt
        assert seen.outcome == REPORT
        assert bench.source.probed == ["p1", "node-pod"]


async def test_when_neither_mpi_pod_has_a_document_the_launchers_refusal_stands() -> None:
    other = replace(RANK0, pod_uid="node-pod")
    async with running() as bench:
        bench.source.answers.update({"p1": SILENT, "node-pod": SILENT})
        bench.prober.job_changed(replace(JOB, alternates=(other,)))
        seen = await bench.next()
        assert seen.attempt == RANK0.attempt
        assert seen.outcome == SILENT
        assert seen.latency_s is None


async def test_a_probe_that_fails_unforeseen_is_that_jobs_trouble_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running() as bench:
        bench.source.raising.add(RANK0.pod_uid)
        bench.prober.job_changed(JOB)
        outcome = (await bench.next()).outcome
        assert isinstance(outcome, Refused)
        assert outcome.reason == "InternalError"
        other = replace(JOB, ref=structs.replace(REF, name="other"), rank0=replace(RANK0, pod_uid="p2"))
        bench.prober.job_changed(other)
        assert (await bench.next()).outcome == REPORT
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
            bench.prober.job_changed(replace(JOB, ref=structs.replace(REF, name=name)))
            await bench.next()
        assert len(taken) == 2


async def test_the_observation_says_which_source_was_probed_and_why() -> None:
    async with running() as bench:
        declared = (("logs", "environment variable TRAINJOB_PROGRESS_LOG"),)
        bench.prober.job_changed(replace(JOB, rank0=replace(RANK0, declared=declared)))
        seen = await bench.next()
        assert (seen.source, seen.why) == ("logs", "Declared by environment variable TRAINJOB_PROGRESS_LOG.")


async def test_a_refused_source_is_named_beside_the_one_that_is_probed_instead() -> None:
    async with running() as bench:
        bench.source.answers["p1"] = FORBIDDEN
        bench.prober.job_changed(JOB)
        seen = await bench.next()
        assert seen.source == "logs"
        assert seen.why.endswith("exec failed with ExecForbidden.")


async def test_an_annotation_that_cannot_be_followed_is_reported_once_and_nothing_is_probed() -> None:
    async with running() as bench:
        wanted = replace(JOB, hints=ProbeHints(source="http"))
        bench.prober.job_changed(wanted)
        seen = await bench.next()
        assert isinstance(seen.outcome, Refused)
        assert (seen.outcome.reason, seen.source, seen.next_at) == ("SourceNotEnabled", "http", None)
        bench.prober.job_changed(replace(wanted, reason="Other"))
        assert bench.observations.empty()
        assert len(bench.prober) == 0
        bench.prober.job_changed(JOB)  # the annotation is taken away
        assert (await bench.next()).outcome == REPORT


async def test_a_job_that_is_to_push_is_left_alone() -> None:
    async with running(passive=("push",)) as bench:
        bench.prober.job_changed(replace(JOB, hints=ProbeHints(source="push")))
        assert len(bench.prober) == 0
        assert bench.observations.empty()


async def test_a_job_that_pushes_before_its_first_probe_is_probed_once() -> None:
    async with running() as bench:
        bench.prober.job_changed(job(1))
        bench.prober.postpone(job(1).ref)
        assert (await bench.next()).ref == job(1).ref


async def test_a_source_that_hangs_is_cut_off_at_the_deadline() -> None:
    async with running(deadline_s=0.01) as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(JOB)
        outcome = (await bench.next()).outcome
        assert isinstance(outcome, Refused)
        assert outcome.reason == "ProbeTimeout"


async def test_a_flood_of_jobs_makes_no_more_tasks_than_there_are_places() -> None:
    async with running(concurrency=12) as bench:  # 9 of them for probes: 5 for one namespace
        for number in range(500):
            bench.source.hanging[f"p{number}"] = asyncio.Event()
            bench.prober.job_changed(job(number, node=f"gpu-{number}"))
            bench.prober._schedule.hasten(job(number).ref, 0.0)
        await bench.source.until_probed(5)
        assert len(bench.source.probed) == 5
        assert sum(t.get_name() == "probe" for t in asyncio.all_tasks()) == 5
        assert bench.prober.waiting == 495


async def test_a_backlog_begins_a_few_probes_at_a_time_so_that_others_have_their_turn() -> None:
    # All at once, the first turns of 200 probes would keep every reader waiting (docs/performance.md).
    async with running(concurrency=600) as bench:
        for number in range(200):
            bench.source.hanging[f"p{number}"] = asyncio.Event()
            bench.prober.job_changed(job(number, node=f"gpu-{number}"))
            bench.prober._schedule.hasten(job(number).ref, 0.0)
        begun = [0]
        while begun[-1] < 200:
            await asyncio.sleep(0)
            begun.append(len(bench.source.probed))
        assert max(after - before for before, after in itertools.pairwise(begun)) == TOGETHER


def ended(number: int, **changes: object) -> TrainingJob:
    """The job after its container has ended."""
    of = job(number)
    assert of.rank0 is not None
    return replace(of, rank0=replace(of.rank0, is_running=False, **changes))  # type: ignore[arg-type]


async def until_read_by_log(bench: Bench, number: int) -> None:
    bench.source.answers[f"p{number}"] = SILENT
    bench.prober.job_changed(job(number))
    assert (await bench.next()).source == "logs"


async def test_the_log_of_an_attempt_that_was_read_by_log_is_read_once_more_when_it_has_ended() -> None:
    async with running() as bench:
        await until_read_by_log(bench, 1)
        bench.prober.job_changed(ended(1))
        bench.prober.job_changed(ended(1))
        seen = await bench.next()
        assert seen.is_final_read
        assert (seen.attempt, seen.source, seen.outcome) == ("p1/0/0", "logs", REPORT)
        assert len(bench.logs.remembered) == 1


async def test_a_final_read_is_of_the_run_that_ended_last_even_if_it_was_never_seen() -> None:
    async with running() as bench:
        await until_read_by_log(bench, 1)
        rank0 = job(1).rank0
        assert rank0 is not None
        bench.prober.job_changed(replace(job(1), rank0=replace(rank0, restart_count=2)))
        seen = await bench.next()
        assert (seen.is_final_read, seen.attempt) == (True, "p1/1/0")
        assert bench.logs.remembered[0].is_running, "the run before is read from the container as it is now"


async def test_when_another_pod_has_taken_over_the_log_of_the_old_one_is_read_once_more() -> None:
    async with running() as bench:
        await until_read_by_log(bench, 1)
        bench.prober.job_changed(replace(job(1), rank0=replace(RANK0, pod_uid="next", pod_name="next")))
        assert (await bench.next()).attempt == "p1/0/0"
        assert (bench.logs.remembered[0].pod_name, bench.logs.remembered[0].is_running) == (
            RANK0.pod_name,
            False,
        )


async def test_what_was_read_by_file_or_pushed_needs_no_final_read_of_the_log() -> None:
    async with running() as bench:
        bench.prober.job_changed(job(1))
        assert (await bench.next()).source == "exec"
        bench.prober.job_changed(ended(1))
        bench.prober.job_changed(job(2))
        bench.prober.postpone(job(2).ref)
        bench.prober.job_changed(ended(2))
        bench.prober.job_changed(job(3))
        bench.prober.job_changed(ended(3))  # never probed: perhaps the log knows
        assert (await bench.next()).ref == job(3).ref
        assert len(bench.logs.remembered) == 1


async def test_the_log_of_a_job_that_had_ended_before_it_was_found_is_read_once() -> None:
    last = Termination(exit_code=0, signal=None, reason="Completed", finished_at=T0)
    others = [
        job(1),  # it runs
        replace(job(2), rank0=None),
        ended(3, started_at=None),  # its container has never run
        replace(ended(4, last_termination=last), hints=ProbeHints(source="push")),
        replace(ended(5, last_termination=last), hints=ProbeHints(source="none")),
    ]
    async with running() as bench:
        for each in (*others, ended(6, last_termination=last)):
            bench.prober.job_found(each)
        seen = await bench.next()
        assert (seen.ref, seen.is_final_read, seen.attempt) == (job(6).ref, True, "p6/0/0")
        assert len(bench.logs.remembered) == 1


async def test_final_reads_leave_places_for_probes() -> None:
    async with running(concurrency=4) as bench:
        for number in range(10):
            bench.logs.hanging[f"p{number}"] = asyncio.Event()
            bench.prober.job_changed(job(number, node=f"gpu-{number}"))
            bench.prober.job_changed(ended(number, node_name=f"gpu-{number}"))
        await bench.logs.until_probed(1)
        bench.prober.job_changed(job(100))
        assert (await bench.next()).ref == job(100).ref
        assert len(bench.logs.probed) == 1


async def _begins_to_look(bench: Bench) -> None:
    """Until the only job is taken from the schedule; its probe has not taken one step yet."""
    for _ in range(2):  # the job has been noticed; it is due
        turn = bench.prober.last_turn
        async with asyncio.timeout(90):
            while bench.prober.last_turn == turn:  # noqa: ASYNC110 - an event would come a step too late
                await asyncio.sleep(0)


async def test_a_job_that_goes_in_the_moment_its_probe_begins_ends_nothing() -> None:
    async with running() as bench:
        bench.prober.job_changed(JOB)
        await _begins_to_look(bench)
        bench.prober.job_gone(REF)
        bench.prober.job_changed(job(2))
        await bench.next()
        assert bench.source.probed == ["p2"]


async def test_a_job_with_nothing_left_to_probe_in_the_moment_its_probe_begins_ends_nothing() -> None:
    async with running(passive=["push"]) as bench:
        bench.prober.job_changed(JOB)
        await _begins_to_look(bench)
        bench.prober.job_changed(replace(JOB, hints=ProbeHints(source="push")))
        bench.prober.job_changed(job(2))
        await bench.next()
        assert bench.source.probed == ["p2"]


async def test_a_source_that_an_annotation_rules_out_during_a_probe_is_not_kept_for_its_answer() -> None:
    async with running() as bench:
        bench.source.hanging["p1"] = asyncio.Event()
        bench.prober.job_changed(JOB)
        await bench.source.until_probed(1)
        bench.prober.job_changed(replace(JOB, hints=ProbeHints(source="logs")))
        bench.source.hanging["p1"].set()
        assert (await bench.next()).source == "exec"
        assert (await bench.next()).source == "logs"
