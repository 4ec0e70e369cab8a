"""When each job is probed next, and which of those that are due. Pure: times are the event loop's seconds,
given by the caller.

    put ─► waits for its time ─► due: queued in its namespace ─► take ─► probed ─► done ─► waits …
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass
from enum import Enum

from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.job import JobRef
from visibility_api.reports.document import RetryClass

JITTER = 0.1  # intervals are shortened by up to this share, never lengthened
SOON_INTERVALS = 4.0  # longest wait, in intervals, while the connection is in trouble
LONGEST_INTERVALS = 400.0  # …for a job that does not report at all: it must cost almost nothing

# A run may import, download and compile for minutes before its first report. After this long without one a
# job is probed whenever its silence has grown by this share again: it costs next to nothing in the end.
GRACE_S, SILENCE_SHARE = 600.0, 1 / 4
# …where no report is to be expected: at 30 s, 25 probes on the first day instead of 2,900.
UNDECLARED_GRACE_S, UNDECLARED_SILENCE_SHARE = 60.0, 1 / 2

PUSH_INTERVALS = 3.0  # a job that pushed is not probed for so long at least
PUSH_GAPS = 2.5  # …and for so many of its own pauses between pushes
PUSH_LONGEST_S = 900.0
# …but one that a probe can read is probed so often all the same: its file may hold what it does not push.
PUSH_PROBE_INTERVALS = 8.0

RIGHT_S = 300.0  # longest wait for a right: a probe costs kube-apiserver a 403 and the pod nothing

_STRETCH_WEIGHT = 1 / 200  # of one probe in the mean


class _Stage(Enum):
    WAITING = "its time has not come"
    DUE = "in the queue"
    PROBING = "a probe is under way"


@dataclass(slots=True, kw_only=True)
class Turn:
    """One job's place in the schedule. At most one probe of a job at a time."""

    ref: JobRef
    attempt: str
    node: str | None
    interval_s: float
    is_declared: bool  # its pod or annotations name where it reports
    silent_since: float  # when its last report came, or this attempt was first seen
    due: float
    has_reported: bool = False  # in this attempt
    failures: int = 0  # in a row, of the same retry class
    retry: RetryClass | None = None  # of the last probe; None after a report
    not_before: float = 0.0  # it pushes: no need to probe
    pushed_at: float | None = None
    stage: _Stage = _Stage.WAITING
    began: float = 0.0  # the last probe
    attempt_probed: str = ""
    again: float | None = None  # something happened during the probe: when to probe again
    is_dropped: bool = False  # during the probe
    number: int = 0  # of its valid entry in the heap; older entries are void

    @property
    def is_expected(self) -> bool:
        """There is reason to think that it will report."""
        return self.is_declared or self.has_reported

    def is_young(self, now: float) -> bool:
        """Its first report, or the next one, may come at any moment."""
        return now - self.silent_since < (GRACE_S if self.is_expected else UNDECLARED_GRACE_S)


