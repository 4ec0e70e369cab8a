"""How fast a run moves and when it will end, from what was seen of it in this attempt.

docs/document.md has the rule, which is that of the training side, and tests/vectors/estimates.json examples:
start-up is left out, the recent rate is robust, and pauses (evaluations, checkpoints) are apart. Uses only
differences of the training process's own clock, so a clock that is an hour off changes nothing, and a run
resumed at step k is not credited with steps it did not take here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from visibility_api.reports.document import Progress

STARTED_S = 2.0  # a first report that follows the start of its run so soon was written before any step
MAX_SAMPLES = 24  # evenly spread over the attempt; remembered, eight bytes each
PAUSE_FACTOR = 3.0  # a stretch that takes this many times as long a unit as others contains a pause
CLEARLY = 8.0  # times as far above the median as the upper quartile is: so does one that stands alone…
CLEARLY_AT_LEAST = 0.05  # …and is above the median by this share
RECENT = 8  # stretches at least that the rate is taken from; else the later half
SINGLE_SHARE = 0.125  # of a pause that came once: it comes again, or never
SINGLE_AT_MOST = 1.0  # times a unit: what a pause that came once counts for
SINGLE_FORGOTTEN = 1.5  # after as many times the way to a single pause, it comes no more
TREND_SHARE = 0.5  # of a rate's steady change, as far ahead as it was seen: trends wear off
TREND_LOW, TREND_HIGH = -0.3, 0.4  # of the time of a unit: what a trend may add at most
TREND_SO_FAR = 0.5  # the same of what it has added since the middle of what the rate is taken from
LASTING = 10  # so many stretches in a row, all slower or all faster than forecast, show that the rate changed
LASTING_BY = 0.01  # …by this share at least
LASTING_SPACING = 0.25  # of the time between two samples: a shorter stretch says nothing of its own
LEAST_SPREAD = 0.04  # of what is left: no run is steadier than that
FUTURE_SPREAD = 0.22  # of the share of the run that is still to come: what it may do that was not seen yet
PAUSES_SPREAD = 0.12  # the same, later only: pauses of which none has come twice yet
MOST_SPREAD = 0.9

_Stretch = tuple[float, float, float]  # from one sample to the next: position at its end, units, seconds
_Sample = tuple[float, float]  # seconds since the first, units since the first

_FORM = struct.Struct("<2f")
_SIZE = _FORM.size
_pack, _unpack, _unpack_one = _FORM.pack, _FORM.iter_unpack, _FORM.unpack_from
_ZERO = _pack(0.0, 0.0)


class Forecast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the stretches of an attempt say of the rest of it."""

    steady_s: float  # seconds a unit, of late, without pauses
    pause_s: float  # seconds a unit of pauses that come again
    single_s: float  # seconds a unit of pauses that came once
    trend_s: float  # by how much `steady_s` grows with each unit; 0 unless it clearly does
    reach: float  # units over which the trend was seen
    seen: float  # units of which all this is known
    spread: float  # how far parts of them are from this, as a share
    slack_s: float  # seconds of the longest pause that comes again: one more or less of them

    def left_s(self, left: float) -> tuple[float, float, float]:
        """Seconds that `left` units take: likely, and the range in which that should lie."""
        unit_s = low_s = high_s = self.steady_s + self.pause_s
        if self.single_s:
            single_s = min(self.single_s, unit_s * SINGLE_AT_MOST)
            unit_s, high_s = unit_s + SINGLE_SHARE * single_s, high_s + self.single_s
        if self.trend_s:
            trend_s = TREND_SHARE * self.trend_s * min(left / 2, self.reach)
            trend_s = max(TREND_LOW * self.steady_s, min(TREND_HIGH * self.steady_s, trend_s))
            unit_s += trend_s
            low_s, high_s = low_s + min(0.0, 2 * trend_s), high_s + max(0.0, 2 * trend_s)
        ahead = left / (left + self.seen)
        spread = min(MOST_SPREAD, self.spread + FUTURE_SPREAD * ahead)
        likely_s = left * unit_s
        low_s = left * low_s * (1 - spread) - self.slack_s
        pauses = 0.0 if self.slack_s else PAUSES_SPREAD * ahead
        high_s = left * high_s * (1 + spread + pauses) + self.slack_s
        return likely_s, max(0.0, min(low_s, likely_s)), max(high_s, likely_s)


