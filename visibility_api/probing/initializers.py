"""Reads what initializers print of their progress while the training waits for them.

It reads as the source `logs` does, with that source's rights, at the job's probe interval. Only pods are read
that are proven to be the job's, as rank 0 is (workloads/rank0.py). What is read is part of why the job does
not run yet, never of the training's own progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.reports.document import Refused, RetryClass
from visibility_api.reports.preparation import preparation

from .logs_source import LogsSource
from .probe import OVERDUE, PAUSES, OnProbe
from .readings import Readings
from .schedule import Schedule, Turn

log = structlog.get_logger("visibility.probe")

AT_A_TIME = 8  # jobs
PER_NODE = 2  # …of which the first initializer runs on one node
READ_S = 5.0  # what one has printed; in a namespace that has used its budget up it may wait without end
MAX_INITIALIZERS = 4  # of a job; Kubeflow's runtimes have two
START_DELAY_S = 1.0  # a container that has just started has printed nothing yet

NOTHING_PRINTED = "NoProgressInLog"


class InitializerReads:
    """Reads the logs of jobs whose initializers run, each job again after its interval.

    `said` is called after each with what was printed, by the initializers' runs; those that printed nothing
    that is understood are left out. One that prints nothing is read less and less often, as training is.
    """

    def __init__(
        self,
        logs: LogsSource | None,
        *,
        said: Callable[[JobRef, Mapping[str, str]], None],
        interval_s: float,
        on_probe: OnProbe = lambda *_: None,
        readings: Readings | None = None,
    ) -> None:
        """`logs`: None where the source is not enabled; then nothing is read."""
        self._logs = logs
        self._said = said
        self._interval_s = interval_s
        self._on_probe = on_probe
        self._readings = Readings() if readings is None else readings
        self._schedule = Schedule(at_a_time=AT_A_TIME, per_node=PER_NODE)
        self._jobs: dict[JobRef, TrainingJob] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Jobs whose initializers are read."""
        return len(self._schedule)

    def job_changed(self, job: TrainingJob) -> None:
        """Begin or cease to read this job's initializers, by what the cluster now shows."""
        # An annotation that names another source, or none, keeps the job's logs from being read.
        if not job.initializers or self._logs is None or job.hints.source not in (None, "logs"):
            self.job_gone(job.ref)
            return
        self._jobs[job.ref] = job
        now = asyncio.get_running_loop().time()
        self._schedule.put(
            job.ref,
            attempt=" ".join(each.attempt for each in job.initializers),
            node=job.initializers[0].node_name,
            interval_s=job.hints.interval_s or self._interval_s,
            is_declared=True,
            now=now,
            due=now + START_DELAY_S,
        )
        self._wake.set()

    def job_gone(self, ref: JobRef) -> None:
        """Cease to read this job's initializers."""
        if self._jobs.pop(ref, None) is not None:
            self._schedule.drop(ref)

    async def run(self) -> None:
        """Read for ever; reads under way end with this call."""
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as reads:
            while True:
                self._wake.clear()
                while (turn := self._schedule.take(clock())) is not None:
                    reads.create_task(self._work(turn), name="initializers")
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._schedule.next_due()):
                        await self._wake.wait()

    async def _work(self, turn: Turn) -> None:
        retry: RetryClass | None = RetryClass.RARELY
        said: dict[str, str] = {}
        try:
            retry = await self._read(turn, said)
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("initializers not read", job=str(turn.ref), **describe_fault(error))
        finally:
            due = self._schedule.done(turn, now=asyncio.get_running_loop().time(), retry=retry)
            self._wake.set()
        if due is not None:  # else the job has gone, or its initializers have ended
            self._said(turn.ref, said)

    async def _read(self, turn: Turn, said: dict[str, str]) -> RetryClass | None:
        """Fills `said`; returns the shortest pause until the next read that any of them asks for."""
        job, clock = self._jobs.get(turn.ref), asyncio.get_running_loop().time
        retries: list[RetryClass | None] = []
        for each in job.initializers[:MAX_INITIALIZERS] if job is not None else ():
            assert self._logs is not None  # noqa: S101 - or there is no turn
            began = clock()
            data = await self._logs.tail(turn.ref, each.pod_name, each.container_name)
            words = None
            if not isinstance(data, Refused):
                try:
                    async with asyncio.timeout(READ_S):
                        words = await self._readings.read(turn.ref, len(data), partial(preparation, data))
                except TimeoutError:
                    data = OVERDUE
            outcome = data.reason if isinstance(data, Refused) else "Reported" if words else NOTHING_PRINTED
            self._on_probe("logs", outcome, clock() - began, 0.0)
            if words is not None:
                said[each.attempt] = words
            retries.append(data.retry if isinstance(data, Refused) else None if words else RetryClass.LATER)
        if None in retries:
            return None
        return next((retry for retry in PAUSES if retry in retries), RetryClass.LATER)