class Schedule:
    """Jobs by due time, then by namespaces in turn. They share `at_a_time` probes, `per_node` of a node."""

    def __init__(
        self, *, at_a_time: int = 256, per_node: int = 8, random_: random.Random | None = None
    ) -> None:
        self._turns: dict[JobRef, Turn] = {}
        self._dropped = 0  # of them, during their probe
        self._heap: list[tuple[float, int, JobRef]] = []
        self._numbers = itertools.count(1)
        self._due: FairQueue[JobRef] = FairQueue(at_a_time=at_a_time, per_node=per_node)
        self._random = random_ or random.Random()
        self.stretch = 1.0  # time between two probes of a job ÷ its interval, mean of the last hundreds

    def __len__(self) -> int:
        return len(self._turns) - self._dropped

    @property
    def waiting(self) -> int:
        """Jobs that are due and not probed yet: more than a few means overload."""
        return len(self._due)

    def put(
        self,
        ref: JobRef,
        *,
        attempt: str,
        node: str | None,
        interval_s: float,
        is_declared: bool,
        now: float,
        due: float,
    ) -> None:
        """Probe this job from `due` on; one that is already scheduled keeps its turn within an attempt."""
        turn = self._turns.get(ref)
        if turn is None:
            turn = self._turns[ref] = Turn(
                ref=ref, attempt=attempt, node=node, interval_s=interval_s, is_declared=is_declared,
                silent_since=now, due=due,
            )  # fmt: skip
            self._wait(turn, due)
            return
        if turn.is_dropped:
            turn.is_dropped = False
            self._dropped -= 1
            turn.attempt = ""  # whatever it was: what is known of it was dropped
        had_interval_s, turn.interval_s = turn.interval_s, interval_s
        turn.node, turn.is_declared = node, is_declared
        if turn.attempt != attempt:
            turn.attempt, turn.silent_since = attempt, now
            turn.failures, turn.retry, turn.not_before = 0, None, 0.0
            turn.pushed_at, turn.has_reported = None, False
            self._wait(turn, due)
        elif interval_s < had_interval_s and turn.stage is _Stage.WAITING:
            self._wait(turn, min(turn.due, now + interval_s))

    def hasten(self, ref: JobRef, now: float) -> None:
        """Probe this job at once, before others of its namespace: something happened to its pod."""
        turn = self._turns.get(ref)
        if turn is None:
            return
        turn.not_before = 0.0
        if turn.stage is _Stage.PROBING:
            self._wait(turn, now)
            return
        if turn.stage is _Stage.WAITING:
            turn.due = now
        self._enqueue(turn, is_urgent=True)

    def postpone(self, ref: JobRef, now: float) -> None:
        """This job has just pushed a report; while it goes on doing so it is not probed."""
        turn = self._turns.get(ref)
        if turn is None:
            return
        gap_s = 0.0 if turn.pushed_at is None else now - turn.pushed_at
        turn.pushed_at = now
        wait_s = max(PUSH_INTERVALS * turn.interval_s, min(PUSH_GAPS * gap_s, PUSH_LONGEST_S))
        turn.not_before = now + wait_s  # its entry in the heap stays: a push costs next to nothing
        if turn.attempt_probed != turn.attempt:
            turn.not_before = 0.0  # not known yet whether a probe can read it
        elif turn.retry is None:
            turn.not_before = min(turn.not_before, turn.began + PUSH_PROBE_INTERVALS * turn.interval_s)
        turn.silent_since, turn.has_reported = now, True

    def drop(self, ref: JobRef) -> None:
        turn = self._turns.get(ref)
        if turn is None or turn.is_dropped:
            return
        if turn.stage is _Stage.PROBING:
            turn.is_dropped, turn.again = True, None
            self._dropped += 1
        else:
            self._due.remove(ref)
            del self._turns[ref]

    def turn(self, ref: JobRef) -> Turn | None:
        """This job's place, to be read only; None when it is not scheduled."""
        turn = self._turns.get(ref)
        return None if turn is None or turn.is_dropped else turn

    def next_due(self) -> float | None:
        """When the next job that waits for its time is due; None when there is none."""
        self._discard_void()
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> Turn | None:
        """The job to probe now, to be given back with `done`; None when none is due or may be probed."""
        self._advance(now)
        while (ref := self._due.pop()) is not None:
            turn = self._turns[ref]
            if turn.not_before > now:  # pushed while it was in the queue
                self._due.release(ref)
                turn.stage = _Stage.WAITING
                self._wait(turn, turn.not_before)
                continue
            turn.stage, turn.began, turn.attempt_probed = _Stage.PROBING, now, turn.attempt
            self.stretch += _STRETCH_WEIGHT * (1 + (now - turn.due) / turn.interval_s - self.stretch)
            return turn
        return None

    def done(self, turn: Turn, *, now: float, retry: RetryClass | None) -> float | None:
        """The probe has ended: schedule the next. None of `retry` = it brought a report.

        Returns when the job is due again, None if it was dropped meanwhile.
        """
        self._due.release(turn.ref)
        turn.stage = _Stage.WAITING
        if turn.is_dropped:
            self._dropped -= 1
            del self._turns[turn.ref]
            return None
        if turn.attempt_probed == turn.attempt:  # otherwise it does not concern the attempt that runs now
            turn.failures = turn.failures + 1 if retry is turn.retry else 1
            turn.retry = retry
            if retry is None:
                turn.failures, turn.silent_since, turn.has_reported = 0, now, True
        delay_s = self._delay_s(turn, now) * (1 - JITTER * self._random.random())
        # Counted from the start of the probe, so that its own duration does not stretch the interval.
        due = max(now, turn.began + delay_s, turn.not_before)
        if turn.again is not None:
            due, turn.again = max(now, turn.again), None
        self._wait(turn, due)
        return due

    def _delay_s(self, turn: Turn, now: float) -> float:
        interval_s = turn.interval_s
        if turn.retry is None:
            return interval_s
        longest_s = LONGEST_INTERVALS * interval_s
        if turn.retry is RetryClass.FORBIDDEN:
            longest_s = min(longest_s, max(RIGHT_S, interval_s))
        doubled_s = interval_s * 2.0 ** min(turn.failures - 1, 10)
        if turn.retry is RetryClass.SOON:
            return min(doubled_s, SOON_INTERVALS * interval_s)
        share = SILENCE_SHARE if turn.is_expected else UNDECLARED_SILENCE_SHARE
        silence_s = 0.0 if turn.is_young(now) else share * (now - turn.silent_since)
        least_s = interval_s if turn.retry is RetryClass.LATER else doubled_s
        return min(longest_s, max(least_s, silence_s))

    def _wait(self, turn: Turn, due: float) -> None:
        """Until `due`; one that is being probed is probed again then."""
        if turn.stage is _Stage.PROBING:
            turn.again = due if turn.again is None else min(turn.again, due)
            return
        if turn.stage is _Stage.DUE:
            self._due.remove(turn.ref)
            turn.stage = _Stage.WAITING
        turn.due = due
        turn.number = next(self._numbers)
        heapq.heappush(self._heap, (due, turn.number, turn.ref))

    def _enqueue(self, turn: Turn, *, is_urgent: bool = False) -> None:
        turn.stage, turn.number = _Stage.DUE, 0
        self._due.push(turn.ref, namespace=turn.ref.namespace, node=turn.node, is_urgent=is_urgent)

    def _advance(self, now: float) -> None:
        """Those whose time has come are queued, earliest first."""
        while True:
            self._discard_void()
            if not self._heap or self._heap[0][0] > now:
                return
            _, _, ref = heapq.heappop(self._heap)
            turn = self._turns[ref]
            if turn.not_before > now:
                self._wait(turn, turn.not_before)
            else:
                self._enqueue(turn)

    def _discard_void(self) -> None:
        while self._heap:
            _, number, ref = self._heap[0]
            turn = self._turns.get(ref)
            if turn is not None and turn.number == number and turn.stage is _Stage.WAITING:
                return
            heapq.heappop(self._heap)
