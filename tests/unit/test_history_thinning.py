"""Fewer points show what all of them show: extremes, what is not finite, the first and the last."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from visibility_api.history.thinning import downsample, thin

VALUES = st.lists(
    st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=200
)


def kinds(values: list[float]) -> tuple[object, ...]:
    """What must not be lost."""
    finite = [value for value in values if math.isfinite(value)]
    return (
        min(finite, default=None),
        max(finite, default=None),
        any(map(math.isnan, values)),
        math.inf in values,
        -math.inf in values,
    )


def intervals_of(count: int, length: int) -> list[tuple[int, int]]:
    return [(start, min(start + length, count)) for start in range(0, count, length)]


@settings(max_examples=40, deadline=None)
@given(VALUES, st.integers(1, 50))
def test_each_interval_keeps_what_must_not_be_lost(values: list[float], length: int) -> None:
    kept = thin(values, intervals_of(len(values), length))
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, len(values) - 1)
    for start, stop in intervals_of(len(values), length):
        assert kinds([values[each] for each in kept if start <= each < stop]) == kinds(values[start:stop])
    assert len(kept) <= 5 * math.ceil(len(values) / length) + 2


@settings(max_examples=40, deadline=None)
@given(VALUES, st.integers(1, 8), st.integers(1, 5))
def test_thinned_again_is_as_thinned_once(values: list[float], length: int, factor: int) -> None:
    once = thin(values, intervals_of(len(values), length * factor))
    fine = thin(values, intervals_of(len(values), length))
    left = [values[each] for each in fine]
    ends = [sum(each < stop for each in fine) for _, stop in intervals_of(len(values), length * factor)]
    again = [fine[each] for each in thin(left, pairwise([0, *ends]))]
    assert [values[each] for each in again if each in once] == [values[each] for each in once]


@settings(max_examples=40, deadline=None)
@given(VALUES, st.integers(2, 40))
def test_no_more_points_than_asked_for(values: list[float], most: int) -> None:
    kept = downsample(values, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    assert {0, len(values) - 1} <= set(kept)
    if most >= 7:
        assert kinds([values[each] for each in kept]) == kinds(values)
    if len(values) <= most:
        assert len(kept) == len(values)


@pytest.mark.parametrize("at", [1, 17, 2499, 4998])
@pytest.mark.parametrize("height", [9.0, -9.0])
def test_a_spike_of_one_point_in_5000_is_shown(at: int, height: float) -> None:
    values = [math.sin(each / 300) for each in range(5000)]
    values[at] = height
    kept = downsample(values, 500)
    assert at in kept
    assert 400 <= len(kept) <= 500
