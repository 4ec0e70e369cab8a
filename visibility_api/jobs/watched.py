"""Statistics of the watched metrics of an attempt: some ten numbers each, updated with each report.

The conditions Diverged and Plateaued follow from them (`conditions`). They are robust: one value moves them
by no more than the usual noise, so a spike changes little. A value far above all earlier ones does not count
as usual. Pure; times are the training process's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from visibility_api.reports.document import Progress

Better = Literal["min", "max"]
LOSSES = ("loss", "train_loss")
EVALUATION_LOSSES = ("eval_loss", "val_loss")
GRAD_NORM = "grad_norm"
WATCHED = (*LOSSES, GRAD_NORM, *EVALUATION_LOSSES)
GOALS = (*EVALUATION_LOSSES, *LOSSES)  # whose plateau counts, the first of them that is reported
_GOAL_RANKS = {name: rank for rank, name in enumerate(GOALS)}
_NO_RANK = len(GOALS)
# Scaled half precision skips steps whose gradients overflow, several in a row as it begins.
GRAD_NORMS_NOT_FINITE = 12

LARGEST = 1e100  # a larger value counts as infinite, so that no sum overflows
KNOWN_AFTER = 20  # values; none of the first ones counts as unusual
SMOOTHING = 0.05  # weight of a new value, once there are many
NOISE_STEP = 4.0  # times the usual noise: one value moves `usual` by no more
NOISES = 6.0  # times the usual noise is far
_Level = tuple[float, int, int, float]  # so many times; values at least, and at most needed; seconds
# A value that is so many times the usual one above it is far. It is a divergence after so many such values
# in a row, and seconds: the farther, the sooner. Losses recover from spikes within minutes.
_LOSS_LEVELS: tuple[_Level, ...] = ((99.0, 4, 4, 0.0), (9.0, 30, 30, 60.0), (2.0, 40, 50, 120.0))
_GRAD_NORM_LEVELS: tuple[_Level, ...] = ((9999.0, 5, 5, 0.0), (999.0, 10, 10, 60.0), (99.0, 15, 30, 120.0))
# Rare; overfitting triples them without a divergence.
_EVALUATION_LEVELS: tuple[_Level, ...] = ((99.0, 2, 2, 0.0), (9.0, 3, 3, 0.0))
_LEVELS: Mapping[str, tuple[_Level, ...]] = {
    **dict.fromkeys(LOSSES, _LOSS_LEVELS),
    **dict.fromkeys(EVALUATION_LOSSES, _EVALUATION_LEVELS),
    GRAD_NORM: _GRAD_NORM_LEVELS,
}
_ABOVE_FIRST = 20.0  # times the first values, where the run had learned: also where it rises gradually
_LOST_SHARE = 0.8  # of all that was learned, lost again
_LEARNED_SHARE = 0.4  # of the first values: harder data may undo less
_LOST: _Level = (0.0, 40, 60, 180.0)
_NEEDED_SHARE = 0.1  # of the values before, between least and most: short runs have few
_LEARNED_NOISES = 5.0  # times the noise: what counts as learned
_UNDONE = 2  # far values, by one that is not far
# By less than this a value may be better by chance: a share of the best one, and times the noise.
LEAST_IMPROVEMENT = 0.002
LEAST_IMPROVEMENT_NOISES = 0.1  # of losses, which are smoothed
LEAST_IMPROVEMENT_WORSENINGS = 4.0  # of others: how much a value is worse than the one before, on average

_HIGHER = re.compile(
    r"(?:^|[^a-z])(?:acc|accuracy|auc|auroc|f1|precision|recall|map|iou|miou|dice|bleu|rouge\w*|meteor|score"
    r"|reward\w*|return|success\w*|r2|ndcg|mrr|hits?|win\w*|top|exact|pass|mcc|matthews\w*|spearman\w*"
    r"|pearson\w*|kappa|psnr|ssim)(?:[^a-z]|$)"
)


class Course(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one metric."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=0)] = 0  # finite values that counted as usual
    usual: float = 0.0  # smoothed
    noise: float = 0.0  # mean distance from it, smoothed
    first: float = 0.0  # the mean of the first few
    best: float = 0.0  # the lowest that `usual` was
    has_learned: bool = False  # `best` was clearly below the first ones
    far: int = 0  # values that were far above `usual`, in a row
    far_at: datetime | None = None  # the first of these
    broken: int = 0  # values that were not finite, in a row

    def follow(self, value: float, at: datetime | None) -> Course:
        """With one more value."""
        count, usual, noise = self.count, self.usual, self.noise
        if not -LARGEST < value < LARGEST:
            return replace(self, broken=self.broken + 1)
        by = value - usual
        if count >= KNOWN_AFTER:
            if (by > NOISES * noise or self.has_learned) and self.is_far(value):
                return replace(self, far=self.far + 1, far_at=self.far_at or at, broken=0)
            if self.far > _UNDONE:
                return replace(self, far=self.far - _UNDONE, broken=0)
            if noise:
                most = NOISE_STEP * noise
                by = most if by > most else max(by, -most)
        count += 1
        if count == 1:
            return Course(self.name, 1, value, 0.0, value, value)
        weight = 2 / (count + 1)
        if weight < SMOOTHING:
            weight = SMOOTHING
        usual += weight * by
        noise += weight * ((by if by > 0 else -by) - noise)
        first, best, has_learned = self.first, self.best, self.has_learned
        if count <= 5:
            first += (value - first) / count
            best = usual
        elif usual < best:
            best = usual
            has_learned = has_learned or (
                count > KNOWN_AFTER and first - best > max(_LEARNED_NOISES * noise, 0.1 * abs(first))
            )
        return Course(self.name, count, usual, noise, first, best, has_learned)

    def is_far(self, value: float) -> bool:
        """Whether a value is far above the usual ones, or loses most of what was learned."""
        levels = _LEVELS.get(self.name)
        if levels is None:
            return False
        by = value - self.usual
        if by > NOISES * self.noise and by > levels[-1][0] * self._scale:
            return True
        if not self.has_learned or levels is not _LOSS_LEVELS:
            return False
        learned = self.first - self.best
        if value <= self.best + _LOST_SHARE * learned:
            return False
        is_lost = learned > max(_LEARNED_NOISES * self.noise, _LEARNED_SHARE * abs(self.first))
        return is_lost or self._is_above_first(value)

    def has_diverged(self, value: float, at: datetime | None) -> bool:
        """Whether the last values, this one too, have been so far above the usual ones for so long that it is
        no spike; or are not finite."""
        if self.broken:
            return self.broken >= GRAD_NORMS_NOT_FINITE if self.name == GRAD_NORM else self.name in _LEVELS
        if not self.far or self.far_at is None or at is None or not self.is_far(value):
            return False
        lasting_s = (at - self.far_at).total_seconds()
        by = (value - self.usual) / self._scale
        levels = _LEVELS[self.name]
        for level in (*levels, _LOST):
            factor, least, most, seconds = level
            if by > factor or level is _LOST or (level is levels[-1] and self._is_above_first(value)):
                return self.far >= max(least, min(most, _NEEDED_SHARE * self.count)) and lasting_s >= seconds
        return False

    def _is_above_first(self, value: float) -> bool:
        return self.has_learned and self.best > 0 and value > _ABOVE_FIRST * self.first

    @property
    def _scale(self) -> float:
        return max(abs(self.usual), abs(self.first), 5 * self.noise, 1e-12)


class Goal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The best that the metric which the run is to improve has reached: of evaluations a value, of losses and
    others the smoothed one."""

    name: str
    is_higher_better: bool
    best: float
    values: int  # until then
    position: float | None  # of the run
    at: datetime | None
    last: float = 0.0  # the last value
    worsening: float = 0.0  # by how much one is worse than the one before, smoothed; 0: it is better


