"""How fast a run goes, from what was seen of it."""

from __future__ import annotations

import pytest

from trainjob_progress.estimate import MAX_SAMPLES, Pace


def run(pace: Pace, *, steps: range, seconds_per_step: float, start_s: float = 0.0) -> tuple[float, int]:
    for number, step in enumerate(steps):
        pace.observe(start_s + number * seconds_per_step, step)
    return start_s + (len(steps) - 1) * seconds_per_step, steps[-1]


def test_nothing_seen_is_no_rate() -> None:
    assert Pace().steps_per_s(0, 0) is None


def test_one_observation_is_no_rate() -> None:
    pace = Pace()
    pace.observe(1.0, 500)
    assert pace.steps_per_s(2.0, 500) is None


def test_a_steady_run_has_its_rate() -> None:
    pace = Pace()
    assert pace.steps_per_s(*run(pace, steps=range(101), seconds_per_step=0.5)) == pytest.approx(2.0)


def test_a_resumed_run_counts_from_the_first_step_seen() -> None:
    pace = Pace()
    assert pace.steps_per_s(*run(pace, steps=range(90_000, 90_051), seconds_per_step=2.0)) == pytest.approx(
        0.5
    )


def test_a_slow_first_step_is_forgotten() -> None:
    pace = Pace()
    pace.observe(0.0, 0)
    rate = pace.steps_per_s(
        *run(pace, steps=range(1, 402), seconds_per_step=1.0, start_s=120.0)
    )  # compilation
    assert rate == pytest.approx(1.0, rel=0.05)


def test_a_long_run_keeps_a_bounded_number_of_samples_and_its_rate() -> None:
    pace = Pace()
    last = run(pace, steps=range(100_000), seconds_per_step=0.1)
    assert len(pace._samples) <= MAX_SAMPLES
    assert pace.steps_per_s(*last) == pytest.approx(10.0, rel=0.02)


def test_counting_that_begins_again_starts_afresh() -> None:
    pace = Pace()
    end_s, _ = run(pace, steps=range(1000), seconds_per_step=0.001)
    rate = pace.steps_per_s(*run(pace, steps=range(11), seconds_per_step=1.0, start_s=end_s))
    assert rate == pytest.approx(1.0)


def test_a_run_that_stands_still_gets_slower_never_negative() -> None:
    pace = Pace()
    end_s, step = run(pace, steps=range(11), seconds_per_step=1.0)
    rate = pace.steps_per_s(end_s + 90.0, step)
    assert rate is not None
    assert 0 < rate < 0.2
