"""Which ranks are slower than the others, by several reports about all of them: rank 0's, or their own files.

A rank is slow by one report if a step takes it clearly longer than the others: FACTOR times their median, and
beyond their spread. It lags if it was slow in REPORTS reports in a row and for LASTING_S: a single report may
show a checkpoint, an evaluation or a wait for data. Where ranks wait for each other their steps say nothing,
but the seconds of their own work do. Where they do not wait, the steps between two reports show how long each
took. Pure; times are the training process's own.

What ranks' files say are medians over a minute, so each counts for several reports. There a rank is slow by
its relative score, the best rank's work ÷ its own, as NVIDIA's Resiliency Extension has it. Its work must be
most of its step: else something else sets the pace, such as accelerators.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from heapq import nlargest

import msgspec
from msgspec.structs import replace

from visibility_api.reports.ranks import RankRow, Ranks

FACTOR = 2.0  # times the median of the others
SPREADS = 4.0  # standard deviations of the others, by their median deviation, beyond the median
REPORTS = 12  # in a row
UNDONE = 6  # of these, by one report in which the rank is not slow
LASTING_S = 180.0
LEAST_STEPS = 8  # of the median rank, between two reports whose steps are compared
SCORE = 0.75  # the best rank's work ÷ that of one which is not slow yet
OF_A_FILE = 3  # reports, that one reading of the ranks' files is worth
LEAST_SHARE = 0.5  # of its step, that is its own work
MAX_SLOW = 8  # ranks at most that are followed
_DEVIATION = 1.4826  # of a normal distribution, of its median deviation


class Slow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rank that was slow in the last reports."""

    rank: int
    name: str
    reports: int  # up to REPORTS
    since: datetime  # the first of them
    step_s: float  # by the last one; infinity: it made no step
    usual_s: float  # the median of the others
    others: int
    lags: bool  # in enough reports, for long enough
    # By their own files; `usual_s` is then the work of the best of the others:
    node: str = ""
    best_s: float | None = None  # its own least work
    slowest: str = ""  # RankRow's
    is_median: bool = False


