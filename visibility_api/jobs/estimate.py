"""How fast a run moves and when it will end, from what was seen of it in this attempt.

docs/document.md has the rule, which is that of the training side, and tests/vectors/estimates.json examples:
one rate, of the later intervals between reports, without start-up and without a pause that came only once.
Uses only differences of the training process's own clock: one that is an hour off changes nothing. A run that
is resumed at step k is not credited with the steps before.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from visibility_api.reports.document import Progress

STARTED_S = 2.0  # a first report that follows the start of its run so soon was written before any step
MAX_SAMPLES = 24  # evenly spread over the attempt; remembered, eight bytes each
LATER_SHARE = 2 / 3  # of the intervals, from which the rate is taken
LATER_LEAST = 8  # intervals, or all if there are fewer
CLEARLY = 2.5  # standard errors by which two halves of these differ if the rate changes
GOES_ON = 0.1  # of the time a unit takes, at most: so much further does such a change lead
LEAST_SPREAD = 0.04  # of what is left: no run is steadier than that
FUTURE_SPREAD = 0.3  # of the share of the run that is still to come: what it may do that was not seen yet
MOST_SPREAD = 0.9

_Interval = tuple[float, float]  # from one sample to the next: units, seconds
_Sample = tuple[float, float]  # seconds and units since the first report

_FORM = struct.Struct("<2f")
_SIZE = _FORM.size
_pack, _unpack, _unpack_one = _FORM.pack, _FORM.iter_unpack, _FORM.unpack_from
_FIRST = _pack(0.0, 0.0)


class Forecast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the intervals of an attempt say of the rest of it."""

    unit_s: float  # seconds a unit takes, pauses that came again included
    pause_s: float  # seconds a unit of the pause that came once; 0 if there was none
    seen: float  # units from which all this is known
    spread: float  # how far parts of them are from `unit_s`, as a share of it

    def left_s(self, left: float) -> tuple[float, float, float]:
        """Seconds that `left` units take: likely, at least and at most."""
        spread = min(MOST_SPREAD, self.spread + FUTURE_SPREAD * left / (left + self.seen))
        likely_s = left * self.unit_s
        return likely_s, likely_s * (1 - spread), left * (self.unit_s + self.pause_s) * (1 + spread)


