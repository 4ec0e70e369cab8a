"""The past of one job: its steps and metrics over time, by attempt, in bounded memory.

All points are kept while there is room. Then the oldest part is thinned first, to the extremes of ever
longer stretches (`thinning`); what was reported lately stays whole. The first and last point of an attempt,
extremes, NaN and infinity always stay. Pure: no I/O, and times are given to it.

reports ─► pending: the latest rows, whole ─► recent: thinned ─► packed: thinned, and again as it fills
The last two are columns (`columns`): one of times and one of steps for all metrics, and for each metric its
values with the numbers of their rows. There are two, so that most reports cost no more than packing the
small one.

Times are milliseconds since 1970 by the training clock, and corrected only when they are read: so the same
point is known again wherever it comes from, and what is learnt of the clock holds for all of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from visibility_api.reports.document import Point, Progress
from visibility_api.reports.fields import MAX_INTEGER

from .attempt import (
    MAX_SERIES,
    NO_STEP,
    RECENT_BYTES,
    SEPARATOR,
    UNREADABLE,
    Attempt,
    end,
    fold,
    is_possible,
    join,
    last_metrics,
    read,
    shrink,
    size_bytes,
)

# Of one job: of all that is packed, and of what is pending.
PACKED_BYTES, PENDING_BYTES = 6 * 1024, 4 * 1024
MAX_SHAPES = 4  # of pending rows; training and evaluation report different metrics in turn
MAX_ATTEMPTS = 10
SHRUNK_SHARE = 4  # a quarter of an attempt goes at a time
MAX_NAME_CHARACTERS = 2048  # of all metrics of one report
SAME_MS = 2.0  # times of one point differ by no more: they are rounded, and told as ages
COVERED_MS = 60_000.0  # replicas probe at different times: one is always a little behind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class _Saved(msgspec.Struct, array_like=True, gc=False):
    attempts: list[Attempt]
    count: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Saved).decode


class JobHistory:
    """The attempts of one job, oldest first. Never more than its bounds; see `save` for storing it."""

    __slots__ = ("_attempts", "_count")

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []
        self._count = 0  # attempts so far, also of those that are kept no more

    @property
    def attempts(self) -> Sequence[Attempt]:
        return self._attempts

    @property
    def rows(self) -> int:
        """How many points were reported, of the attempts that are kept."""
        return sum(each.rows for each in self._attempts)

    def add(
        self,
        attempt: str,
        report: Progress,
        points: Sequence[Point] = (),
        *,
        continues: bool,
        reported_at: datetime,
        ahead_s: float,
        is_clock_set: bool = False,
    ) -> None:
        """Keep a report that counts, and the points that come with it; what is known already is left out.

        `continues`: it is of the attempt that was reported last, whatever that is called. `reported_at` and
        `ahead_s`: when it was written by our clock, and how far the training clock is ahead of ours.
        `is_clock_set`: that clock was set since the last report.
        """
        kept = self._attempts[-1] if self._attempts else None
        if kept is None or (not continues and kept.key != attempt):
            kept = self._begin(attempt)
        kept.key = attempt
        told_ms = _milliseconds(report.timestamp or reported_at)
        if is_clock_set and kept.rows:
            kept.shift_ms = _milliseconds(reported_at) + kept.ahead_ms - told_ms
        elif not kept.shift_ms:
            kept.ahead_ms = round(ahead_s * 1000)
        at_ms = told_ms + kept.shift_ms
        for point in points:
            point_ms = float(_milliseconds(point.timestamp) + kept.shift_ms)
            step = NO_STEP if point.step is None else float(point.step)
            later_ms = point_ms - kept.last_ms
            if (later_ms > SAME_MS or (step > kept.last_step and later_ms >= -SAME_MS)) and point_ms <= at_ms:
                self._put(kept, max(point_ms, kept.last_ms), step, point.epoch, point.metrics)
        step = NO_STEP if report.step is None else float(report.step)
        metrics = report.metrics
        if abs(at_ms - kept.last_ms) <= SAME_MS and step == kept.last_step:
            known = last_metrics(kept)
            metrics = tuple([each for each in metrics if each[0] not in known])
            if not metrics:
                return
        self._put(kept, max(float(at_ms), kept.last_ms), step, report.epoch, metrics)

    def _begin(self, key: str) -> Attempt:
        if self._attempts:
            end(self._attempts[-1])
        begun = Attempt(key=key, number=self._count)
        self._count += 1
        self._attempts.append(begun)
        self._bound()
        return begun

    def _put(
        self,
        attempt: Attempt,
        at_ms: float,
        step: float,
        epoch: float | None,
        metrics: Sequence[tuple[str, str | float]],
    ) -> None:
        names: list[str] = []
        values = [0.0, at_ms, step, math.nan if epoch is None else epoch]
        for name, text in metrics:
            try:
                value = float(text)
            except ValueError:  # a metric may be any text; only numbers have a history
                continue
            if name:
                names.append(name)
                values.append(value)
        if not names and step == NO_STEP and epoch is None:
            return
        shape = SEPARATOR.join(names)
        if (
            len(names) > MAX_SERIES
            or len(shape) > MAX_NAME_CHARACTERS
            or shape.count(SEPARATOR) >= len(names) > 0
        ):
            names = _bounded(names)
            del values[4 + len(names) :]
            shape = SEPARATOR.join(names)
        if shape not in attempt.shapes:
            if len(attempt.shapes) == MAX_SHAPES:
                self._fold(attempt, len(attempt.pending))
            attempt.shapes.append(shape)
        values[0] = float(attempt.shapes.index(shape))
        attempt.pending += struct.pack(f"<{len(values)}d", *values)
        attempt.rows += 1
        attempt.last_ms, attempt.last_step = at_ms, step
        attempt.first_ms = min(attempt.first_ms, at_ms)
        if len(attempt.pending) > PENDING_BYTES - 8 * len(values):
            self._fold(attempt, len(attempt.pending) // 2)

    def _fold(self, attempt: Attempt, size: int) -> None:
        fold(attempt, size)
        self._bound()

    def _excess(self) -> int:
        """Bytes beyond what there is room for."""
        return sum(map(size_bytes, self._attempts)) - PACKED_BYTES

    def _bound(self) -> None:
        """Make room: thin the largest attempt, and when that is of no more use, drop the shortest."""
        attempts = self._attempts
        while len(attempts) > MAX_ATTEMPTS:
            self._drop()
        least: set[int] = set()  # those that cannot be made smaller, by identity
        while (excess := self._excess()) > 0:
            larger = [each for each in attempts if id(each) not in least]
            if not larger and len(attempts) > 1:
                self._drop()
                least.clear()
                continue
            if not larger:
                return
            largest = max(larger, key=size_bytes)
            # A little more, or the next few rows would need as much work again; and a part of each in turn,
            # or one would pay for all the others.
            asked = min(excess + RECENT_BYTES, size_bytes(largest) // SHRUNK_SHARE)
            is_last = largest is attempts[-1]
            if not shrink(largest, asked, goes_on=is_last, may_drop_series=len(attempts) == 1):
                least.add(id(largest))

    def _drop(self) -> None:
        """Of the attempts that have ended the shortest, the oldest of equals."""
        self._attempts.remove(min(self._attempts[:-1], key=lambda each: each.rows))

    def save(self) -> bytes:
        """All of it, for `restore`."""
        return _encode(_Saved(self._attempts, self._count))

    def covers(self, other: JobHistory) -> bool:
        """Whether the other has nothing earlier, and nothing later that will not be reported here as well."""
        own = {each.key: each for each in self._attempts}
        return all(
            (mine := own.get(each.key)) is not None
            and mine.first_ms <= each.first_ms
            and mine.last_ms >= each.last_ms - COVERED_MS
            for each in other._attempts
        )

    def merge(self, other: JobHistory) -> None:
        """Take over what another process has kept of the same job: its attempts, and of one that both know
        the longer, continued by what the other has later."""
        own = {each.key: each for each in self._attempts}
        merged: list[Attempt] = []
        later: list[tuple[Attempt, Attempt]] = []
        for each in other._attempts:
            mine = own.pop(each.key, each)
            longer, shorter = (mine, each) if mine.rows > each.rows else (each, mine)
            if shorter.first_ms < longer.first_ms:
                join(longer, shorter)
            elif shorter.last_ms > longer.last_ms:
                later.append((longer, shorter))
            merged.append(longer)
        merged += own.values()
        merged.sort(key=lambda each: (each.first_ms - each.ahead_ms, each.number))
        number = -1
        for each in merged:
            each.number = number = max(number + 1, each.number)
        self._attempts, self._count = merged, max(self._count, other._count, number + 1)
        for longer, shorter in later:
            self._continue(longer, shorter)
        for each in merged[:-1]:
            end(each)
        self._bound()

    def _continue(self, attempt: Attempt, other: Attempt) -> None:
        """Add what another process has of the same attempt after its last row."""
        columns = read(other)
        epochs = dict(zip(columns.marks, columns.epochs, strict=True))
        metrics: dict[int, list[tuple[str, float]]] = {}
        for name, (rows, values) in columns.series.items():
            for row, value in zip(rows, values, strict=True):
                metrics.setdefault(row, []).append((name, value))
        for row, (time, step) in enumerate(zip(columns.times, columns.steps, strict=True)):
            if time > attempt.last_ms:
                epoch = epochs.get(row, math.nan)
                self._put(attempt, time, step, None if math.isnan(epoch) else epoch, metrics.get(row, ()))
        attempt.shift_ms, attempt.ahead_ms = other.shift_ms, other.ahead_ms


def restore(saved: bytes) -> JobHistory | None:
    """What `save` returned; None for anything else."""
    try:
        found = _decode(saved)
    except UNREADABLE:
        return None
    if found.count > MAX_INTEGER or not all(map(is_possible, found.attempts)):
        return None
    history = JobHistory()
    history._attempts, history._count = found.attempts, found.count
    return history


def _bounded(names: Sequence[str]) -> list[str]:
    """As many of the names as fit into one shape."""
    kept: list[str] = []
    characters = 0
    for name in names[:MAX_SERIES]:
        characters += len(name) + 1
        if characters > MAX_NAME_CHARACTERS:
            break
        kept.append(name.replace(SEPARATOR, " "))
    return kept


def _milliseconds(moment: datetime) -> int:
    return round((moment - _EPOCH) / _MILLISECOND)
