"""Fewer points of a series, so that its plot stays the same: the extremes of each of its stretches.

Of a stretch stay the least and the greatest finite value, and the first NaN, infinity and minus infinity.
Thinned again, with stretches that are joined, the same points stay as if it had been thinned once: so a
series may be thinned as it grows, and no extreme is ever lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise


def thin(values: Sequence[float], stretches: Iterable[tuple[int, int]]) -> list[int]:
    """The indices of the points that stay: of each stretch from its start to before its stop, and the first
    and the last of all. The stretches are in order and cover the values."""
    kept: list[int] = []
    for start, stop in stretches:
        if stop - start <= 1:
            kept.extend(range(start, stop))
            continue
        stretch = values[start:stop]
        if not math.isfinite(sum(stretch)):  # something in it is not, or the sum is too large
            kept.extend(start + each for each in _unusual(stretch))
            continue
        low, high = stretch.index(min(stretch)), stretch.index(max(stretch))
        if low > high:
            low, high = high, low
        kept.append(start + low)
        if low != high:
            kept.append(start + high)
    if kept and kept[0] != 0:
        kept.insert(0, 0)
    if kept and kept[-1] != len(values) - 1:
        kept.append(len(values) - 1)
    return kept


def downsample(values: Sequence[float], most: int) -> list[int]:
    """The indices of at most so many points, at least 2, that show every spike of the series.

    Stretches of equal length, as `thin` thins them (min-max): of two spikes in one stretch LTTB shows one.
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = (most - 2) // 2
    while stretches > 0:
        edges = [count * each // stretches for each in range(stretches + 1)]
        kept = thin(values, pairwise(edges))
        if len(kept) <= most:
            return kept
        stretches -= max(1, (len(kept) - most) // 5)  # values that are not finite took places
    ends, extremes = (0, count - 1), thin(values, [(0, count)])
    return sorted({*ends, *sorted(set(extremes) - {*ends})[: most - 2]})


def _unusual(stretch: Sequence[float]) -> list[int]:
    """The same of values some of which are not finite."""
    finite = [index for index, value in enumerate(stretch) if math.isfinite(value)]
    kept: set[int] = set()
    if finite:
        kept |= {min(finite, key=stretch.__getitem__), max(finite, key=stretch.__getitem__)}
    for test in (math.isnan, math.inf.__eq__, (-math.inf).__eq__):
        first = next((index for index, value in enumerate(stretch) if test(value)), None)
        if first is not None:
            kept.add(first)
    return sorted(kept)
