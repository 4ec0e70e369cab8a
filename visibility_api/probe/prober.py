"""The loop that asks every running job in turn, bounded in number, time and per node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.document import Progress, Refused
from visibility_api.progress.job import JobRef, Phase, Rank0, TrainingJob
from visibility_api.progress.observation import Observation

from .schedule import Schedule, Turn
from .source import Answer, Patience, Source

log = structlog.get_logger("visibility.probe")

FIRST_LOOKS_PER_S = 500.0  # after a start with many jobs, first looks are spread at this rate
PER_NODE = 8  # looks at a time on one node: its kubelet serves others too
START_DELAY_S = 0.2  # a container that has just started is seldom worth asking the same instant

_FAULT = Answer(
    outcome=Refused(
        reason="InternalError", message="the look failed in an unforeseen way; see the server's log"
    ),
    patience=Patience.RARELY,
)


class Prober:
    """Asks through `source`, and hands each answer to `record`.

    `on_look` is told of each look: source, outcome (Reported, or our reason word), its duration and how long
    after its due time it began, in seconds.
    """

    def __init__(
        self,
        source: Source,
        *,
        record: Callable[[Observation], None],
        now: Callable[[], datetime],
        interval_s: float,
        concurrency: int,
        on_look: Callable[[str, str, float, float], None] = lambda *_: None,
    ) -> None:
        self._source = source
        self._record = record
        self._now = now
        self._interval_s = interval_s
        self._on_look = on_look
        self._slots = asyncio.Semaphore(concurrency)
        self._node_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._schedule = Schedule()
        self._jobs: dict[JobRef, TrainingJob] = {}
        self._wake = asyncio.Event()
        self.last_turn = 0.0  # loop time at which `run` last went round: liveness

    def __len__(self) -> int:
        """Jobs that are being asked."""
        return len(self._schedule)

    def job_changed(self, job: TrainingJob) -> None:
        """Start, hasten or stop asking this job, by what the cluster now shows."""
        before = self._jobs.get(job.ref)
        if not _is_askable(job):
            self.job_gone(job.ref)
            return
        self._jobs[job.ref] = job
        now = asyncio.get_running_loop().time()
        assert job.rank0 is not None  # noqa: S101 - by _is_askable
        spread_s = len(self._schedule) / FIRST_LOOKS_PER_S
        interval_s = job.hints.interval_s or self._interval_s
        delay_s = START_DELAY_S + min(interval_s, random.uniform(0, spread_s))
        self._schedule.put(
            job.ref, attempt=job.rank0.attempt, interval_s=interval_s, now=now, due=now + delay_s
        )
        was_terminating = before is not None and before.rank0 is not None and before.rank0.is_terminating
        if job.rank0.is_terminating and not was_terminating:
            self._schedule.hasten(job.ref, now)  # the last chance to read what it has to say
        self._wake.set()

    def job_gone(self, ref: JobRef) -> None:
        """Stop asking this job."""
        self._jobs.pop(ref, None)
        self._schedule.drop(ref)

    async def run(self) -> None:
        """Ask for ever; looks end with this call."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as looks:
            while True:
                self.last_turn = loop.time()
                for turn in self._schedule.take_due(loop.time()):
                    looks.create_task(self._look(turn), name=f"probe {turn.ref}")
                due = self._schedule.next_due()
                self._wake.clear()
                # A turn at least every few seconds also when nothing is due, so that its age means something.
                pause_s = 5.0 if due is None else min(5.0, max(0.0, due - loop.time()))
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()

    async def _look(self, turn: Turn) -> None:
        loop = asyncio.get_running_loop()
        # The node first: jobs of a node that hangs wait for each other, not in everybody's way.
        async with self._node_slot(turn.ref), self._slots:
            job = self._jobs.get(turn.ref)
            if job is None:  # ended while it waited
                return
            began = loop.time()
            rank0, answer = await self._ask_safely(job)
            latency_s, lateness_s = loop.time() - began, began - turn.due
        is_document = isinstance(answer.outcome, Progress)
        due = self._schedule.done(turn, now=loop.time(), patience=None if is_document else answer.patience)
        self._on_look(
            self._source.name,
            "Reported" if isinstance(answer.outcome, Progress) else answer.outcome.reason,
            latency_s,
            lateness_s,
        )
        seen = Observation(
            ref=turn.ref,
            attempt=rank0.attempt,
            source=self._source.name,
            at=self._now(),
            outcome=answer.outcome,
            latency_s=latency_s if is_document else None,
            next_at=None if due is None else self._now() + timedelta(seconds=due - loop.time()),
        )
        try:
            self._record(seen)
        except Exception as error:  # what one job says must not take the API from all the others
            log.error("answer not taken over", job=str(turn.ref), **describe_fault(error))
        self._wake.set()

    def _node_slot(self, ref: JobRef) -> asyncio.Semaphore:
        job = self._jobs.get(ref)
        node = (job.rank0.node_name if job and job.rank0 else None) or ""
        slot = self._node_slots.get(node)
        if slot is None:  # kept only while somebody holds or awaits it: nodes come and go
            slot = self._node_slots[node] = asyncio.Semaphore(PER_NODE)
        return slot

    async def _ask_safely(self, job: TrainingJob) -> tuple[Rank0, Answer]:
        """A source should never raise; if one does, it is that job's trouble alone."""
        assert job.rank0 is not None  # noqa: S101 - by _is_askable
        try:
            return await self._ask(job)
        except Exception as error:
            log.error("look failed", job=str(job.ref), **describe_fault(error))
            return job.rank0, _FAULT

    async def _ask(self, job: TrainingJob) -> tuple[Rank0, Answer]:
        """Ask rank 0; under MPI, when it has no document, the other pod that may hold it (2.2, step 5)."""
        assert job.rank0 is not None  # noqa: S101 - by _is_askable
        first = job.rank0, await self._source.ask(job.ref, job.rank0)
        if isinstance(first[1].outcome, Progress) or first[1].patience is Patience.SOON:
            return first
        for other in job.alternates:
            if other.is_running:
                answer = await self._source.ask(job.ref, other)
                if isinstance(answer.outcome, Progress):
                    return other, answer
        return first


def _is_askable(job: TrainingJob) -> bool:
    return (
        job.rank0 is not None
        and job.rank0.is_running
        and job.phase not in (Phase.SUCCEEDED, Phase.FAILED)
        and job.hints.source != "none"
    )
