"""How fast a run moves and when it will end, from what was seen of it in this attempt.

docs/document.md has the rule, which is that of the training side, and tests/vectors/estimates.json examples:
one rate, of the later intervals between reports, without start-up and without a pause that came only once.
Uses only differences of the training process's own clock: one that is an hour off changes nothing. A run that
is resumed at step k is not credited with the steps before.
"""

from __future__ import annotations

import math
import struct
from datetime import datetime

import msgspec
from msgspec.structs import replace

from visibility_api.reports.document import Progress
from visibility_api.reports.marks import EVALUATION

from .forecast import Forecast, measure

STARTED_S = 2.0  # a first report that follows the start of its run so soon was written before any step
MAX_SAMPLES = 24  # evenly spread over the attempt; remembered, eight bytes each
# A pause is apart from the rate if it takes so many steps' time beyond its own, and seconds.
PAUSE_UNITS, PAUSE_LEAST_S = 10.0, 30.0
LEAST_PAUSED, MOST_PAUSED = 0.5, 1.5  # times what is likely

_FORM = struct.Struct("<2f")
_SIZE = _FORM.size
_pack, _unpack, _unpack_one = _FORM.pack, _FORM.iter_unpack, _FORM.unpack_from
_FIRST = _pack(0.0, 0.0)


class Pauses(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The long ones of an attempt, which are no part of its rate."""

    count: int
    seconds: float  # of all of them
    first: float  # the position at which the first one came
    last: float

    def and_one(self, position: float, seconds: float) -> Pauses:
        return Pauses(self.count + 1, self.seconds + seconds, self.first, position)

    @property
    def mean_s(self) -> float:
        return self.seconds / self.count

    def to_come(self, end: float) -> int:
        """How many there will be until then. One alone may have been the only one."""
        if self.count < 2:
            return 0
        return max(0, math.ceil((end - self.last) * (self.count - 1) / (self.last - self.first)) - 1)


class Pace(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The speed of one attempt, by its reports. Start with `Pace()`, then `advance`."""

    position: float | None = None  # steps, else percent, else epochs done, at `at`
    unit: str = ""  # which of the three `position` is
    at: datetime | None = None  # training clock, of the last report that moved
    per_second: float | None = None  # units a second, pauses included; None until two reports moved
    longest_gap_s: float = 0.0  # between two reports that moved, without start-up and what is marked
    origin: datetime | None = None  # training clock, of the first report
    base: float = 0.0  # position at the first report
    base_epoch: float | None = None  # epochs done when they were first reported
    samples: bytes = b""  # pairs of float32, see `_Sample`; from the first steps on, start-up is before them
    spacing_s: float = 0.0  # between two samples at least
    forecast: Forecast | None = None  # what follows from the samples; None until there are enough
    pauses: Pauses | None = None
    marked_s: float = 0.0  # of evaluations and checkpoints, by the last report that moved

    def advance(self, report: Progress, *, waited_s: float = math.inf, is_next: bool = True) -> Pace:
        """The pace after one more report. `waited_s`: by our clock it took no longer since the one that moved
        last. `is_next`: no report between the two was missed, as far as is known."""
        unit, position = _position(report)
        at, marked_s = report.timestamp, _marked_s(report)
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
                marked_s=marked_s,
            )
        if position == self.position:
            return self
        elapsed_s = (at - self.at).total_seconds()
        if elapsed_s == 0:  # no rate comes of it, but it moves
            return replace(self, position=position, marked_s=marked_s)
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
                marked_s=marked_s,
            )
        rate = (position - self.position) / elapsed_s
        # Else the run may have moved all the time: that was no pause of its own unless it came far less far.
        is_gap = is_next or self.per_second is None or rate < self.per_second / 2
        is_gap = is_gap and self.samples != b""  # start-up comes once: it is no pause
        gap_s = elapsed_s - self.marked_since_s(report)
        longest_gap_s = max(self.longest_gap_s, gap_s) if is_gap else self.longest_gap_s
        pauses, paused_s = self._with_pause(position, elapsed_s)
        at_s, spacing_s, samples = (at - self.origin).total_seconds() - paused_s, self.spacing_s, self.samples
        if samples and at_s - _unpack_one(samples, len(samples) - _SIZE)[0] < spacing_s:
            return replace(
                self,
                position=position,
                at=at,
                longest_gap_s=longest_gap_s,
                pauses=pauses,
                marked_s=marked_s,
            )
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
            pauses=pauses,
            marked_s=marked_s,
        )

    def _with_pause(self, position: float, elapsed_s: float) -> tuple[Pauses | None, float]:
        """The pauses, with that of the last interval if there was one; and what all of them took."""
        pauses, forecast, before = self.pauses, self.forecast, self.position
        if forecast is not None and before is not None:
            unit_s = forecast.unit_s
            paused_s = elapsed_s - (position - before) * unit_s
            if paused_s > max(PAUSE_LEAST_S, PAUSE_UNITS * unit_s):
                pauses = (pauses or Pauses(0, 0.0, before, before)).and_one(before, paused_s)
        return pauses, pauses.seconds if pauses is not None else 0.0

    def marked_since_s(self, report: Progress) -> float:
        """Seconds of evaluations and checkpoints that are over, after the last advance until this report."""
        return max(0.0, _marked_s(report) - self.marked_s)

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
            left, pauses = max(0.0, end - position), self.pauses
            likely_s, least_s, most_s = self.forecast.left_s(left)
            if pauses is not None:
                paused_s, most_paused_s = self._paused_s(pauses, report, position, end), 0.0
                if pauses.count == 1:  # as often as it came
                    most_paused_s = left * pauses.seconds / self.forecast.seen
                likely_s, least_s = likely_s + paused_s, least_s + LEAST_PAUSED * paused_s
                most_s += max(most_paused_s, MOST_PAUSED * paused_s)
            return likely_s, least_s, most_s
        if report.remaining_s is not None:
            return float(report.remaining_s), None, None
        was_seen_later = self.samples.startswith(_FIRST)
        if position is None or end is None or not self.per_second or not was_seen_later:
            return None
        return max(0.0, end - position) / self.per_second, None, None

    def _paused_s(self, pauses: Pauses, report: Progress, position: float, end: float) -> float:
        """What the pauses that come until the end should take, after this report."""
        is_evaluating = report.marks.section == EVALUATION
        if is_evaluating:  # that is one
            pauses = pauses.and_one(position, pauses.mean_s)
        count = pauses.to_come(end) + is_evaluating
        if not count or report.timestamp is None or self.at is None:
            return 0.0
        still_s = max(0.0, (report.timestamp - self.at).total_seconds())
        return count * pauses.mean_s - min(pauses.mean_s, still_s)

    def end(self, report: Progress) -> float | None:
        """The position at which the run is done, in the unit of this pace."""
        unit = self.unit
        return report.total_steps if unit == "steps" else 100 if unit == "percent" else report.total_epochs


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


def _marked_s(report: Progress) -> float:
    """Seconds of all sections that are over but those of its loader, which belong to its steps."""
    return sum(report.marks.spent_s[1:])


def _position(report: Progress) -> tuple[str, float | None]:
    if report.step is not None:
        return "steps", float(report.step)
    if report.progress_percentage is not None:
        return "percent", float(report.progress_percentage)
    return "epochs", report.epoch
