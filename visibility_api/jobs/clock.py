"""How far the clock that dates a job's reports is from ours, as the reports themselves show.

A report cannot be read before it was written, nor written while its reporter still showed an earlier one. So
each report that is read bounds the offset of its clock from both sides; the bounds of several are combined.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from visibility_api.reports.fields import EARLIEST, LATEST

# Clocks are synchronised to far less, but times of whole seconds and reports that wait behind another one on
# their way are not: below this a clock counts as right.
MAX_SKEW_S = 5.0


class NodeClock(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Bounds on how far the training process's clock is ahead of ours, in seconds; below 0 it is behind."""

    at_least_s: float | None = None  # None: no report with a time was read yet
    at_most_s: float | None = None  # None: no report was seen to come

    @property
    def is_known(self) -> bool:
        """Whether any report has shown this clock."""
        return self.at_least_s is not None

    @property
    def is_right(self) -> bool:
        """Whether reports that were seen to come have shown that it is right."""
        low, high = self.at_least_s, self.at_most_s
        return low is not None and high is not None and low <= MAX_SKEW_S and high >= -MAX_SKEW_S

    @property
    def likely_ahead_s(self) -> float:
        """The same as `ahead_s`, but by a report that was not seen to come if there is no other."""
        return self.ahead_s if self.at_most_s is not None else self.at_least_s or 0.0

    @property
    def ahead_s(self) -> float:
        """What to subtract from its times; 0 while nothing shows that it is wrong.

        The lower bound: it comes closer with each report that is read soon after it was written, and no
        report seems to be written after it was read.
        """
        low, high = self.at_least_s, self.at_most_s
        if low is not None and (low > MAX_SKEW_S or (high is not None and high < -MAX_SKEW_S)):
            return low
        return 0.0

    def contradicts(self, earlier: NodeClock) -> bool:
        """Whether it was set after `earlier` was all that was known: their bounds have nothing in common."""
        return _is_below(earlier.at_most_s, self.at_least_s) or _is_below(self.at_most_s, earlier.at_least_s)

    def bounded(self, reported: datetime, *, received: datetime, not_before: datetime | None) -> NodeClock:
        """With what one more report shows, written by our clock after `not_before` and up to `received`.

        A clock that was set contradicts what it showed before: only the newest counts then.
        """
        low = (reported - received).total_seconds()
        high = None if not_before is None else (reported - not_before).total_seconds()
        before_low, before_high = self.at_least_s, self.at_most_s
        if before_low is None:
            return NodeClock(at_least_s=low, at_most_s=high)
        if (before_high is not None and low > before_high) or (high is not None and high < before_low):
            return NodeClock(at_least_s=low, at_most_s=high)
        if low <= before_low and (high is None or (before_high is not None and before_high <= high)):
            return self
        if before_high is not None and (high is None or before_high < high):
            high = before_high
        return NodeClock(at_least_s=max(low, before_low), at_most_s=high)


def later(moment: datetime, by_s: float) -> datetime:
    """So many seconds later, or earlier; within the times that exist: a report may have any."""
    try:
        return moment + timedelta(seconds=by_s)
    except OverflowError:
        return LATEST if by_s > 0 else EARLIEST


def _is_below(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one < other


UNKNOWN_CLOCK = NodeClock()
