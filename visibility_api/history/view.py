"""What of a job's history is asked for: which metrics, which time, and in how many points."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .attempt import NO_STEP, Attempt, read
from .job_history import JobHistory
from .thinning import downsample


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is asked for; None: all. Times are seconds since 1970, by our clock."""

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
    """The answer. `attempts` are all that are kept, whatever is asked for."""

    attempts: Sequence[AttemptSpan] = ()
    progress: Sequence[ProgressColumns] = ()
    series: Sequence[SeriesColumns] = ()
    bare: Sequence[ProgressColumns] = ()  # of `progress`, attempts that reported no metric


def select(history: JobHistory | None, selection: Selection, *, now_s: float) -> HistoryView:
    """What is kept of what is asked for. No time is later than `now_s`: a training clock may be ahead."""
    attempts: list[AttemptSpan] = []
    progress: list[ProgressColumns] = []
    series: list[SeriesColumns] = []
    bare: list[ProgressColumns] = []
    for attempt in history.attempts if history is not None else ():
        columns = read(attempt)
        if not columns.times:
            continue
        times_s = _corrected(attempt, columns.times, now_s)
        steps = [None if step == NO_STEP else int(step) for step in columns.steps]
        known = [step for step in steps if step is not None]
        attempts.append(
            AttemptSpan(
                number=attempt.number,
                start_s=times_s[0],
                end_s=times_s[-1],
                first_step=known[0] if known else None,
                last_step=known[-1] if known else None,
            )
        )
        if selection.attempt not in (None, attempt.number):
            continue
        chosen = _chooser(selection, times_s)
        marks, epochs = chosen(columns.marks, columns.epochs, [columns.steps[row] for row in columns.marks])
        if marks:
            shown = ProgressColumns(
                attempt=attempt.number,
                times_s=[times_s[row] for row in marks],
                steps=_unless_empty([steps[row] for row in marks]),
                epochs=_unless_empty([None if math.isnan(epoch) else epoch for epoch in epochs]),
            )
            progress.append(shown)
            bare += [shown] if selection.metrics is None and not columns.series else []
        for name, (rows, values) in columns.series.items():
            if selection.metrics is not None and name not in selection.metrics:
                continue
            rows, values = chosen(rows, values, values)
            if rows:
                series.append(
                    SeriesColumns(
                        metric=name,
                        attempt=attempt.number,
                        times_s=[times_s[row] for row in rows],
                        steps=_unless_empty([steps[row] for row in rows]),
                        values=values,
                    )
                )
    return HistoryView(attempts=attempts, progress=progress, series=series, bare=bare)


def _corrected(attempt: Attempt, times_ms: Sequence[float], now_s: float) -> list[float]:
    ahead_ms = attempt.ahead_ms
    return [max(0.0, min((time - ahead_ms) / 1000, now_s)) for time in times_ms]  # clocks may be years off


Chooser = Callable[[list[int], list[float], list[float]], tuple[list[int], list[float]]]


def _chooser(selection: Selection, times_s: Sequence[float]) -> Chooser:
    """Leaves of rows and their values those that are asked for; the third list has what makes a spike."""
    # Rows are in the order of their times, which `now_s` does not change.
    first = 0 if selection.since_s is None else bisect_left(times_s, selection.since_s)
    end = len(times_s) if selection.until_s is None else bisect_right(times_s, selection.until_s)
    most = selection.max_points

    def choose(rows: list[int], values: list[float], heights: list[float]) -> tuple[list[int], list[float]]:
        start, stop = bisect_left(rows, first), bisect_left(rows, end)
        if most is None or stop - start <= most:
            return rows[start:stop], values[start:stop]
        kept = [start + each for each in downsample(heights[start:stop], most)]
        return [rows[each] for each in kept], [values[each] for each in kept]

    return choose


def _unless_empty(column: list[int | None] | list[float | None]) -> list | None:  # type: ignore[type-arg]
    return None if all(each is None for each in column) else column
