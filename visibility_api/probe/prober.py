"""The loop that asks every running job in turn, bounded in number, time and per node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.document import Refused
from visibility_api.progress.job import JobRef, Phase, Rank0, TrainingJob
from visibility_api.progress.observation import Observation

from .choice import Choice, options_for
from .endings import Ending, Endings, Remembers
from .look import ask
from .schedule import Schedule, Turn
from .source import Patience, Source

log = structlog.get_logger("visibility.probe")

FIRST_LOOKS_PER_S = 400.0  # after a start with many jobs, first looks are spread at this rate
PER_NODE = 8  # looks at a time on one node: its kubelet serves others too
START_DELAY_S = 0.2  # a container that has just started is seldom worth asking the same instant
# Looks that are due begin together, but no more than so many; others have their turn before the next ones.
# A backlog that begins at once would keep readers and watchers waiting for as long as all of it takes.
# Further apart, one each 2 ms, each costs a third more: both sides are woken for each of its answers alone.
TOGETHER = 16
TICK_S = 0.01
IDLE_S = 5.0  # a turn at least so often also when nothing is due, so that its age means something


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A job that can be asked, and what came of it."""

    job: TrainingJob
    rank0: Rank0
    choice: Choice
    refusal_told: Refused | None = None  # to whoever reads the document


