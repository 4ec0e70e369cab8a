"""Which part of a job's history is requested: metrics, time, and how many points."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from .attempt import NO_STEP, PROGRESS, Attempt, Point
from .job_history import JobHistory
from .thinning import downsample


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is requested; None: all. Times are seconds since 1970, by our clock."""

    metrics: frozenset[str] | None = None
    since_s: float | None = None
    until_s: float | None = None
    max_points: int | None = None  # of each series; at least 2
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """From where to where one attempt went."""

    number: int
    start_s: float
    end_s: float
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressColumns:
    """Steps and epochs of one attempt over time. A column of nothing but None is None."""

    attempt: int
    times_s: Sequence[float]
    steps: Sequence[int | None] | None
    epochs: Sequence[float | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesColumns:
    """One metric of one attempt over time."""

    metric: str
    attempt: int
    times_s: Sequence[float]
    steps: Sequence[int | None] | None
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The answer. `attempts` are all that are kept, whatever is requested."""

    attempts: Sequence[AttemptSpan] = ()
    progress: Sequence[ProgressColumns] = ()
    series: Sequence[SeriesColumns] = ()
    bare: Sequence[ProgressColumns] = ()  # of `progress`, attempts that reported no metric


def select(history: JobHistory | None, selection: Selection, *, now_s: float) -> HistoryView:
    """What is kept of the requested part. No time is later than `now_s`: a training clock may be ahead."""
    attempts: list[AttemptSpan] = []
    progress: list[ProgressColumns] = []
    series: list[SeriesColumns] = []
    bare: list[ProgressColumns] = []
    for attempt in history.attempts if history is not None else ():
        reported = attempt.points(PROGRESS)
        if not reported:
            continue
        known = [int(step) for _, step, _ in reported if step != NO_STEP]
        attempts.append(
            AttemptSpan(
                number=attempt.number,
                start_s=_corrected(attempt, reported[0], now_s),
                end_s=_corrected(attempt, reported[-1], now_s),
                first_step=known[0] if known else None,
                last_step=known[-1] if known else None,
            )
        )
        if selection.attempt not in (None, attempt.number):
            continue
        has_steps = bool(known)
        times_s, points = _chosen(attempt, reported, selection, now_s, by_steps=has_steps)
        if points:
            shown = ProgressColumns(
                attempt=attempt.number,
                times_s=times_s,
                steps=_steps(points),
                epochs=_unless_empty([None if math.isnan(epoch) else epoch for _, _, epoch in points]),
            )
            progress.append(shown)
            bare += [shown] if selection.metrics is None and len(attempt.series) == 1 else []
        for name in attempt.series:
            if name == PROGRESS or (selection.metrics is not None and name not in selection.metrics):
                continue
            times_s, points = _chosen(attempt, attempt.points(name), selection, now_s)
            if points:
                series.append(
                    SeriesColumns(
                        metric=name,
                        attempt=attempt.number,
                        times_s=times_s,
                        steps=_steps(points),
                        values=[value for _, _, value in points],
                    )
                )
    return HistoryView(attempts=attempts, progress=progress, series=series, bare=bare)


def _corrected(attempt: Attempt, point: Point, now_s: float) -> float:
    return max(0.0, min((point[0] - attempt.ahead_ms) / 1000, now_s))  # clocks may be years off


def _chosen(
    attempt: Attempt, points: list[Point], selection: Selection, now_s: float, *, by_steps: bool = False
) -> tuple[list[float], list[Point]]:
    """The points of the requested time, as many as requested, and their times.

    `by_steps`: no extreme of the steps is left out, instead of the values."""
    times_s = [_corrected(attempt, point, now_s) for point in points]
    start = 0 if selection.since_s is None else bisect_left(times_s, selection.since_s)
    stop = len(times_s) if selection.until_s is None else bisect_right(times_s, selection.until_s)
    times_s, points = times_s[start:stop], points[start:stop]
    if selection.max_points is None or len(points) <= selection.max_points:
        return times_s, points
    kept = downsample([step if by_steps else value for _, step, value in points], selection.max_points)
    return [times_s[each] for each in kept], [points[each] for each in kept]


def _steps(points: list[Point]) -> list[int | None] | None:
    return _unless_empty([None if step == NO_STEP else int(step) for _, step, _ in points])


def _unless_empty(column: list[int | None] | list[float | None]) -> list | None:  # type: ignore[type-arg]
    return None if all(each is None for each in column) else column
