"""The past of one job: its steps and metrics over time, by attempt, in bounded memory.

All points are kept while there is room. Then they are thinned, to the extremes of ever longer intervals
(`thinning`), except for the latest third of each series. The first and last point of a series, extremes, NaN
and infinity always stay. Pure: no I/O, and times are given to it.

The same calls in the same order make the same history, to the byte, also when it was saved and restored in
between: so those who follow the owner of a job need its calls only.

Times are milliseconds since 1970 by the training clock, and corrected only when they are read: so the same
point is known again wherever it comes from, and what is learnt of the clock holds for all of them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from visibility_api.reports.document import Point, Progress
from visibility_api.reports.fields import MAX_INTEGER

from .attempt import MAX_SERIES, NO_STEP, UNREADABLE, Attempt, Row

ROOM_BYTES = 15 * 1024  # of one job
MAX_SAVED_BYTES = 1024 * 1024  # of one that is read, uncompressed
MAX_ATTEMPTS = 10
MAX_NAME_CHARACTERS = 2048  # of all metrics of one report
SAME_MS = 2.0  # times of one point differ by no more: they are rounded, and given as ages

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
        reported_ms = _milliseconds(report.timestamp or reported_at)
        if is_clock_set and kept.rows:
            kept.shift_ms = _milliseconds(reported_at) + kept.ahead_ms - reported_ms
        elif not kept.shift_ms:
            kept.ahead_ms = round(ahead_s * 1000)
        at_ms = reported_ms + kept.shift_ms
        rows: list[Row] = []
        last_ms, last_step = kept.last_ms, kept.last_step
        for point in points:
            point_ms = float(_milliseconds(point.timestamp) + kept.shift_ms)
            step = NO_STEP if point.step is None else float(point.step)
            later_ms = point_ms - last_ms
            if (later_ms > SAME_MS or (step > last_step and later_ms >= -SAME_MS)) and point_ms <= at_ms:
                _put(rows, max(point_ms, last_ms), step, point.epoch, point.metrics)
                if rows:
                    last_ms, last_step = rows[-1][0], rows[-1][1]
        kept.extend(rows)
        step = NO_STEP if report.step is None else float(report.step)
        metrics = report.metrics
        is_again = abs(at_ms - kept.last_ms) <= SAME_MS and step == kept.last_step
        if is_again:
            metrics = tuple([each for each in metrics if not kept.has_last(each[0])])
        if metrics or not is_again:
            rows = []
            _put(rows, max(float(at_ms), kept.last_ms), step, report.epoch, metrics)
            kept.extend(rows)
        self._bound()  # once: to make room for each point by itself would take ten times as long

    def _begin(self, key: str) -> Attempt:
        begun = Attempt(key=key, number=self._count)
        self._count += 1
        self._attempts.append(begun)
        self._bound()
        return begun

    def _bound(self) -> None:
        """Make room: thin the largest attempt, and when that is of no more use, drop the shortest."""
        attempts = self._attempts
        while len(attempts) > MAX_ATTEMPTS:
            self._drop()
        least: set[int] = set()  # numbers of those that cannot be made smaller
        while (over_bytes := sum([each.size_bytes() for each in attempts]) - ROOM_BYTES) > 0:
            larger = [each for each in attempts if each.number not in least]
            if larger:
                largest = max(larger, key=Attempt.size_bytes)
                if not largest.shrink(over_bytes):
                    least.add(largest.number)
            elif len(attempts) > 1:
                self._drop()
            else:
                attempts[0].drop_series((len(attempts[0].series) - 1) * 3 // 4)

    def _drop(self) -> None:
        """Of the attempts that have ended the shortest, the oldest of equals."""
        self._attempts.remove(min(self._attempts[:-1], key=lambda each: each.rows))

    def save(self) -> bytes:
        """All of it, for `restore`."""
        return zlib.compress(_encode(_Saved(self._attempts, self._count)), 1)


def restore(saved: bytes) -> JobHistory | None:
    """What `save` returned; None for anything else."""
    try:
        found = _decode(zlib.decompressobj().decompress(saved, MAX_SAVED_BYTES))
    except (*UNREADABLE, zlib.error):
        return None
    if found.count > MAX_INTEGER or not all(map(Attempt.is_possible, found.attempts)):
        return None
    history = JobHistory()
    history._attempts, history._count = found.attempts, found.count
    return history


def _put(
    rows: list[Row], at_ms: float, step: float, epoch: float | None, metrics: Sequence[tuple[str, str]]
) -> None:
    found = _numbers(metrics)
    if found or step != NO_STEP or epoch is not None:
        rows.append((at_ms, step, math.nan if epoch is None else epoch, found))


def _numbers(metrics: Sequence[tuple[str, str]]) -> dict[str, float]:
    """The values of those that have one: a metric may be any text. As many as there is room for."""
    names = [name for name, _ in metrics]
    if len(names) <= MAX_SERIES and sum(map(len, names)) <= MAX_NAME_CHARACTERS and "" not in names:
        try:  # as nearly always; there may be 2,048 values
            return {name: float(text) for name, text in metrics}
        except ValueError:
            pass
    found: dict[str, float] = {}
    characters = 0
    for name, text in metrics:
        try:
            value = float(text)
        except ValueError:
            continue
        characters += len(name)
        if len(found) == MAX_SERIES or characters > MAX_NAME_CHARACTERS:
            break
        if name:
            found[name] = value
    return found


def _milliseconds(moment: datetime) -> int:
    return round((moment - _EPOCH) / _MILLISECOND)
