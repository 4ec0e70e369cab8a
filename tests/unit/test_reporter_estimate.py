"""How fast a run goes, from what was seen of it: by rule, and on recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress.estimate import MAX_SAMPLES, Pace

VECTORS = Path(__file__).parents[1] / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    file = VECTORS / f"{name}.json"
    return json.loads(file.read_text())[name] if file.exists() else []


RHYTHMS, ESTIMATES = vectors("rhythms"), vectors("estimates")


def run(*intervals: tuple[int, float]) -> tuple[Pace, int, float]:
    """A pace that has seen each (steps, seconds for each of them); and where that ends."""
    pace, step, at_s = Pace(), 0, 0.0
    pace.observe(at_s, step)
    for steps, seconds in intervals:
        for _ in range(steps):
            step, at_s = step + 1, at_s + seconds
            pace.observe(at_s, step)
    return pace, step, at_s


def test_nothing_seen_is_no_rate() -> None:
    assert Pace().remaining_s(0, 100) is None
    assert run()[0].steps_per_s() is None


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("seconds", [0.01, 300.0])
def test_the_first_steps_alone_are_no_rate(steps: int, seconds: float) -> None:
    """They compile, load and warm up: an ETA from them was up to 500 times too long."""
    assert run((steps, seconds))[0].remaining_s(steps, 1000) is None


@pytest.mark.parametrize("slow", [(1, 120.0), (2, 60.0)])
def test_a_slow_start_is_left_out_as_soon_as_there_are_other_steps(slow: tuple[int, float]) -> None:
    pace, step, _ = run(slow, (max(slow[0], 2), 0.1))
    assert pace.remaining_s(step, 1000) == pytest.approx(0.1 * (1000 - step), rel=0.01)


def test_pauses_that_have_ceased_are_forgotten() -> None:
    pace, step, _ = run((10, 0.1), (1, 5.0), (10, 0.1), (1, 5.0), (2000, 0.1))
    assert pace.remaining_s(step, step + 1000) == pytest.approx(100, rel=0.1)


def test_a_long_run_keeps_a_bounded_number_of_samples_and_its_rate() -> None:
    pace, step, _ = run((1, 30.0), (100_000, 0.1))
    assert len(pace._samples) <= MAX_SAMPLES + 1
    assert pace.steps_per_s() == pytest.approx(10.0, rel=0.02)
    assert pace.remaining_s(step, step + 1000) == pytest.approx(100, rel=0.02)


def test_counting_that_begins_again_starts_afresh() -> None:
    pace, _, at_s = run((1000, 0.001))
    for i in range(11):
        pace.observe(at_s + i, i)
    assert pace.steps_per_s() == pytest.approx(1.0)


def test_a_run_that_stands_still_keeps_its_estimate() -> None:
    """How long it has stood still is the age of its document; an estimate that grows says nothing more."""
    pace, step, at_s = run((10, 1.0))
    before = pace.remaining_s(step, 100)
    pace.observe(at_s + 3600, step)
    assert pace.remaining_s(step, 100) == before


@pytest.mark.parametrize("vector", ESTIMATES, ids=lambda vector: str(vector["name"]))
def test_the_rule_is_that_of_the_server(vector: dict[str, Any]) -> None:
    pace = Pace()
    for at_s, step in vector["samples"]:
        pace.observe(at_s, step)
    expected, per_second = vector["remainingSeconds"], vector["stepsPerSecond"]
    remaining_s = pace.remaining_s(vector["samples"][-1][1], vector["total"])
    assert remaining_s == (expected if expected is None else pytest.approx(expected, rel=1e-4))
    assert pace.steps_per_s() == (per_second if per_second is None else pytest.approx(per_second, rel=1e-4))


@pytest.mark.parametrize("rhythm", RHYTHMS, ids=lambda rhythm: str(rhythm["name"]))
@pytest.mark.parametrize("interval_s", [0.0, 0.5], ids=["each step", "as collected"])
def test_an_estimate_on_a_recorded_run_is_never_far_from_what_came(
    rhythm: dict[str, Any], interval_s: float
) -> None:
    """Never above 3 times of it; nor, from half of it on, below a third: pauses must come twice."""
    samples = rhythm["samples"]
    end_s, total = samples[-1]
    pace, last_s, judged = Pace(), float("-inf"), 0
    for at_s, step in samples:
        if at_s - last_s < interval_s:
            continue
        last_s = at_s
        pace.observe(at_s, step)
        remaining_s, left_s = pace.remaining_s(step, total), end_s - at_s
        if remaining_s is None or left_s < 0.05 * end_s:
            continue  # at the very end, half a second is a large share of what is left
        judged += 1
        assert remaining_s <= 3 * left_s, (at_s, step)
        if step >= 0.5 * total:
            assert remaining_s >= left_s / 3, (at_s, step)
    assert judged