class Gathered(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What the reports of one attempt have shown. Start with `Gathered()`, then `advance`."""

    attempt: str = ""  # Rank0.attempt
    mark: int = 0  # of the last report
    reports: int = 0  # that were evaluated, up to REPORTS
    at: datetime | None = None  # of the last report whose ranks were compared, and their steps
    steps: tuple[tuple[int, int], ...] = ()
    slow: tuple[Slow, ...] = ()
    is_median: bool = False  # the last report was of the ranks' own files

    def advance(
        self, ranks: Ranks, at: datetime, *, attempt: str, factor: float | None, pause_s: float
    ) -> Gathered:
        """With one more report, at `at`. `factor`: None is ours.

        `pause_s`: for so long a healthy run may stand still.
        """
        if attempt != self.attempt or ranks.is_median != self.is_median:
            return Gathered(attempt=attempt, is_median=ranks.is_median).advance(
                ranks, at, attempt=attempt, factor=factor, pause_s=pause_s
            )
        if ranks.mark == self.mark:
            return self
        step_s = [(row, row.step_s) for row in ranks.rows if row.step_s is not None]
        factor = factor or (1 / SCORE if ranks.is_median else FACTOR)
        if step_s:
            return replace(self._evaluated(step_s, at, factor, LASTING_S), mark=ranks.mark, at=at, steps=())
        steps = tuple([(row.rank, row.step) for row in ranks.rows if row.step is not None])
        compared = self._compared(ranks.rows, at)
        if compared is None:
            return replace(self, mark=ranks.mark)
        evaluated = self
        if compared:
            evaluated = self._evaluated(compared, at, factor, max(LASTING_S, pause_s))
        return replace(evaluated, mark=ranks.mark, at=at, steps=steps)

    @property
    def lagging(self) -> tuple[Slow, ...]:
        """Ranks that lag, the slowest first."""
        return tuple(sorted((each for each in self.slow if each.lags), key=lambda each: -each.step_s))

    def _compared(self, rows: Sequence[RankRow], at: datetime) -> list[tuple[RankRow, float]] | None:
        """Seconds a step since the report to compare with. Empty: there is none; None: too soon."""
        before = dict(self.steps)
        made = [
            (row, row.step - before[row.rank]) for row in rows if row.step is not None and row.rank in before
        ]
        if self.at is None or len(made) < 2 or at <= self.at or min(steps for _, steps in made) < 0:
            return []
        if sorted(steps for _, steps in made)[len(made) // 2] < LEAST_STEPS:
            return None
        elapsed_s = (at - self.at).total_seconds()
        return [(row, elapsed_s / steps if steps else math.inf) for row, steps in made]

    def _evaluated(
        self, step_s: Sequence[tuple[RankRow, float]], at: datetime, factor: float, lasting_s: float
    ) -> Gathered:
        if len(step_s) < 2:
            return self
        held = {each.rank: each for each in self.slow}
        ordered = sorted(seconds for _, seconds in step_s)
        # The median of all but a slow one is no less than this.
        limit_s = factor * ordered[0 if self.is_median else (len(ordered) - 2) // 2]
        slow = []
        candidates = [
            (seconds, row.rank)
            for row, seconds in step_s
            if seconds > limit_s and seconds >= LEAST_SHARE * (row.whole_s or 0.0)
        ]
        new = nlargest(MAX_SLOW, (each for each in candidates if each[1] not in held))
        compared = {rank for _, rank in (*new, *(each for each in candidates if each[1] in held))}
        for row, seconds in [each for each in step_s if each[0].rank in compared or each[0].rank in held]:
            before = held.pop(row.rank, None)
            if row.rank in compared:
                others = ordered.copy()
                del others[bisect_left(others, seconds)]
                middle_s = _median(others)
                usual_s = others[0] if self.is_median else middle_s
                if seconds > factor * usual_s and _is_beyond(seconds, others, middle_s):
                    found = Slow(row.rank, row.name, self._weight, at, seconds, usual_s, len(others), False)
                    found = replace(
                        found,
                        node=row.node,
                        best_s=row.best_s,
                        slowest=row.slowest,
                        is_median=self.is_median,
                    )
                    slow.append(_goes_on(before, found, lasting_s))
                    continue
            if before is not None:
                slow.append(_recovering(before))
        slow += [_recovering(before) for before in held.values()]
        kept = sorted((each for each in slow if each.reports > 0), key=lambda each: -each.reports)
        reports = min(REPORTS, self.reports + self._weight)
        return replace(self, reports=reports, slow=tuple(kept[:MAX_SLOW]))

    @property
    def _weight(self) -> int:
        return OF_A_FILE if self.is_median else 1


NOTHING_GATHERED = Gathered()


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _is_beyond(seconds: float, others: Sequence[float], middle_s: float) -> bool:
    """Whether the spread of the others does not explain it."""
    if not middle_s < math.inf:
        return False
    half = (len(others) + 1) // 2
    distances_s = (_nearest(others, middle_s, half), _nearest(others, middle_s, len(others) + 1 - half))
    return seconds > middle_s + SPREADS * _DEVIATION * sum(distances_s) / 2


def _nearest(ordered: Sequence[float], middle: float, number: int) -> float:
    """How far from `middle` the so many nearest ones are: they stand side by side."""
    first = bisect_left(
        range(len(ordered) - number),
        1,
        key=lambda at: middle - ordered[at] <= ordered[at + number] - middle,
    )
    return max(middle - ordered[first], ordered[first + number - 1] - middle)


def _goes_on(before: Slow | None, found: Slow, lasting_s: float) -> Slow:
    """`found`, which the report shows, as one that may have been slow before."""
    reports = min(REPORTS, (before.reports if before is not None else 0) + found.reports)
    since = min(before.since, found.since) if before is not None else found.since  # a clock may be set back
    lags = before is not None and before.lags
    lags = lags or (reports >= REPORTS and (found.since - since).total_seconds() >= lasting_s)
    return replace(found, reports=reports, since=since, lags=lags)


def _recovering(before: Slow) -> Slow:
    return replace(before, reports=before.reports - UNDONE)