class Pace(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The speed of one attempt, by its reports. Start with `Pace()`, then `advance`."""

    position: float | None = None  # steps, else percent, else epochs done, at `at`
    unit: str = ""  # which of the three `position` is
    at: datetime | None = None  # training clock, of the last report that moved
    per_second: float | None = None  # units a second, pauses included; None until two reports moved
    longest_gap_s: float = 0.0  # between two reports that moved: evaluation and checkpoints, not start-up
    origin: datetime | None = None  # training clock, of the first report
    base: float = 0.0  # position at the first report
    base_epoch: float | None = None  # epochs done when they were first reported
    samples: bytes = b""  # pairs of float32, see `_Sample`; from the first steps on, start-up is before them
    spacing_s: float = 0.0  # between two samples at least
    forecast: Forecast | None = None  # what follows from the samples; None until there are enough

    def advance(self, report: Progress, *, waited_s: float = math.inf, is_next: bool = True) -> Pace:
        """The pace after one more report. `waited_s`: by our clock it took no longer since the one that moved
        last. `is_next`: no report between the two was missed, as far as is known."""
        unit, position = _position(report)
        at = report.timestamp
        if position is None or at is None:
            return self
        if self.position is None or self.at is None or unit != self.unit or position < self.position:
            # First report, or a restart from a checkpoint: measure anew.
            is_start = self.position is not None or _is_start(report, position)
            return Pace(
                position=position,
                unit=unit,
                at=at,
                longest_gap_s=self.longest_gap_s,
                origin=at,
                base=position,
                base_epoch=report.epoch,
                samples=b"" if is_start else _FIRST,
            )
        if position == self.position:
            return self
        elapsed_s = (at - self.at).total_seconds()
        if elapsed_s == 0:  # no rate comes of it, but it moves
            return replace(self, position=position)
        if not 0 < elapsed_s <= waited_s or self.origin is None:
            # The clock was set: measure anew from there.
            return Pace(
                position=position,
                unit=unit,
                at=at,
                per_second=self.per_second,
                longest_gap_s=self.longest_gap_s,
                origin=at,
                base=position,
                base_epoch=self.base_epoch,
                samples=_FIRST,
                spacing_s=self.spacing_s,
            )
        rate = (position - self.position) / elapsed_s
        # Else the run may have moved all the time: that was no pause of its own unless it came far less far.
        is_gap = is_next or self.per_second is None or rate < self.per_second / 2
        is_gap = is_gap and self.samples != b""  # start-up comes once: it is no pause
        longest_gap_s = max(self.longest_gap_s, elapsed_s) if is_gap else self.longest_gap_s
        at_s, spacing_s, samples = (at - self.origin).total_seconds(), self.spacing_s, self.samples
        if samples and at_s - _unpack_one(samples, len(samples) - _SIZE)[0] < spacing_s:
            return replace(self, position=position, at=at, longest_gap_s=longest_gap_s)
        samples += _pack(at_s, position - self.base)
        if len(samples) > MAX_SAMPLES * _SIZE:
            kept = list(_unpack(samples))
            kept = [kept[0], *kept[2::2]]
            spacing_s = (at_s - kept[0][0]) / len(kept)
            samples = b"".join([_pack(*sample) for sample in kept])
        forecast = measure(list(_unpack(samples)))
        return replace(
            self,
            position=position,
            at=at,
            per_second=1 / forecast.unit_s if forecast is not None else self.per_second or rate,
            longest_gap_s=longest_gap_s,
            base_epoch=self.base_epoch if self.base_epoch is not None else report.epoch,
            samples=samples,
            spacing_s=spacing_s,
            forecast=forecast,
        )

    @property
    def start_up_s(self) -> float:
        """Seconds until its first steps were seen; 0 if it was first seen later."""
        return float(_unpack_one(self.samples)[0]) if self.samples else 0.0

    def steps_per_s(self) -> float | None:
        return self.per_second if self.unit == "steps" else None

    def remaining_s(self, report: Progress) -> float | None:
        """Seconds from `report` to the end, the likeliest; None while that is not known."""
        return found[0] if (found := self.left_s(report)) is not None else None

    def left_s(self, report: Progress) -> tuple[float, float | None, float | None] | None:
        """Seconds from `report` to the end: the likeliest, and the range in which they should lie if it is
        known. The report's own estimate counts until there is a forecast; of start-up alone there is none.

        Ours comes first: after a resume clients divide the time of this attempt by the steps of all attempts.
        """
        position, end = self.position, self.end(report)
        if self.forecast is not None and position is not None and end is not None:
            return self.forecast.left_s(max(0.0, end - position))
        if report.remaining_s is not None:
            return float(report.remaining_s), None, None
        was_seen_later = self.samples.startswith(_FIRST)
        if position is None or end is None or not self.per_second or not was_seen_later:
            return None
        return max(0.0, end - position) / self.per_second, None, None

    def end(self, report: Progress) -> float | None:
        """The position at which the run is done, in the unit of this pace."""
        unit = self.unit
        return report.total_steps if unit == "steps" else 100 if unit == "percent" else report.total_epochs


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


def percentage(report: Progress) -> int | None:
    """Whole percent done: as reported, else of steps, else of epochs; rounded down, so 100 means all."""
    if report.progress_percentage is not None:
        return report.progress_percentage
    for done, total in ((report.step, report.total_steps), (report.epoch, report.total_epochs)):
        if done is not None and total:
            return min(100, math.floor(100 * done / total))
    return None


def _is_start(report: Progress, position: float) -> bool:
    """Whether a run says in its first report that it has only just begun: the first steps are yet to come."""
    if position == 0:
        return True
    return (
        report.started_at is not None
        and report.timestamp is not None
        and (report.timestamp - report.started_at).total_seconds() < STARTED_S
    )


def _position(report: Progress) -> tuple[str, float | None]:
    if report.step is not None:
        return "steps", float(report.step)
    if report.progress_percentage is not None:
        return "percent", float(report.progress_percentage)
    return "epochs", report.epoch


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
    mean_s = _unit_s(intervals)
    units = deviation_s = 0.0
    for some_units, some_seconds in intervals:
        units += some_units
        deviation_s += abs(some_seconds - mean_s * some_units)
    return mean_s, 1.25 * deviation_s / units / math.sqrt(len(intervals))


def _unit_s(intervals: Sequence[_Interval]) -> float:
    """Seconds a unit."""
    units = seconds = 0.0
    for some_units, some_seconds in intervals:
        units += some_units
        seconds += some_seconds
    return seconds / units


def _spread(intervals: Sequence[_Interval], unit_s: float) -> float:
    """How far from `unit_s` the quarters of what was seen are, as a share of it."""
    count = len(intervals)
    parts = min(4, count)
    quarters = [intervals[part * count // parts : (part + 1) * count // parts] for part in range(parts)]
    worst = max([abs(_unit_s(quarter) / unit_s - 1) for quarter in quarters])
    return LEAST_SPREAD + 0.5 * worst + 0.2 / count
