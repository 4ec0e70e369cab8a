"""How fast a run moves and when it will end, from what was seen of it in this attempt.

Uses only differences of the training process's own clock, so a clock that is an hour off changes nothing,
and a run resumed at step k is not credited with steps it did not take here.
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec
from msgspec.structs import replace

from .document import Progress

SMOOTHING_S = 120.0  # a change of pace shows within minutes; one slow step does not


class Pace(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The speed of one attempt, by its reports. Start with `Pace.begin`, then `advance`."""

    position: float | None = None  # steps, else percent, else epochs done, at `at`
    unit: str = ""  # which of the three `position` is
    at: datetime | None = None  # training clock, of the last report that moved
    per_second: float | None = None  # units a second, smoothed; None until two reports moved
    longest_gap_s: float = 0.0  # between two reports that moved: evaluation and checkpoints count

    def advance(self, report: Progress, *, waited_s: float = math.inf, is_next: bool = True) -> Pace:
        """The pace after one more report. `waited_s`: by our clock it took no longer since the one that moved
        last. `is_next`: no report between the two was missed, as far as is known."""
        unit, position = _position(report)
        if position is None or report.timestamp is None:
            return self
        if self.position is None or self.at is None or unit != self.unit or position < self.position:
            return replace(
                self, position=position, unit=unit, at=report.timestamp, per_second=None
            )  # first report, or a restart from a checkpoint: measure anew
        elapsed_s = (report.timestamp - self.at).total_seconds()
        if position == self.position:
            return self
        if elapsed_s == 0:  # no rate comes of it, but it moves
            return replace(self, position=position)
        if not 0 < elapsed_s <= waited_s:  # the clock was set: measure on from there at the rate known
            return replace(self, position=position, at=report.timestamp)
        rate = (position - self.position) / elapsed_s
        # Else the run may have moved all the time: that was no pause of its own unless it came far less far.
        is_gap = is_next or self.per_second is None or rate < self.per_second / 2
        if self.per_second is not None:
            weight = 1 - math.exp(-elapsed_s / SMOOTHING_S)
            rate = self.per_second + weight * (rate - self.per_second)
        return replace(
            self,
            position=position,
            at=report.timestamp,
            per_second=rate,
            longest_gap_s=max(self.longest_gap_s, elapsed_s) if is_gap else self.longest_gap_s,
        )

    def steps_per_s(self) -> float | None:
        return self.per_second if self.unit == "steps" else None

    def remaining_s(self, report: Progress) -> float | None:
        """Seconds from `report` to the end at this pace; the report's own estimate until a pace is known.

        Ours comes first: after a resume clients divide the time of this attempt by the steps of all attempts.
        """
        end = {"steps": report.total_steps, "percent": 100, "epochs": report.total_epochs}.get(self.unit)
        if end is not None and self.position is not None and self.per_second:
            return max(0.0, (end - self.position) / self.per_second)
        return None if report.remaining_s is None else float(report.remaining_s)


def percentage(report: Progress) -> int | None:
    """Whole percent done: as reported, else of steps, else of epochs; rounded down, so 100 means all."""
    if report.progress_percentage is not None:
        return report.progress_percentage
    for done, total in ((report.step, report.total_steps), (report.epoch, report.total_epochs)):
        if done is not None and total:
            return min(100, math.floor(100 * done / total))
    return None


def _position(report: Progress) -> tuple[str, float | None]:
    if report.step is not None:
        return "steps", float(report.step)
    if report.progress_percentage is not None:
        return "percent", float(report.progress_percentage)
    return "epochs", report.epoch