class Prober:
    """Asks each job through one of `sources`, by name, and hands what comes of each look to `record`.

    `passive` names the sources that are enabled as well but bring their reports by themselves. An ask ends
    after `deadline_s` in any case; sources have shorter limits of their own. `on_look` is told of each ask:
    source, outcome (Reported, or our reason word), its duration and how long after its due time the look
    began, in seconds.
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
        on_look: Callable[[str, str, float, float], None] = lambda *_: None,
    ) -> None:
        self._sources = sources
        self._enabled = frozenset((*sources, *passive))
        self._record = record
        self._now = now
        self._interval_s = interval_s
        self._concurrency = concurrency
        self._deadline_s = deadline_s
        self._on_look = on_look
        self._schedule = Schedule(per_node=PER_NODE)
        logs: object = sources.get("logs")
        self._endings = Endings(
            logs if isinstance(logs, Remembers) else None,
            per_node=PER_NODE,
            at_a_time=max(1, concurrency // 4),
        )
        self._jobs: dict[JobRef, _Asked] = {}
        self._busy = 0  # looks under way
        self._paced_to = 0.0  # first looks are handed out up to this time
        self._wake = asyncio.Event()
        self._wakes_at = 0.0
        self.last_turn = 0.0  # loop time at which `run` last went round: liveness

    def __len__(self) -> int:
        """Jobs that are being asked."""
        return len(self._schedule)

    @property
    def waiting(self) -> int:
        """Jobs that are due and wait for a place: more than a few means overload."""
        return self._schedule.waiting

    @property
    def stretch(self) -> float:
        """How far intervals are stretched by overload: 1 = not at all, 2 = twice as long as asked for."""
        return self._schedule.stretch

    def job_changed(self, job: TrainingJob) -> None:
        """Start, hasten or stop asking this job, by what the cluster now shows."""
        asked, rank0 = self._jobs.get(job.ref), job.rank0
        if asked is not None and self._endings.note(
            asked.job, asked.choice, job, pushes=self._pushes(job.ref)
        ):
            self._wake.set()
        if rank0 is None or not _is_askable(job, rank0):
            self.job_gone(job.ref)
            return
        options = options_for(job, self._enabled)
        if asked is None or asked.rank0.attempt != rank0.attempt:
            asked = self._jobs[job.ref] = _Asked(job=job, rank0=rank0, choice=Choice(options=options))
            was_terminating = is_other = False
        else:
            was_terminating = asked.rank0.is_terminating
            is_other = asked.choice.change(options)
            asked.job, asked.rank0 = job, rank0
        if not options.first:
            self._schedule.drop(job.ref)
            self._tell_refusal(asked)
            return
        now = asyncio.get_running_loop().time()
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
            due=self._first_look(now, interval_s) if is_new else now,
        )
        # Terminating: the last chance to read what it has to say.
        if is_other or (rank0.is_terminating and not was_terminating):
            self._schedule.hasten(job.ref, now)
        self._wake.set()

    def job_gone(self, ref: JobRef) -> None:
        """Stop asking this job."""
        self._jobs.pop(ref, None)
        self._schedule.drop(ref)

    def postpone(self, ref: JobRef) -> None:
        """This job has told its progress by itself: while it goes on doing so it is not asked."""
        self._schedule.postpone(ref, asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Ask for ever; looks end with this call."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as looks:
            while True:
                self._wake.clear()
                self.last_turn = loop.time()
                begun = self._begin(looks)
                if begun:
                    await asyncio.sleep(TICK_S)
                if begun == TOGETHER:
                    continue
                self._wakes_at = self._next_turn(loop.time())
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._wakes_at):
                        await self._wake.wait()

    def _begin(self, looks: asyncio.TaskGroup) -> int:
        """Begin those that may, TOGETHER at most; returns how many."""
        begun = 0
        now = asyncio.get_running_loop().time()
        while begun < TOGETHER and self._busy < self._concurrency:
            work = self._endings.take() or self._schedule.take(now)
            if work is None:
                break
            begun += 1
            self._busy += 1
            looks.create_task(self._work(work), name="probe")
        return begun

    def _next_turn(self, now: float) -> float:
        """When to go round again, unless something happens before."""
        due = self._schedule.next_due() if self._busy < self._concurrency else None
        return now + IDLE_S if due is None else min(now + IDLE_S, due)

    async def _work(self, work: Turn | Ending) -> None:
        try:
            if isinstance(work, Turn):
                await self._look(work)
            else:
                await self._hear_last_words(work)
        finally:
            was_full = self._busy >= self._concurrency
            self._busy -= 1
            if was_full or self._schedule.waiting or self._endings.waiting:
                self._wake.set()  # there is a place again

    async def _look(self, turn: Turn) -> None:
        loop = asyncio.get_running_loop()
        if turn.is_dropped:  # after it was taken, before this task began
            self._schedule.done(turn, now=loop.time(), patience=None)
            return
        asked = self._jobs[turn.ref]
        job, choice = asked.job, asked.choice
        try:
            found = await ask(
                job,
                choice,
                sources=self._sources,
                deadline_s=self._deadline_s,
                is_cheap=turn.is_young(loop.time()),
                on_ask=self._on_look,
                lateness_s=turn.began - turn.due,
            )
        except Exception as error:  # choosing is done for one job, too (decision 0005)
            log.error("look failed", job=str(turn.ref), **describe_fault(error))
            self._schedule.done(turn, now=loop.time(), patience=Patience.RARELY)
            return
        now = loop.time()
        due = self._schedule.done(turn, now=now, patience=found.patience)
        if due is not None and due < self._wakes_at:
            self._wake.set()
        at = self._now()
        self._tell(
            Observation(
                ref=turn.ref,
                attempt=found.attempt,
                source=found.source,
                at=at,
                outcome=found.outcome,
                latency_s=found.latency_s,
                next_at=None if due is None else at + timedelta(seconds=due - now),
                why=found.why,
            )
        )

    async def _hear_last_words(self, ending: Ending) -> None:
        said = await self._endings.ask(ending, deadline_s=self._deadline_s)
        self._tell(
            Observation(
                ref=ending.ref,
                attempt=ending.attempt,
                source="logs",
                at=self._now(),
                outcome=said.outcome,
                why="the log that the attempt left behind",
                is_last_word=True,
            )
        )

    def _tell_refusal(self, asked: _Asked) -> None:
        """Say once why a job is not asked, where that is a mistake."""
        refusal = asked.choice.options.refusal
        if refusal is None or refusal == asked.refusal_told:
            return
        asked.refusal_told = refusal
        self._tell(
            Observation(
                ref=asked.job.ref,
                attempt=asked.rank0.attempt,
                source=asked.job.hints.source or "none",
                at=self._now(),
                outcome=refusal,
            )
        )

    def _tell(self, seen: Observation) -> None:
        try:
            self._record(seen)
        except Exception as error:  # what one job says must not take the API from all the others
            log.error("answer not taken over", job=str(seen.ref), **describe_fault(error))

    def _first_look(self, now: float, interval_s: float) -> float:
        """When to look first: soon, and evenly spread when there are many, over an interval at most."""
        begin = now + START_DELAY_S
        paced = max(begin, self._paced_to + 1 / FIRST_LOOKS_PER_S)
        if paced > begin + interval_s:
            return begin + random.uniform(0, interval_s)
        self._paced_to = paced
        return paced

    def _pushes(self, ref: JobRef) -> bool:
        turn = self._schedule.turn(ref)
        return turn is not None and turn.pushed_at is not None


def _is_askable(job: TrainingJob, rank0: Rank0) -> bool:
    return (
        rank0.is_running and job.phase not in (Phase.SUCCEEDED, Phase.FAILED) and job.hints.source != "none"
    )