class Alarm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A metric that has diverged, by the last report."""

    name: str
    text: str  # its value
    usual: float | None  # what it was about before; None: the value is not finite


class Watched(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Of one attempt. Start with `Watched()`, then `advance`."""

    courses: tuple[Course, ...] = ()
    goal: Goal | None = None
    since_best: int = 0  # values of the goal's metric
    alarm: Alarm | None = None

    def advance(
        self,
        report: Progress,
        before: Progress | None,
        position: float | None,
        target: str | None = None,
        better: Better | None = None,
    ) -> Watched:
        """With one more report, after `before`, whose metrics were others. `target`: the metric to improve,
        as the job names it; `better`: which of its values are."""
        held, at = self.courses, report.timestamp
        shown = before.metrics if before is not None else ()
        goal, since_best, alarm = self.goal, self.since_best, None
        ranks = _GOAL_RANKS if target is None else {target: 0}
        goal_rank = min([ranks.get(name, _NO_RANK) for name, _ in report.metrics], default=_NO_RANK)
        made: list[Course] = []
        for metric in report.metrics:
            name, text = metric
            if name not in _LEVELS and name != target:
                continue
            course = next((each for each in held if each.name == name), None) or Course(name)
            # The same text is the same value, shown until there is a new one; but all NaN look the same.
            if metric not in shown or course.broken:
                try:
                    value = float(text)
                except ValueError:
                    continue  # text is no number
                course = course.follow(value, at)
                if course.far or course.broken:
                    if alarm is None and course.has_diverged(value, at):
                        alarm = Alarm(name, text, None if course.broken else course.usual)
                elif ranks.get(name, _NO_RANK) == goal_rank < _NO_RANK:
                    goal = _reached(goal, course, value, position, at, better)
                    since_best = course.count - goal.values
            elif self.alarm is not None and self.alarm.name == name:
                alarm = alarm or self.alarm
            made.append(course)
        return Watched(courses=tuple(made), goal=goal, since_best=since_best, alarm=alarm)


NOTHING_WATCHED = Watched()


def is_higher_better(name: str) -> bool:
    """Whether the metric is one of which more is better, by its name."""
    lower = name.lower()
    return "loss" not in lower and "error" not in lower and _HIGHER.search(lower) is not None


def _reached(
    goal: Goal | None,
    course: Course,
    value: float,
    position: float | None,
    at: datetime | None,
    better: Better | None,
) -> Goal:
    """The goal, after one more value of its metric."""
    name = course.name
    reached = course.usual if name in LOSSES else value
    if (
        goal is None
        or goal.name != name
        or (better is not None and goal.is_higher_better != (better == "max"))
    ):
        is_higher = better == "max" if better is not None else is_higher_better(name)
        return Goal(name, is_higher, reached, course.count, position, at, reached)
    sign = 1 if goal.is_higher_better else -1
    by = sign * (reached - goal.best)
    worse_by = max(0.0, sign * (goal.last - reached))
    weight = max(2 / (course.count + 1), SMOOTHING)
    worsening = goal.worsening + weight * (worse_by - goal.worsening)
    chance = LEAST_IMPROVEMENT_WORSENINGS * worsening
    if name in LOSSES:
        chance = LEAST_IMPROVEMENT_NOISES * course.noise
    if by > LEAST_IMPROVEMENT * abs(goal.best) and by > chance:
        return Goal(name, goal.is_higher_better, reached, course.count, position, at, reached, worsening)
    return replace(goal, last=reached, worsening=worsening)
