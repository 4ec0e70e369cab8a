"""How far a node's clock is off, by the times of its reports and of their reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from visibility_api.jobs.clock import MAX_SKEW_S, NodeClock

T0 = datetime(2026, 1, 23, 10, 0, tzinfo=UTC)
HOUR = 3600.0


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def read(clock: NodeClock, *, reported: float, received: float, unseen: float | None = None) -> NodeClock:
    not_before = None if unseen is None else at(unseen)
    return clock.bounded(at(reported), received=at(received), not_before=not_before)


def test_a_clock_that_no_report_has_shown_counts_as_right() -> None:
    assert NodeClock().ahead_s == 0.0
    assert not NodeClock().is_known


def test_an_old_report_does_not_show_that_a_clock_is_behind() -> None:
    assert read(NodeClock(), reported=0, received=600).ahead_s == 0.0


def test_a_report_from_the_future_shows_a_clock_that_is_ahead() -> None:
    assert read(NodeClock(), reported=HOUR, received=0).ahead_s == HOUR


def test_a_report_seen_to_come_with_an_old_time_shows_a_clock_that_is_behind() -> None:
    clock = read(NodeClock(), reported=-HOUR, received=0)
    clock = read(clock, reported=-HOUR + 10, received=15, unseen=0)
    assert clock.ahead_s == -HOUR


def test_small_differences_are_none() -> None:
    assert read(NodeClock(), reported=MAX_SKEW_S, received=0).ahead_s == 0.0
    assert read(NodeClock(), reported=-MAX_SKEW_S, received=15, unseen=0).ahead_s == 0.0


def test_the_report_read_soonest_after_it_was_written_shows_the_clock_best() -> None:
    clock = NodeClock()
    for second, delay_s in ((0, 12), (20, 3), (40, 9)):
        clock = read(clock, reported=second + HOUR, received=second + delay_s, unseen=second - 3)
    assert clock.ahead_s == HOUR - 3


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_a_clock_that_is_set_while_the_run_goes_on_is_recognised_anew(set_by: float) -> None:
    clock = NodeClock()
    for second in range(0, 60, 15):
        clock = read(clock, reported=second, received=second + 2, unseen=second - 13)
    clock = read(clock, reported=60 + set_by, received=62, unseen=47)
    assert clock.ahead_s == set_by - 2


@given(
    ahead_s=st.floats(-1e6, 1e6),
    reads=st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 600), st.floats(0, 600)), min_size=1),
)
def test_the_bounds_of_a_steady_clock_hold_it(
    ahead_s: float, reads: list[tuple[float, float, float]]
) -> None:
    clock = NodeClock()
    for written, unread_s, unseen_s in reads:
        clock = read(
            clock, reported=written + ahead_s, received=written + unread_s, unseen=written - unseen_s
        )
        assert clock.at_least_s is not None
        assert clock.at_most_s is not None
        assert clock.at_least_s - 1e-5 <= ahead_s <= clock.at_most_s + 1e-5