class Pace(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The speed of one attempt, by its reports. Start with `Pace()`, then `advance`."""

    position: float | None = None  # steps, else percent, else epochs done, at `at`
    unit: str = ""  # which of the three `position` is
    at: datetime | None = None  # training clock, of the last report that moved
    per_second: float | None = None  # units a second, pauses included; None until two reports moved
    longest_gap_s: float = 0.0  # between two reports that moved: evaluation and checkpoints, not start-up
    origin: datetime | None = None  # training clock, of the first sample
    base: float = 0.0  # position at the first sample
    base_epoch: float | None = None  # epochs done when they were first reported
    samples: bytes = b""  # of the attempt: pairs of float32, seconds and units since the first one
    spacing_s: float = 0.0  # between two samples at least
    forecast: Forecast | None = None  # what follows from the samples; None until there are enough
    # Where the last stretch ended, and where those began that are all slower, or all faster, than forecast,
    # as `samples`; empty before there is a forecast. How many they are; of faster ones less than 0.
    lately: bytes = b""
    lasting: int = 0

    def advance(self, report: Progress, *, waited_s: float = math.inf, is_next: bool = True) -> Pace:
        """The pace after one more report. `waited_s`: by our clock it took no longer since the one that moved
        last. `is_next`: no report between the two was missed, as far as is known."""
        unit, position = _position(report)
        at = report.timestamp
        if position is None or at is None:
            return self
        if self.position is None or self.at is None or unit != self.unit or position < self.position:
            # First report, or a restart from a checkpoint: measure anew.
            return Pace(
                position=position,
                unit=unit,
                at=at,
                longest_gap_s=self.longest_gap_s,
                origin=at,
                base=position,
                base_epoch=report.epoch,
                samples=_ZERO if self.position is not None or _is_start(report, position) else _ZERO * 2,
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
                samples=_ZERO * 2,
                spacing_s=self.spacing_s,
            )
        rate = (position - self.position) / elapsed_s
        # Else the run may have moved all the time: that was no pause of its own unless it came far less far.
        is_gap = is_next or self.per_second is None or rate < self.per_second / 2
        is_gap = is_gap and len(self.samples) > _SIZE  # start-up comes once: it is no pause
        longest_gap_s = max(self.longest_gap_s, elapsed_s) if is_gap else self.longest_gap_s
        at_s, spacing_s = (at - self.origin).total_seconds(), self.spacing_s
        lately, lasting, forecast = self.lately, self.lasting, self.forecast
        if forecast is not None:
            now = at_s, position - self.base
            lately, lasting = _compare(lately, lasting, now, forecast.steady_s, spacing_s)
        if at_s - _unpack_one(self.samples, len(self.samples) - _SIZE)[0] < spacing_s:
            if lately is self.lately:
                return replace(self, position=position, at=at, longest_gap_s=longest_gap_s)
            return replace(
                self,
                position=position,
                at=at,
                per_second=_per_second(forecast, lately, lasting) or self.per_second,
                longest_gap_s=longest_gap_s,
                lately=lately,
                lasting=lasting,
            )
        packed = self.samples + _pack(at_s, position - self.base)
        samples = list(_unpack(packed))
        if len(samples) > MAX_SAMPLES:
            samples = [*samples[:2], *samples[3::2]]  # the start and the first steps stay apart
            spacing_s = (at_s - samples[1][0]) / len(samples)
            packed = b"".join([_pack(*sample) for sample in samples])
        forecast = measure(samples)
        return replace(
            self,
            position=position,
            at=at,
            per_second=_per_second(forecast, lately, lasting) or self.per_second or rate,
            longest_gap_s=longest_gap_s,
            base_epoch=self.base_epoch if self.base_epoch is not None else report.epoch,
            samples=packed,
            spacing_s=spacing_s,
            forecast=forecast,
            lately=lately,
            lasting=lasting,
        )

    @property
    def start_up_s(self) -> float:
        """Seconds until its first steps were seen; 0 if it was first seen later."""
        return float(_unpack_one(self.samples, _SIZE)[0]) if len(self.samples) > _SIZE else 0.0

    def without_forecast(self) -> Pace:
        """As it is remembered: the forecast follows from the rest."""
        return self if self.forecast is None else replace(self, forecast=None)

    def with_forecast(self) -> Pace:
        return replace(self, forecast=measure(list(_unpack(self.samples))))

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
        forecast, position, end = self.forecast, self.position, self.end(report)
        if forecast is not None and position is not None and end is not None:
            left = max(0.0, end - position)
            likely_s, least_s, most_s = forecast.left_s(left)
            if (unit_s := _changed_s(self.lately, self.lasting, forecast.steady_s)) is not None:
                # It lasts, or what was before comes back: either may be.
                likely_s, low_s, high_s = replace(forecast, steady_s=unit_s).left_s(left)
                least_s, most_s = min(least_s, low_s), max(most_s, high_s)
            return likely_s, least_s, most_s
        if report.remaining_s is not None:
            return float(report.remaining_s), None, None
        if position is None or end is None or not self.per_second or self.samples[8:16] != _ZERO:
            return None
        return max(0.0, end - position) / self.per_second, None, None

    def end(self, report: Progress) -> float | None:
        """The position at which the run is done, in the unit of this pace."""
        unit = self.unit
        return report.total_steps if unit == "steps" else 100 if unit == "percent" else report.total_epochs


def _compare(
    lately: bytes, lasting: int, now: _Sample, steady_s: float, spacing_s: float
) -> tuple[bytes, int]:
    """`Pace.lately` and `Pace.lasting` after one more report. `steady_s`: seconds a unit, as forecast."""
    at_s, units = now
    if not lately:
        return _pack(at_s, units) * 2, 0
    (last_s, last), (from_s, first) = _unpack(lately)
    stretch_s, stretch = at_s - last_s, units - last
    if stretch_s <= 0 or stretch <= 0 or stretch_s < LASTING_SPACING * spacing_s:
        return lately, lasting
    by = stretch_s / (stretch * steady_s) - 1
    if by > PAUSE_FACTOR - 1:  # it contains a pause, which says nothing of the rate
        from_s += stretch_s - stretch * steady_s
    elif abs(by) < LASTING_BY:
        from_s, first, lasting = at_s, units, 0
    elif by > 0:
        if lasting <= 0:
            from_s, first, lasting = last_s, last, 0
        lasting += 1
    else:
        if lasting >= 0:
            from_s, first, lasting = last_s, last, 0
        lasting -= 1
    return _pack(at_s, units) + _pack(from_s, first), lasting


def _changed_s(lately: bytes, lasting: int, steady_s: float) -> float | None:
    """Seconds a unit since the rate has clearly changed; None unless it has, or if the forecast has that."""
    if abs(lasting) < LASTING:
        return None
    (last_s, last), (from_s, first) = _unpack(lately)
    if last_s <= from_s or last <= first:
        return None
    unit_s = (last_s - from_s) / (last - first)
    return unit_s if (unit_s > steady_s) == (lasting > 0) else None


def _per_second(forecast: Forecast | None, lately: bytes, lasting: int) -> float | None:
    """Units a second, pauses included; None without a forecast."""
    if forecast is None:
        return None
    return 1 / ((_changed_s(lately, lasting, forecast.steady_s) or forecast.steady_s) + forecast.pause_s)


def measure(samples: Sequence[_Sample]) -> Forecast | None:
    """What follows from (seconds, position) of one attempt; None while that is too little."""
    # The first stretch is not like the others: imports, compilation, caches, the first batch.
    stretches: list[_Stretch] = []
    before_s, before = samples[1] if len(samples) > 1 else (0.0, 0.0)
    for at_s, position in samples[2:]:
        if position > before and at_s > before_s:  # as float32 two may be equal
            stretches.append((position, position - before, at_s - before_s))
            before_s, before = at_s, position
    if len(stretches) < 2:  # one alone may be a second compilation, or hold an evaluation
        return None
    usual_s, upper_s = _middle(stretches[-max(RECENT, len(stretches) // 2) :])
    limit_s = PAUSE_FACTOR * usual_s
    while stretches and stretches[0][2] > limit_s * stretches[0][1]:
        del stretches[0]  # before the first steady one it is still the start: a second compilation
    clear_s = min(limit_s, usual_s + max(CLEARLY * (upper_s - usual_s), CLEARLY_AT_LEAST * usual_s))
    steady = [(units, seconds) for _, units, seconds in stretches if seconds <= clear_s * units]
    paused: set[float] = set()
    if len(steady) < len(stretches):
        paused = _paused(stretches, limit_s, clear_s)
        steady = [(units, seconds) for end, units, seconds in stretches if end not in paused]
    if not steady:
        return None
    level = _last_alike(steady[-max(RECENT, len(steady) // 2) :])
    steady_s = _per_unit(level)
    trend_s, reach = _trend(steady)
    if trend_s:  # what is measured is the middle of these, and the run is at their end
        to_end_s = trend_s * sum([units for units, _ in level]) / 2
        steady_s += max(-TREND_SO_FAR * steady_s, min(TREND_SO_FAR * steady_s, to_end_s))
    first, last = samples[0][1], samples[-1][1]
    pause_s = single_s = slack_s = 0.0
    pauses = [
        (seconds - units * steady_s, end)
        for end, units, seconds in (stretches if paused else ())
        if end in paused and seconds > units * steady_s
    ]
    for alike in _group(pauses):
        ends = sorted(end for _, end in alike)
        since = last - ends[-1]
        if len(ends) == 1:
            way = max(ends[0] - first, since)
            if since <= SINGLE_FORGOTTEN * (ends[0] - first) and way > 0:
                single_s += alike[0][0] / way
            continue
        usual = (ends[-1] - ends[0]) / (len(ends) - 1)
        span = ends[-1] - ends[0] + (since if since > 2 * usual else 0)  # they may have ceased
        pause_s += sum([seconds for seconds, end in alike if end != ends[0]]) / span
        slack_s = max(slack_s, alike[0][0])
    spread = _spread(stretches, steady_s + pause_s)
    return Forecast(steady_s, pause_s, single_s, trend_s, reach, last - first, spread, slack_s)


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


def _per_unit(stretches: Sequence[tuple[float, float]]) -> float:
    """Seconds a unit, of (units, seconds)."""
    units = seconds = 0.0
    for some_units, some_seconds in stretches:
        units += some_units
        seconds += some_seconds
    return seconds / units


def _differ(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """By how many seconds a unit `other` takes longer, and the standard error of that, by mean deviations."""
    error, means = 0.0, []
    for part in (one, other):
        units = seconds = deviation = 0.0
        for some_units, some_seconds in part:
            units += some_units
            seconds += some_seconds
        mean = seconds / units
        for some_units, some_seconds in part:
            deviation += abs(some_seconds - mean * some_units)
        error += (1.25 * deviation / units) ** 2 / len(part)
        means.append(mean)
    return means[1] - means[0], math.sqrt(error)


def _last_alike(stretches: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """The longest end of them that shows no change of rate: halved as long as its halves clearly differ."""
    while len(stretches) >= 4:
        half = len(stretches) // 2
        by_s, error_s = _differ(stretches[:half], stretches[half:])
        if abs(by_s) <= 2 * error_s + 0.01 * _per_unit(stretches):
            break
        stretches = stretches[half:]
    return stretches


def _trend(stretches: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """By how much the seconds a unit grow with each unit, and over how many that was seen; (0, 0) unless each
    quarter is beyond the one before and the halves clearly differ: noise and single changes are no trend. Nor
    is it more than the later half shows, for trends flatten."""
    half, quarter = len(stretches) // 2, len(stretches) // 4
    if quarter < 2:
        return 0.0, 0.0
    ends = (0, quarter, half, half + quarter, len(stretches))
    quarters = [_per_unit(stretches[start:end]) for start, end in pairwise(ends)]
    if quarters not in (sorted(quarters), sorted(quarters, reverse=True)):
        return 0.0, 0.0
    by_s, error_s = _differ(stretches[:half], stretches[half:])
    if abs(by_s) <= 3 * error_s:
        return 0.0, 0.0
    later_s, _ = _differ(stretches[half : half + quarter], stretches[half + quarter :])
    goes_on = 2 * later_s / by_s  # twice: half as many units, so half the difference
    reach = sum([units for units, _ in stretches])
    return 2 * by_s / reach * max(0.0, min(1.0, goes_on)), reach


def _spread(stretches: Sequence[_Stretch], unit_s: float) -> float:
    """How far from `unit_s` the quarters of what was seen are, pauses included, as a share of it."""
    count = len(stretches)
    parts = min(4, count)
    worst = 0.0
    for part in range(parts):
        units = seconds = 0.0
        for _, some_units, some_seconds in stretches[part * count // parts : (part + 1) * count // parts]:
            units += some_units
            seconds += some_seconds
        worst = max(worst, abs(seconds / units / unit_s - 1))
    return LEAST_SPREAD + 0.5 * worst + 0.2 / count


def _group(pauses: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Pauses that are about as long as each other: a hiccup does not make of an evaluation a second one."""
    groups: list[list[tuple[float, float]]] = []
    for pause in sorted(pauses, reverse=True):
        if groups and pause[0] * PAUSE_FACTOR >= groups[-1][-1][0]:
            groups[-1].append(pause)
        else:
            groups.append([pause])
    return groups


def _paused(stretches: Sequence[_Stretch], limit_s: float, clear_s: float) -> set[float]:
    """The ends of those that contain a pause: of more seconds a unit than `limit_s`; or than `clear_s`,
    between two that are not. The longer stretches are, the less of a pause is in a unit of one."""
    found = {end for end, units, seconds in stretches if seconds > clear_s * units}
    alone = set()
    if len(stretches) > RECENT:
        for (before, _, _), (end, _, _), (after, _, _) in zip(
            stretches, stretches[1:], stretches[2:], strict=False
        ):
            if end in found and before not in found and after not in found:
                alone.add(end)
    return alone | {end for end, units, seconds in stretches if seconds > limit_s * units}


def _middle(stretches: Sequence[_Stretch]) -> tuple[float, float]:
    """The median and the upper quartile of the seconds a unit, each stretch counting with its units."""
    ordered = sorted([(seconds / units, units) for _, units, seconds in stretches])
    quarter = sum([units for _, units in ordered]) / 4
    seen, median_s = 0.0, 0.0
    for unit_s, units in ordered:
        seen += units
        if not median_s and seen >= 2 * quarter:
            median_s = unit_s
        if seen >= 3 * quarter:
            return median_s, unit_s
    return median_s or ordered[-1][0], ordered[-1][0]
