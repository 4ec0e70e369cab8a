"""Attempts that have ended and may have left their last word in the log: each is asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.document import Refused
from visibility_api.progress.job import JobRef, Rank0, TrainingJob

from .choice import Choice
from .fair_queue import FairQueue
from .source import Answer, Patience

log = structlog.get_logger("visibility.probe")

MAX_WAITING = 1000  # the thousands that end at one time are likely to have said all that matters before

_NOTHING = Answer(
    outcome=Refused(reason="LogUnreadable", message="the log that an ended container left could not be read"),
    patience=Patience.RARELY,
)


@runtime_checkable
class Remembers(Protocol):
    """A source that can still be asked when the container has ended. Never raises."""

    async def last_words(self, ref: JobRef, rank0: Rank0) -> Answer:
        """What the life of `rank0`'s container that ended last has left behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """An attempt that has ended."""

    ref: JobRef
    attempt: str
    rank0: Rank0  # as the cluster shows it now; as it was when its pod is another by now

    @property
    def key(self) -> Hashable:
        return self.ref, self.attempt


class Endings:
    """Those that are still to be asked, namespaces in turn, `at_a_time` and `per_node` of them at once.

    `logs` is None where logs are not read: then nothing is ever to be asked.
    """

    def __init__(self, logs: Remembers | None, *, per_node: int, at_a_time: int) -> None:
        self._logs = logs
        self._at_a_time = at_a_time
        self._queue: FairQueue[Hashable] = FairQueue(per_node=per_node)
        self._endings: dict[Hashable, Ending] = {}
        self._asking = 0

    @property
    def waiting(self) -> int:
        """Those that are not being asked yet."""
        return len(self._queue)

    def note(self, before: TrainingJob, choice: Choice, now: TrainingJob, *, pushes: bool) -> bool:
        """Whether an attempt that ran `before` has ended and is to be asked for its last word.

        Whoever was read by file or port has told everything, and so has who pushes.
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
            # The log is that of the life before the one that runs, which need not be the one that was seen.
            last = is_.restart_count - 1 if is_.is_running else was.restart_count
            ended, rank0 = replace(was, restart_count=max(was.restart_count, last)), is_
        else:
            ended, rank0 = was, replace(was, is_running=False, is_terminating=True)
        ending = Ending(ref=now.ref, attempt=ended.attempt, rank0=rank0)
        if ending.key in self._endings or len(self._queue) >= MAX_WAITING:
            return False
        self._endings[ending.key] = ending
        self._queue.push(ending.key, namespace=now.ref.namespace, node=rank0.node_name)
        return True

    def take(self) -> Ending | None:
        """The next one, to be given to `ask`; None when there is none or enough are under way."""
        if self._asking >= self._at_a_time or (key := self._queue.pop()) is None:
            return None
        self._asking += 1
        return self._endings[key]

    async def ask(self, ending: Ending, *, deadline_s: float) -> Answer:
        """What it has left behind, within the deadline."""
        assert self._logs is not None  # noqa: S101 - by `note`
        try:
            async with asyncio.timeout(deadline_s):
                return await self._logs.last_words(ending.ref, ending.rank0)
        except TimeoutError:
            return _NOTHING
        except Exception as error:
            log.error("last look failed", job=str(ending.ref), **describe_fault(error))
            return _NOTHING
        finally:
            self._asking -= 1
            self._queue.release(ending.key)
            del self._endings[ending.key]
