"""When each job is asked next. Pure: times are the event loop's seconds, given by the caller."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from visibility_api.progress.job import JobRef

from .source import Patience

GRACE_S = 600.0  # a run may import, download and compile for minutes before its first report
SOON_FACTOR = 4.0  # longest wait, in intervals, while the connection is in trouble
RARELY_FACTOR = 100.0  # …for a job that does not report at all: it must cost almost nothing
JITTER = 0.1  # intervals are shortened by up to this share, never lengthened


@dataclass(slots=True, kw_only=True)
class Turn:
    """One job's place in the schedule."""

    ref: JobRef
    interval_s: float
    attempt: str
    attempt_since: float  # when this attempt was first seen
    due: float
    failures: int = 0
    asked_at: float = 0.0
    is_asking: bool = False  # at most one look at a job at a time
    wants_again: bool = False  # something happened while it was being asked
    number: int = 0  # of its valid entry in the heap; older entries are void


class Schedule:
    """Jobs by due time."""

    def __init__(self, *, random_: random.Random | None = None) -> None:
        self._turns: dict[JobRef, Turn] = {}
        self._heap: list[tuple[float, int, JobRef]] = []
        self._numbers = itertools.count(1)
        self._random = random_ or random.Random()

    def __len__(self) -> int:
        return len(self._turns)

    def put(self, ref: JobRef, *, attempt: str, interval_s: float, now: float, due: float) -> None:
        """Ask this job from `due` on; one that is already scheduled keeps its turn within an attempt."""
        turn = self._turns.get(ref)
        if turn is None:
            turn = self._turns[ref] = Turn(
                ref=ref, interval_s=interval_s, attempt=attempt, attempt_since=now, due=due
            )
        elif turn.attempt != attempt:
            turn.attempt, turn.attempt_since, turn.failures = attempt, now, 0
        elif interval_s != turn.interval_s:
            due = min(turn.due, now + interval_s)
        else:
            return
        turn.interval_s = interval_s
        self._queue(turn, due)

    def hasten(self, ref: JobRef, now: float) -> None:
        """Ask this job at once: something happened to its pod."""
        if (turn := self._turns.get(ref)) is not None:
            self._queue(turn, now)

    def drop(self, ref: JobRef) -> None:
        self._turns.pop(ref, None)

    def next_due(self) -> float | None:
        """When the next job is due; None when there is none to wait for."""
        self._discard_void()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> Iterator[Turn]:
        """Jobs that are due, earliest first; each must be given back with `done`."""
        while True:
            self._discard_void()
            if not self._heap or self._heap[0][0] > now:
                return
            _, _, ref = heapq.heappop(self._heap)
            turn = self._turns[ref]
            turn.number = 0
            turn.is_asking = True
            turn.asked_at = now
            yield turn

    def done(self, turn: Turn, *, now: float, patience: Patience | None) -> float | None:
        """The look has ended: schedule the next. None of `patience` = it brought a document.

        Returns when the job is due again, None if it was dropped meanwhile.
        """
        turn.is_asking = False
        if self._turns.get(turn.ref) is not turn:
            return None
        if patience is None:
            turn.failures = 0
            delay_s = turn.interval_s
        else:
            turn.failures += 1
            delay_s = self._delay_s(turn, patience, now)
        # Counted from the start of the look, so that its own duration does not stretch the interval.
        due = max(now, turn.asked_at + delay_s * (1 - JITTER * self._random.random()))
        if turn.wants_again:
            turn.wants_again = False
            due = now
        self._queue(turn, due)
        return due

    def _delay_s(self, turn: Turn, patience: Patience, now: float) -> float:
        if patience is Patience.LATER and now - turn.attempt_since < GRACE_S:
            return turn.interval_s
        longest = SOON_FACTOR if patience is Patience.SOON else RARELY_FACTOR
        return turn.interval_s * float(min(longest, 2.0 ** min(turn.failures - 1, 10)))

    def _queue(self, turn: Turn, due: float) -> None:
        if turn.is_asking:
            turn.wants_again = True
            return
        turn.due = due
        turn.number = next(self._numbers)
        heapq.heappush(self._heap, (due, turn.number, turn.ref))

    def _discard_void(self) -> None:
        while self._heap:
            _, number, ref = self._heap[0]
            turn = self._turns.get(ref)
            if turn is not None and turn.number == number:
                return
            heapq.heappop(self._heap)
