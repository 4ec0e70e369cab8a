"""The loop that probes every running job in turn, bounded in number, time and per node."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef, Phase, Rank0, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Refused, RetryClass

from .choice import Choice, options_for
from .final_reads import EndedAttempt, FinalReads, FinalSource
from .probe import OnProbe, Source, probe
from .readings import Readings
from .schedule import Schedule, Turn

log = structlog.get_logger("visibility.probe")

FIRST_PROBES_PER_S = 400.0  # after a start with many jobs, first probes are spread at this rate
PER_NODE = 8  # probes at a time on one node: its kubelet serves others too
START_DELAY_S = 0.2  # a container that has just started seldom has a report the same instant
# Probes that are due begin together, but no more than so many; then other tasks of the loop have their turn.
# A backlog that begins at once would keep readers and watchers waiting for as long as all of it takes.
# Further apart, one each 2 ms, each costs a third more: both sides wake up for each of its answers alone.
TOGETHER = 16
TICK_S = 0.01
IDLE_S = 5.0  # a turn at least so often also when nothing is due, so that its age means something


@dataclass(slots=True, kw_only=True)
class _Probed:
    """A job that can be probed, and what came of it."""

    job: TrainingJob
    rank0: Rank0
    choice: Choice
    refusal_reported: Refused | None = None  # to whoever reads the document


class Prober:
    """Probes each job through one of `sources`, by name, and hands the outcome of each probe to `record`.

    `passive` names the sources that are enabled as well but bring their reports by themselves. A source is
    cut off after `deadline_s` in any case; sources have shorter limits of their own. `on_probe` is called for
    each source tried: source, outcome (Reported, or our reason), its duration and how long after its due time
    the probe began, in seconds. What recording takes is charged to `readings`, as reading is by the sources.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        record: Callable[[Observation], object],
        now: Callable[[], datetime],
        interval_s: float,
        concurrency: int,
        passive: Collection[str] = (),
        deadline_s: float = 60.0,
        on_probe: OnProbe = lambda *_: None,
        readings: Readings | None = None,
    ) -> None:
        self._sources = sources
        self._readings = Readings() if readings is None else readings
        self._enabled = frozenset((*sources, *passive))
        self._record = record
        self._now = now
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._on_probe = on_probe
        of_ended = max(1, concurrency // 4)
        self._schedule = Schedule(at_a_time=max(1, concurrency - of_ended), per_node=PER_NODE)
        logs: object = sources.get("logs")
        self._final_reads = FinalReads(
            logs if isinstance(logs, FinalSource) else None,
            per_node=PER_NODE,
            at_a_time=of_ended,
        )
        self._jobs: dict[JobRef, _Probed] = {}
        self._paced_to = 0.0  # first probes are handed out up to this time
        self._wake = asyncio.Event()
        self._wakes_at = 0.0
        self._clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
        self.last_turn = 0.0  # loop time at which `run` last went round: liveness

    def __len__(self) -> int:
        """Jobs that are being probed."""
        return len(self._schedule)

    @property
    def waiting(self) -> int:
        """Jobs that are due and wait for a place: more than a few means overload."""
        return self._schedule.waiting

    @property
    def stretch(self) -> float:
        """How far intervals are stretched by overload: 1 = not at all, 2 = twice as long as configured."""
        return self._schedule.stretch

    def job_changed(self, job: TrainingJob, *, source: str = "") -> None:
        """Start, hasten or stop probing this job, by what the cluster now shows. `source`: what brought its
        last report, of a job that another process has probed."""
        probed, rank0 = self._jobs.get(job.ref), job.rank0
        if probed is not None and self._final_reads.note(
            probed.job, probed.choice, job, pushes=self._pushes(job.ref)
        ):
            self._wake.set()
        if rank0 is None or not _can_be_probed(job, rank0):
            self.job_gone(job.ref)
            return
        options = options_for(job, self._enabled)
        if probed is None or probed.rank0.attempt != rank0.attempt:
            choice = Choice(options=options)
            choice.recall(source)
            probed = self._jobs[job.ref] = _Probed(job=job, rank0=rank0, choice=choice)
            was_terminating = is_other = False
        else:
            was_terminating = probed.rank0.is_terminating
            is_other = probed.choice.change(options)
            probed.job, probed.rank0 = job, rank0
        if not options.first:
            self._schedule.drop(job.ref)
            self._record_refusal(probed)
            return
        now = self._clock()
        interval_s = job.hints.interval_s or self._interval_s
        turn = self._schedule.turn(job.ref)
        is_new = turn is None or turn.attempt != rank0.attempt
        self._schedule.put(
            job.ref,
            attempt=rank0.attempt,
            node=rank0.node_name,
            interval_s=interval_s,
            is_declared=options.is_declared,
            now=now,
            due=self._first_probe(now, interval_s) if is_new else now,
        )
        # Terminating: the last chance to read its file or port.
        if is_other or (rank0.is_terminating and not was_terminating):
            self._schedule.hasten(job.ref, now)
        self._wake.set()

    def job_found(self, job: TrainingJob) -> None:
        """A job that is new to this process, its final report not known: if it has ended, read its log."""
        if self._final_reads.note_found(job):
            self._wake.set()

    def job_gone(self, ref: JobRef) -> None:
        """Stop probing this job."""
        self._jobs.pop(ref, None)
        self._schedule.drop(ref)

    def postpone(self, ref: JobRef) -> None:
        """This job has pushed a report: while it goes on doing so it is not probed."""
        self._schedule.postpone(ref, self._clock())

    async def run(self) -> None:
        """Probe for ever; probes under way end with this call."""
        loop = asyncio.get_running_loop()
        self._clock = loop.time  # to ask for the loop would be a system call each time
        async with asyncio.TaskGroup() as probes:
            while True:
                self._wake.clear()
                self.last_turn = loop.time()
                begun = self._begin(probes)
                if begun:
                    await asyncio.sleep(TICK_S)
                if begun == TOGETHER:
                    continue
                self._wakes_at = self._next_turn(loop.time())
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._wakes_at):
                        await self._wake.wait()

    def _begin(self, probes: asyncio.TaskGroup) -> int:
        """Begin those that may, TOGETHER at most; returns how many."""
        begun = 0
        now = asyncio.get_running_loop().time()
        while begun < TOGETHER and (work := self._final_reads.take() or self._schedule.take(now)) is not None:
            begun += 1
            probes.create_task(self._work(work), name="probe")
        return begun

    def _next_turn(self, now: float) -> float:
        """When to go round again, unless something happens before."""
        due = self._schedule.next_due()
        return now + IDLE_S if due is None else min(now + IDLE_S, due)

    async def _work(self, work: Turn | EndedAttempt) -> None:
        try:
            if isinstance(work, Turn):
                await self._probe(work)
            else:
                await self._read_finally(work)
        finally:
            if self._schedule.waiting or self._final_reads.waiting:
                self._wake.set()  # there is a place again

    async def _probe(self, turn: Turn) -> None:
        loop = asyncio.get_running_loop()
        if turn.is_dropped:  # after it was taken, before this task began
            self._schedule.done(turn, now=loop.time(), retry=None)
            return
        probed = self._jobs[turn.ref]
        try:
            observation = await probe(
                probed.job,
                probed.choice,
                sources=self._sources,
                now=self._now,
                deadline_s=self._deadline_s,
                is_cheap=turn.is_young(loop.time()),
                on_probe=self._on_probe,
                lateness_s=turn.began - turn.due,
            )
        except Exception as error:  # choosing is done for one job, too (decision 0005)
            log.error("probe failed", job=str(turn.ref), **describe_fault(error))
            self._schedule.done(turn, now=loop.time(), retry=RetryClass.RARELY)
            return
        now, outcome = loop.time(), observation.outcome
        retry = outcome.retry if isinstance(outcome, Refused) else None
        due = self._schedule.done(turn, now=now, retry=retry)
        if due is not None:
            if due < self._wakes_at:
                self._wake.set()
            next_at = observation.at + timedelta(seconds=due - now)
            observation = msgspec.structs.replace(observation, next_at=next_at)
        self._hand_on(observation)

    async def _read_finally(self, ended: EndedAttempt) -> None:
        outcome = await self._final_reads.read(ended, deadline_s=self._deadline_s)
        self._hand_on(
            Observation(
                ref=ended.ref,
                attempt=ended.attempt,
                source="logs",
                at=self._now(),
                outcome=outcome,
                why="Final read of the log that the attempt left behind.",
                is_final_read=True,
            )
        )

    def _record_refusal(self, probed: _Probed) -> None:
        """Report once why a job is not probed, where that is a mistake of its author."""
        refusal = probed.choice.options.refusal
        if refusal is None or refusal == probed.refusal_reported:
            return
        probed.refusal_reported = refusal
        self._hand_on(
            Observation(
                ref=probed.job.ref,
                attempt=probed.rank0.attempt,
                source=probed.job.hints.source or "none",
                at=self._now(),
                outcome=refusal,
            )
        )

    def _hand_on(self, observation: Observation) -> None:
        began = time.perf_counter()
        try:
            self._record(observation)
        except Exception as error:  # what one job reports must not take the API from all the others
            log.error("observation not recorded", job=str(observation.ref), **describe_fault(error))
        finally:
            self._readings.charge(observation.ref, began)

    def _first_probe(self, now: float, interval_s: float) -> float:
        """When to probe first: soon, and evenly spread when there are many, over an interval at most."""
        begin = now + START_DELAY_S
        paced = max(begin, self._paced_to + 1 / FIRST_PROBES_PER_S)
        if paced > begin + interval_s:
            return begin + random.uniform(0, interval_s)
        self._paced_to = paced
        return paced

    def _pushes(self, ref: JobRef) -> bool:
        turn = self._schedule.turn(ref)
        return turn is not None and turn.pushed_at is not None


def _can_be_probed(job: TrainingJob, rank0: Rank0) -> bool:
    return (
        rank0.is_running and job.phase not in (Phase.SUCCEEDED, Phase.FAILED) and job.hints.source != "none"
    )
