"""Final reads: the log of an attempt that has ended is read once more, for its final report."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import structlog
from msgspec.structs import replace

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.job import JobRef, Rank0, TrainingJob
from visibility_api.reports.document import Outcome, Refused, RetryClass

from .choice import Choice

log = structlog.get_logger("visibility.probe")

MAX_WAITING = 1000  # of thousands that end at one time most have reported all that matters before
MAX_FOUND = 10_000  # …but of those that ended before this process began, it has no report at all

_NOTHING = Refused(
    reason="LogUnreadable",
    message="The log that an ended container left behind could not be read.",
    retry=RetryClass.RARELY,
)


@runtime_checkable
class FinalSource(Protocol):
    """A source that can be read after the container has ended. Never raises."""

    async def final_read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        """The report that the last container run of `rank0` to end has left behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """An attempt that has ended."""

    ref: JobRef
    attempt: str
    rank0: Rank0  # as the cluster shows it now; as it was when its pod is another by now

    @property
    def key(self) -> Hashable:
        return self.ref, self.attempt


class FinalReads:
    """Attempts whose final read is due, namespaces in turn, `at_a_time` and `per_node` of them at once.

    `logs` is None where logs are not read: then no attempt is queued.
    """

    def __init__(self, logs: FinalSource | None, *, per_node: int, at_a_time: int) -> None:
        self._logs = logs
        self._queue: FairQueue[Hashable] = FairQueue(at_a_time=at_a_time, per_node=per_node)
        self._ended: dict[Hashable, EndedAttempt] = {}

    @property
    def waiting(self) -> int:
        """Those that are not being read yet."""
        return len(self._queue)

    def note(self, before: TrainingJob, choice: Choice, now: TrainingJob, *, pushes: bool) -> bool:
        """Queue the attempt that ran `before` if it has ended and its log may hold more; whether that is so.

        An attempt that was read by file or port, or pushes, has reported everything that way.
        """
        was, is_ = before.rank0, now.rank0
        if self._logs is None or was is None or is_ is None or pushes:
            return False
        if is_.attempt == was.attempt and is_.is_running:
            return False
        by = choice.answered
        if (choice.has_answered and (by is None or by.source != "logs")) or now.hints.source not in (
            None,
            "logs",
        ):
            return False
        if is_.pod_uid == was.pod_uid:
            # The log is that of the run before the present one, which need not be the one that was seen.
            last = is_.restart_count - 1 if is_.is_running else was.restart_count
            ended, rank0 = replace(was, restart_count=max(was.restart_count, last)), is_
        else:
            ended, rank0 = was, replace(was, is_running=False, is_terminating=True)
        return self._add(EndedAttempt(ref=now.ref, attempt=ended.attempt, rank0=rank0), MAX_WAITING)

    def note_found(self, job: TrainingJob) -> bool:
        """Queue the attempt of a job that had ended before it was found; whether there is one to read."""
        rank0 = job.rank0
        if self._logs is None or rank0 is None or job.hints.source not in (None, "logs"):
            return False
        if rank0.is_running or (rank0.started_at is None and rank0.last_termination is None):
            return False
        return self._add(EndedAttempt(ref=job.ref, attempt=rank0.attempt, rank0=rank0), MAX_FOUND)

    def _add(self, attempt: EndedAttempt, most: int) -> bool:
        if attempt.key in self._ended or len(self._queue) >= most:
            return False
        self._ended[attempt.key] = attempt
        self._queue.push(attempt.key, namespace=attempt.ref.namespace, node=attempt.rank0.node_name)
        return True

    def take(self) -> EndedAttempt | None:
        """The next one, to be given to `read`; None when there is none or enough are under way."""
        key = self._queue.pop()
        return None if key is None else self._ended[key]

    async def read(self, attempt: EndedAttempt, *, deadline_s: float) -> Outcome:
        """What it has left behind, within the deadline."""
        assert self._logs is not None  # noqa: S101 - by `note`
        try:
            async with asyncio.timeout(deadline_s):
                return await self._logs.final_read(attempt.ref, attempt.rank0)
        except TimeoutError:
            return _NOTHING
        except Exception as error:
            log.error("final read failed", job=str(attempt.ref), **describe_fault(error))
            return _NOTHING
        finally:
            self._queue.release(attempt.key)
            del self._ended[attempt.key]
