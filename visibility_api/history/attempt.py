"""One attempt of a job as its history keeps it: a series of points for its progress, and one for each metric.

A series is bytes, which are as small as a list of numbers can be here: of each point its time, the step and
the value, as doubles. When there is no more room a series is thinned. Pure: times are given to it.
"""

from __future__ import annotations

import math
import struct
import sys
from collections import defaultdict
from collections.abc import Sequence
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
# What was measured at one time: milliseconds, step or NO_STEP, epoch or NaN, and by metric its value.
Row = tuple[float, float, float, dict[str, float]]

_POINT = struct.Struct("<3d")
_NUMBER_BYTES = _POINT.size / 3


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

    def extend(self, rows: Sequence[Row]) -> None:
        """Add what was measured, each row no earlier than the one before it."""
        if not rows:
            return
        added: defaultdict[str, list[bytes]] = defaultdict(list)
        for at_ms, step, epoch, metrics in rows:
            added[PROGRESS].append(_POINT.pack(at_ms, step, epoch))
            for name, value in metrics.items():
                added[name].append(_POINT.pack(at_ms, step, value))
        self.first_ms = min(self.first_ms, rows[0][0])
        self.last_ms, self.last_step, *_ = rows[-1]
        self.rows += len(rows)
        for name, points in added.items():
            held = self.series.get(name)
            if held is None:
                name, held = sys.intern(name), b""
            self.series[name] = b"".join((held, *points))

    def points(self, name: str) -> list[Point]:
        """The points of a series, in the order of their times; none if any is not such as we write."""
        numbers = self._numbers(name)
        return [*zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)]

    def _numbers(self, name: str) -> Sequence[float]:
        """The same, one after another: time, step, value, time …"""
        data = self.series.get(name, b"")
        count, rest = divmod(len(data), _POINT.size)
        if rest or not count:
            return ()
        numbers: Sequence[float] = struct.unpack(f"<{3 * count}d", data)
        steps = numbers[1::3]
        is_finite = math.isfinite(sum(numbers[::3]) + sum(steps))
        return numbers if is_finite and min(steps) >= NO_STEP and max(steps) <= MAX_INTEGER else ()

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
        series = {name: self._numbers(name) for name in self.series}  # once: there may be thousands
        thinned = dict(series)
        is_enough = self._thin_to(most / _NUMBER_BYTES, thinned)
        for name, numbers in thinned.items():
            if numbers is not series[name] or not numbers:
                self.series[name] = _pack(numbers)
        return is_enough

    def _thin_to(self, most: float, series: dict[str, Sequence[float]]) -> bool:
        """Thin them to so many numbers of all; False when they are as thin as can be, by then."""
        span_ms = self.last_ms - self.first_ms
        left = sum(map(len, series.values()))
        while True:
            before = left
            if self.width_ms:
                for name, numbers in series.items():
                    series[name] = self._thin(name, numbers)
                left = sum(map(len, series.values()))
            if left <= most:
                return True
            if self.width_ms > span_ms + 1 and left == before:
                return False
            if self.width_ms:
                self.width_ms *= WIDER ** (2 if left > 2 * most else 1)
            else:
                longest = max(map(len, series.values())) // 3
                self.width_ms = max(1.0, 2 * span_ms / longest)

    def drop_series(self, most: int) -> None:
        """Keep so many metrics: those with the most points, of equals those with the latest one."""
        names = [name for name in self.series if name != PROGRESS]
        names.sort(key=lambda name: (len(self.series[name]), self._last(name)))
        for name in names[: len(names) - most]:
            del self.series[name]

    def _thin(self, name: str, numbers: Sequence[float]) -> Sequence[float]:
        """What `thin` leaves of each interval, and the latest points."""
        times_ms, values = numbers[::3], numbers[2::3]
        if name == PROGRESS and any(step != NO_STEP for step in numbers[1::3]):
            values = numbers[1::3]
        older = len(values) - len(values) // WHOLE_SHARE  # of the latest each is an interval of its own
        began, width = self.first_ms, self.width_ms
        places = [(at_ms - began) // width for at_ms in times_ms[:older]]
        edges = [0, *[index for index, (one, other) in enumerate(pairwise(places), 1) if one != other], older]
        kept = thin(values, pairwise(edges))
        if len(kept) == len(values):
            return numbers
        return [number for each in kept for number in numbers[3 * each : 3 * each + 3]]


def _pack(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)
