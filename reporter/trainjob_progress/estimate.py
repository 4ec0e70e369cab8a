"""How fast a run goes, from what was seen of it. Pure: the caller brings the time.

The rule, which docs/document.md has in words and tests/vectors/estimates.json in examples: one rate, of the
later intervals, without start-up and without a pause that came only once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    Interval = tuple[int, float]  # from one sample to the next: steps, seconds


MAX_SAMPLES = 24
LATER_SHARE = 2 / 3  # of the intervals, from which the rate is taken
LATER_LEAST = 8  # intervals, or all if there are fewer
CLEARLY = 2.5  # standard errors by which two halves of these differ if the rate changes
GOES_ON = 0.1  # of the time a step takes, at most: so much further does such a change lead


class Pace:
    """Remembers when which step was reached."""

    __slots__ = ("_samples", "_spacing_s")

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []
        self._spacing_s = 0.0

    def observe(self, at_s: float, step: int) -> None:
        """Note that `step` was reached at `at_s` of a monotonic clock. Keeps at most MAX_SAMPLES.

        The first call is the start: a resumed run begins at the step of its checkpoint.
        """
        samples = self._samples
        if samples and step < samples[-1][1]:
            samples = []  # counting began again: nothing seen before says how fast this goes
            self._spacing_s = 0.0
        if samples and (step == samples[-1][1] or at_s - samples[-1][0] < self._spacing_s):
            return
        samples = [*samples, (at_s, step)]
        if len(samples) > MAX_SAMPLES + 1:
            samples = [*samples[:2], *samples[3::2]]  # the start and the first steps stay apart
            self._spacing_s = (samples[-1][0] - samples[1][0]) / (len(samples) - 1)
        self._samples = samples  # replaced, never changed: another thread may be reading

    def steps_per_s(self) -> Optional[float]:
        """Pauses that come again included. None until steps have been seen after the first ones."""
        step_s = _measure(self._samples)
        return None if step_s is None else 1 / step_s

    def remaining_s(self, step: int, total_steps: int) -> Optional[float]:
        """Seconds until `total_steps`; None while nothing says how fast this goes."""
        step_s = _measure(self._samples)
        return None if step_s is None else max(total_steps - step, 0) * step_s


def _measure(samples: Sequence[tuple[float, int]]) -> Optional[float]:
    """Seconds a step takes, pauses that come again included."""
    # The first interval is not like the others: imports, compilation, caches, the first batch.
    intervals: list[Interval] = [
        (step - before, at_s - before_s)
        for (before_s, before), (at_s, step) in zip(samples[1:], samples[2:])  # noqa: B905, RUF007 — 3.9
    ]
    if len(intervals) < 2:  # one alone may be a second compilation, or contain an evaluation
        return None
    # The slowest counts as the second slowest: a pause comes again, or it is none that a rate should show.
    slow_s = sorted(seconds / steps for steps, seconds in intervals)[-2]
    steady = [(steps, min(seconds, slow_s * steps)) for steps, seconds in intervals]
    return _last_step_s(steady[-max(LATER_LEAST, int(LATER_SHARE * len(steady))) :])


def _last_step_s(intervals: Sequence[Interval]) -> float:
    """Seconds a step at their end: their mean, or where their halves clearly differ that of the later half,
    and the difference once more, for such a change goes on."""
    half = len(intervals) // 2
    if half >= 2:
        earlier_s, earlier_error_s = _mean(intervals[:half])
        later_s, later_error_s = _mean(intervals[half:])
        by_s = later_s - earlier_s
        if abs(by_s) > CLEARLY * (earlier_error_s**2 + later_error_s**2) ** 0.5:
            most_s = GOES_ON * later_s
            return later_s + max(-most_s, min(most_s, by_s))
    return _mean(intervals)[0]


def _mean(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Seconds a step, and the standard error of that, by the mean deviation."""
    steps = sum(count for count, _ in intervals)
    mean_s = sum(seconds for _, seconds in intervals) / steps
    deviation_s = sum(abs(seconds - mean_s * count) for count, seconds in intervals)
    return mean_s, 1.25 * deviation_s / steps / len(intervals) ** 0.5


def find_percentage(
    *,
    step: Optional[int],
    total_steps: Optional[int],
    epoch: Optional[float],
    total_epochs: Optional[float],
    percentage: Optional[float],
) -> Optional[int]:
    """Whole percents that are done, never more than there are; None where no end is known.

    A percentage that was given stands before steps, and steps before epochs.
    """
    if percentage is not None:
        return min(int(percentage), 100)
    if step is not None and total_steps:
        return min(100 * step // total_steps, 100)
    if epoch is not None and total_epochs:
        return min(int(100 * epoch / total_epochs), 100)
    return None
