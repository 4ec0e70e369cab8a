"""How long a unit of a run takes, from samples of where it was when: the rule in docs/document.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

LATER_SHARE = 2 / 3  # of the intervals, from which the rate is taken
LATER_LEAST = 8  # intervals, or all if there are fewer
CLEARLY = 2.5  # standard errors by which two halves of these differ if the rate changes
GOES_ON = 0.1  # of the time a unit takes, at most: so much further does such a change lead
LEAST_SPREAD = 0.04  # of what is left: no run is steadier than that
# Of the share of the run that is still to come: what it may do that was not seen yet. That costs time, such
# as an evaluation, more often than it saves any.
FUTURE_LESS, FUTURE_MORE = 0.3, 0.42
MOST_SPREAD = 0.9

_Interval = tuple[float, float]  # from one sample to the next: units, seconds
_Sample = tuple[float, float]  # seconds and units since the first report


class Forecast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the intervals of an attempt say of the rest of it."""

    unit_s: float  # seconds a unit takes, pauses that came again included
    pause_s: float  # seconds a unit of the pause that came once; 0 if there was none
    seen: float  # units from which all this is known
    spread: float  # how far parts of them are from `unit_s`, as a share of it

    def left_s(self, left: float) -> tuple[float, float, float]:
        """Seconds that `left` units take: likely, at least and at most."""
        future, likely_s = left / (left + self.seen), left * self.unit_s
        less = min(MOST_SPREAD, self.spread + FUTURE_LESS * future)
        more = min(MOST_SPREAD, self.spread + FUTURE_MORE * future)
        return likely_s, likely_s * (1 - less), left * (self.unit_s + self.pause_s) * (1 + more)


def measure(samples: Sequence[_Sample]) -> Forecast | None:
    """What follows from the samples of one attempt; None while that is too little."""
    intervals: list[_Interval] = []
    before_s, before = samples[0] if samples else (0.0, 0.0)
    for at_s, position in samples[1:]:
        if position > before and at_s > before_s:  # as float32 two may be equal
            intervals.append((position - before, at_s - before_s))
            before_s, before = at_s, position
    if len(intervals) < 2:  # one alone may be a second compilation, or contain an evaluation
        return None
    # The slowest counts as the second slowest: a pause comes again, or it is none that a rate should show.
    slow_s = sorted([seconds / units for units, seconds in intervals])[-2]
    steady = [(units, min(seconds, slow_s * units)) for units, seconds in intervals]
    seen = samples[-1][1]
    pause_s = sum([seconds for _, seconds in intervals]) - sum([seconds for _, seconds in steady])
    unit_s = _last_unit_s(steady[-max(LATER_LEAST, int(LATER_SHARE * len(steady))) :])
    return Forecast(unit_s, pause_s / seen, seen, _spread(steady, unit_s))


def _last_unit_s(intervals: Sequence[_Interval]) -> float:
    """Seconds a unit at their end: their mean, or where their halves clearly differ that of the later half,
    and the difference once more, for such a change goes on."""
    half = len(intervals) // 2
    if half >= 2:
        earlier_s, earlier_error_s = _mean(intervals[:half])
        later_s, later_error_s = _mean(intervals[half:])
        by_s = later_s - earlier_s
        if abs(by_s) > CLEARLY * math.hypot(earlier_error_s, later_error_s):
            most_s = GOES_ON * later_s
            return later_s + max(-most_s, min(most_s, by_s))
    return _unit_s(intervals)


def _mean(intervals: Sequence[_Interval]) -> tuple[float, float]:
    """Seconds a unit, and the standard error of that, by the mean deviation."""
    units, seconds = map(sum, zip(*intervals, strict=True))
    mean_s = seconds / units
    deviation_s = sum([abs(some_s - mean_s * some) for some, some_s in intervals])
    return mean_s, 1.25 * deviation_s / units / math.sqrt(len(intervals))


def _unit_s(intervals: Sequence[_Interval]) -> float:
    """Seconds a unit."""
    units, seconds = map(sum, zip(*intervals, strict=True))
    return seconds / units


def _spread(intervals: Sequence[_Interval], unit_s: float) -> float:
    """How far from `unit_s` the quarters of what was seen are, as a share of it."""
    count = len(intervals)
    parts = min(4, count)
    quarters = [intervals[part * count // parts : (part + 1) * count // parts] for part in range(parts)]
    worst = max([abs(_unit_s(quarter) / unit_s - 1) for quarter in quarters])
    return LEAST_SPREAD + 0.5 * worst + 0.2 / count
