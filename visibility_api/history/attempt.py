"""One attempt of a job as its history keeps it: a series of points for its progress, and one for each metric.

A series is bytes, which are as small as a list of numbers can be here: of each point its time, the step and
the value, as doubles. When there is no more room a series is thinned. Pure: times are given to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from visibility_api.reports.fields import MAX_INTEGER

from .thinning import thin

ATTEMPT_BYTES, SERIES_BYTES = 256, 64  # what one costs beside its points
MAX_SERIES = 64  # metrics of one attempt
WHOLE_SHARE = 3  # a third of the points of a series, the latest, is not thinned
WIDER = 1.5  # times as wide are the intervals that are thinned next
PROGRESS = ""  # the name of the series that has the epochs; no metric has it
NO_STEP = -1.0  # where no step was reported

# What msgspec raises for bytes that are not as expected, text that is no UTF-8 and too deep nesting included.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Point = tuple[
    float, float, float
]  # milliseconds (training clock), step or NO_STEP, value; of epochs NaN: none

_POINT = struct.Struct("<3d")


class Attempt(msgspec.Struct, array_like=True, gc=False):
    """One attempt as it is kept. The order of the fields is part of the stored form."""

    key: str  # Rank0.attempt
    number: int  # 0 is the job's first
    ahead_ms: int = 0  # how far the training clock is ahead of ours
    shift_ms: int = 0  # added to its times since it was set
    rows: int = 0  # reports and points that were added
    first_ms: float = math.inf
    last_ms: float = -math.inf
    last_step: float = NO_STEP
    width_ms: float = 0.0  # of the intervals that are thinned; 0: all is there yet
    series: dict[str, bytes] = {}

    def append(self, at_ms: float, step: float, epoch: float | None, metrics: dict[str, float]) -> None:
        """Add what was measured at one time, which is no earlier than the last one."""
        series = self.series
        series[PROGRESS] = series.get(PROGRESS, b"") + _POINT.pack(
            at_ms, step, math.nan if epoch is None else epoch
        )
        for name, value in metrics.items():
            series[name] = series.get(name, b"") + _POINT.pack(at_ms, step, value)
        self.rows += 1
        self.first_ms = min(self.first_ms, at_ms)
        self.last_ms, self.last_step = at_ms, step

    def points(self, name: str) -> list[Point]:
        """The points of a series, in the order of their times; none if any is not such as we write."""
        try:
            points: list[Point] = list(_POINT.iter_unpack(self.series.get(name, b"")))
        except struct.error:
            return []
        for at_ms, step, _ in points:
            if not (math.isfinite(at_ms) and NO_STEP <= step <= MAX_INTEGER):
                return []
        return points

    def has_last(self, name: str) -> bool:
        """Whether the metric was measured at the last time and step."""
        return self._last(name) == (self.last_ms, self.last_step)

    def _last(self, name: str) -> tuple[float, float]:
        """Time and step of the last point of a series."""
        data = self.series.get(name, b"")
        return _POINT.unpack(data[-_POINT.size :])[:2] if len(data) >= _POINT.size else (-math.inf, NO_STEP)

    def size_bytes(self) -> int:
        return ATTEMPT_BYTES + sum(
            [SERIES_BYTES + len(name) + len(data) for name, data in self.series.items()]
        )

    def is_possible(self) -> bool:
        """Whether its numbers are such as we write; of its series `points` finds out."""
        whole = (self.number, self.ahead_ms, self.shift_ms, self.rows)
        return (
            all(abs(each) <= MAX_INTEGER for each in whole)
            and all(map(math.isfinite, (self.last_step, self.width_ms)))
            and not math.isnan(self.first_ms + self.last_ms if self.rows else 0.0)
        )

    # --- bounds

    def shrink(self, by_bytes: int = 0) -> bool:
        """Thin it to three quarters of its points, and by so many bytes; False when it is as thin as can be,
        by then."""
        held = sum(map(len, self.series.values()))
        if not held:  # it has just begun
            return False
        most = min(held * 3 // 4, max(held // 8, held - by_bytes))
        if len(self.series) > MAX_SERIES + 1:
            self.drop_series(MAX_SERIES)
        span_ms = self.last_ms - self.first_ms
        while True:
            before = sum(map(len, self.series.values()))
            if self.width_ms:
                self._thin()
            left = sum(map(len, self.series.values()))
            if left <= most:
                return True
            if self.width_ms > span_ms + 1 and left == before:
                return False
            if self.width_ms:
                self.width_ms *= WIDER ** (2 if left > 2 * most else 1)
            else:
                longest = max(map(len, self.series.values())) // _POINT.size
                self.width_ms = max(1.0, 2 * span_ms / longest)

    def drop_series(self, most: int) -> None:
        """Keep so many metrics: those with the most points, of equals those with the latest one."""
        names = [name for name in self.series if name != PROGRESS]
        names.sort(key=lambda name: (len(self.series[name]), self._last(name)))
        for name in names[: len(names) - most]:
            del self.series[name]

    def _thin(self) -> None:
        """Leave of each interval but the latest points what `thin` leaves."""
        for name in self.series:
            points = self.points(name)
            if not points:
                self.series[name] = b""
                continue
            values = [value for _, _, value in points]
            if name == PROGRESS and any(step != NO_STEP for _, step, _ in points):
                values = [step for _, step, _ in points]
            kept = thin(values, pairwise(self._edges(points)))
            if len(kept) < len(points):
                self.series[name] = b"".join([_POINT.pack(*points[each]) for each in kept])

    def _edges(self, points: list[Point]) -> Iterator[int]:
        """Where the intervals of a series begin, and the end. Of the latest points each is one of its own."""
        began, width, current = self.first_ms, self.width_ms, -1.0
        older = len(points) - len(points) // WHOLE_SHARE
        for index in range(older):
            number = (points[index][0] - began) // width
            if number != current:
                yield index
                current = number
        yield from range(older, len(points) + 1)
