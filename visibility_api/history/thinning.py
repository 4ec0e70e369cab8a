"""Fewer points of a series, so that its plot stays the same: the extremes of each of its intervals.

Of a interval stay the least and the greatest finite value, and the first NaN, infinity and minus infinity.
Thinned again, with intervals that are joined, the same points stay as if it had been thinned once: so a
series may be thinned as it grows, and no extreme is ever lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise


def thin(values: Sequence[float], intervals: Iterable[tuple[int, int]]) -> list[int]:
    """The indices of the points that stay: of each interval from its start to before its stop, and the first
    and the last of all. The intervals are in order and cover the values, or the first of them: the others
    stay."""
    kept: list[int] = []
    stop = 0
    for start, stop in intervals:
        if stop - start <= 1:
            if start < stop:
                kept.append(start)
            continue
        interval = values[start:stop]
        if not math.isfinite(sum(interval)):  # something in it is not, or the sum is too large
            kept.extend(start + each for each in _unusual(interval))
            continue
        low, high = interval.index(min(interval)), interval.index(max(interval))
        if low > high:
            low, high = high, low
        kept.append(start + low)
        if low != high:
            kept.append(start + high)
    kept.extend(range(stop, len(values)))
    if kept and kept[0] != 0:
        kept.insert(0, 0)
    if kept and kept[-1] != len(values) - 1:
        kept.append(len(values) - 1)
    return kept


def downsample(values: Sequence[float], most: int) -> list[int]:
    """The indices of at most so many points, at least 2, that show every spike of the series.

    Intervals of equal length, as `thin` thins them (min-max): of two spikes in one interval LTTB shows one.
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    intervals = (most - 2) // 2
    while intervals > 0:
        edges = [count * each // intervals for each in range(intervals + 1)]
        kept = thin(values, pairwise(edges))
        if len(kept) <= most:
            return kept
        intervals -= max(1, (len(kept) - most) // 5)  # values that are not finite took places
    ends, extremes = (0, count - 1), thin(values, [(0, count)])
    return sorted({*ends, *sorted(set(extremes) - {*ends})[: most - 2]})


def _unusual(interval: Sequence[float]) -> list[int]:
    """The same of values some of which are not finite."""
    finite = [index for index, value in enumerate(interval) if math.isfinite(value)]
    kept: set[int] = set()
    if finite:
        kept |= {min(finite, key=interval.__getitem__), max(finite, key=interval.__getitem__)}
    for test in (math.isnan, math.inf.__eq__, (-math.inf).__eq__):
        first = next((index for index, value in enumerate(interval) if test(value)), None)
        if first is not None:
            kept.add(first)
    return sorted(kept)
