"""How fast a run goes, from what was seen of it. Pure: the caller brings the time.

The rule, which docs/document.md has in words and tests/vectors/rhythms.json in recorded runs:
start-up is left out, steps have a robust rate, and pauses (evaluations, checkpoints) are apart.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    Stretch = tuple[int, int, float]  # from one sample to the next: the step at its end, steps, seconds


MAX_SAMPLES = 64
PAUSE_FACTOR = 3.0  # a stretch that takes this many times as long a step as others holds a pause
CLEARLY = 8.0  # times as far above the median as the upper quartile is: so does one that stands alone…
CLEARLY_AT_LEAST = 0.05  # …and is above the median by this share
RECENT = 8  # stretches at least that the rate is taken from; else the later half
SINGLE_SHARE = 0.125  # of a pause that came once: it comes again, or never
SINGLE_FORGOTTEN = 1.5  # after as many times the way to a single pause, it comes no more
TREND_SHARE = 0.5  # of a rate's steady change, as far ahead as it was seen: trends wear off
TREND_LOW, TREND_HIGH = -0.3, 0.4  # of the time of a step: what a trend may add at most
TREND_SO_FAR = 0.5  # the same of what it has added since the middle of what the rate is taken from


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
        if len(samples) > MAX_SAMPLES:
            samples = [*samples[:2], *samples[3::2]]  # the start and the first steps stay apart
            self._spacing_s = (samples[-1][0] - samples[1][0]) / len(samples)
        self._samples = samples  # replaced, never changed: another thread may be reading

    def steps_per_s(self) -> Optional[float]:
        """Pauses that come again included. None until steps have been seen after the first ones."""
        found = _measure(self._samples)
        return None if found is None else 1 / (found[0] + found[1])

    def remaining_s(self, step: int, total_steps: int) -> Optional[float]:
        """Seconds until `total_steps`; None while nothing says how fast this goes."""
        found = _measure(self._samples)
        if found is None:
            return None
        step_s, pause_s, single_s, trend_s, reach = found
        left = max(total_steps - step, 0)
        ahead_s = max(
            TREND_LOW * step_s, min(TREND_HIGH * step_s, TREND_SHARE * trend_s * min(left / 2, reach))
        )
        return left * (step_s + pause_s + SINGLE_SHARE * min(single_s, step_s + pause_s) + ahead_s)


def _measure(samples: Sequence[tuple[float, int]]) -> Optional[tuple[float, float, float, float, float]]:
    """Seconds a step takes: without pauses, of pauses that come again, and of pauses that came once; by how
    much it grows with each step, and over how many steps that was seen."""
    # The first stretch is not like the others: imports, compilation, caches, the first batch.
    stretches: list[Stretch] = [
        (step, step - before, at_s - before_s)
        for (before_s, before), (at_s, step) in zip(samples[1:], samples[2:])  # noqa: B905, RUF007 — 3.9
    ]
    if len(stretches) < 2:  # one alone may be a second compilation, or hold an evaluation
        return None
    usual_s, upper_s = _middle(stretches[-max(RECENT, len(stretches) // 2) :])
    limit_s = PAUSE_FACTOR * usual_s
    while stretches and stretches[0][2] > limit_s * stretches[0][1]:
        del stretches[0]  # before the first steady one it is still the start: a second compilation
    clear_s = min(limit_s, usual_s + max(CLEARLY * (upper_s - usual_s), CLEARLY_AT_LEAST * usual_s))
    paused = _paused(stretches, limit_s, clear_s)
    steady = [(steps, seconds) for end, steps, seconds in stretches if end not in paused]
    if not steady:
        return None
    level = _last_alike(steady[-max(RECENT, len(steady) // 2) :])
    step_s = _per_step(level)
    trend_s, reach = _trend(steady)
    if trend_s:  # what is measured is the middle of these, and the run is at their end
        to_end_s = trend_s * sum(steps for steps, _ in level) / 2
        step_s += max(-TREND_SO_FAR * step_s, min(TREND_SO_FAR * step_s, to_end_s))
    pause_s = single_s = 0.0
    first, last = samples[0][1], samples[-1][1]
    pauses = [
        (seconds - steps * step_s, end)
        for end, steps, seconds in stretches
        if end in paused and seconds > steps * step_s
    ]
    for alike in _group(pauses):
        ends = sorted(end for _, end in alike)
        since = last - ends[-1]
        if len(ends) == 1:
            if since <= SINGLE_FORGOTTEN * (ends[0] - first):
                single_s += alike[0][0] / max(ends[0] - first, since)
            continue
        usual = (ends[-1] - ends[0]) / (len(ends) - 1)
        span = ends[-1] - ends[0] + (since if since > 2 * usual else 0)  # they may have ceased
        pause_s += sum(seconds for seconds, end in alike if end != ends[0]) / span
    return step_s, pause_s, single_s, trend_s, reach


def _per_step(stretches: Sequence[tuple[int, float]]) -> float:
    """Seconds a step, of (steps, seconds)."""
    return sum(seconds for _, seconds in stretches) / sum(steps for steps, _ in stretches)


def _differ(one: Sequence[tuple[int, float]], other: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """By how many seconds a step `other` takes longer, and the standard error of that, by mean deviations."""
    error, means = 0.0, []
    for part in (one, other):
        mean = _per_step(part)
        steps = sum(count for count, _ in part)
        deviation = sum(abs(seconds - mean * count) for count, seconds in part) / steps
        error += (1.25 * deviation) ** 2 / len(part)
        means.append(mean)
    return means[1] - means[0], error**0.5


def _last_alike(stretches: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """The longest end of them that shows no change of rate: halved as long as its halves clearly differ."""
    while len(stretches) >= 4:
        half = len(stretches) // 2
        by_s, error_s = _differ(stretches[:half], stretches[half:])
        if abs(by_s) <= 2 * error_s + 0.01 * _per_step(stretches):
            break
        stretches = stretches[half:]
    return stretches


def _trend(stretches: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """By how much the seconds a step grow with each step, and over how many that was seen; (0, 0) unless each
    quarter is beyond the one before and the halves clearly differ: noise and single changes are no trend. Nor
    is it more than the later half shows, for trends flatten."""
    half, quarter = len(stretches) // 2, len(stretches) // 4
    if quarter < 2:
        return 0.0, 0.0
    quarters = [
        _per_step(stretches[start:end])
        for start, end in ((0, quarter), (quarter, half), (half, half + quarter), (half + quarter, None))
    ]
    if quarters not in (sorted(quarters), sorted(quarters, reverse=True)):
        return 0.0, 0.0
    by_s, error_s = _differ(stretches[:half], stretches[half:])
    if abs(by_s) <= 3 * error_s:
        return 0.0, 0.0
    later_s, _ = _differ(stretches[half : half + quarter], stretches[half + quarter :])
    goes_on = 2 * later_s / by_s  # twice: half as many steps, so half the difference
    reach = float(sum(steps for steps, _ in stretches))
    return 2 * by_s / reach * max(0.0, min(1.0, goes_on)), reach


def _group(pauses: Sequence[tuple[float, int]]) -> list[list[tuple[float, int]]]:
    """Pauses that are about as long as each other: a hiccup does not make of an evaluation a second one."""
    groups: list[list[tuple[float, int]]] = []
    for pause in sorted(pauses, reverse=True):
        if groups and pause[0] * PAUSE_FACTOR >= groups[-1][-1][0]:
            groups[-1].append(pause)
        else:
            groups.append([pause])
    return groups


def _paused(stretches: Sequence[Stretch], limit_s: float, clear_s: float) -> set[int]:
    """The ends of those that hold a pause: of more seconds a step than `limit_s`; or than `clear_s`, between
    two that are not. The longer stretches are, the less of a pause is in a step of one."""
    found = {end for end, steps, seconds in stretches if seconds > clear_s * steps}
    alone = set()
    if len(stretches) > RECENT:
        for (before, _, _), (end, _, _), (after, _, _) in zip(  # noqa: B905 — 3.9
            stretches, stretches[1:], stretches[2:]
        ):
            if end in found and before not in found and after not in found:
                alone.add(end)
    return alone | {end for end, steps, seconds in stretches if seconds > limit_s * steps}


def _middle(stretches: Sequence[Stretch]) -> tuple[float, float]:
    """The median and the upper quartile of the seconds a step, each stretch counting with its steps."""
    ordered = sorted((seconds / steps, steps) for _, steps, seconds in stretches)
    quarter = sum(steps for _, steps in ordered) / 4
    seen, median_s = 0, 0.0
    for step_s, steps in ordered:
        seen += steps
        if not median_s and seen >= 2 * quarter:
            median_s = step_s
        if seen >= 3 * quarter:
            return median_s, step_s
    return median_s or ordered[-1][0], ordered[-1][0]


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
