"""Rate and end of a run, from differences of its own clock."""

from __future__ import annotations

import json
import random
import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from benchmarks.estimates import judge, measure
from tests import rhythms
from visibility_api.jobs.estimate import MAX_SAMPLES, Pace, percentage
from visibility_api.jobs.forecast import Forecast, measure as measure_samples
from visibility_api.reports.document import Progress

T0 = datetime(2026, 1, 23, 10, 0, tzinfo=UTC)
VECTORS = Path(__file__).parents[1] / "vectors" / "estimates.json"
ESTIMATES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["estimates"]


def report(after_s: float, step: int | None = None, total: int | None = 1000, **more: object) -> Progress:
    at = T0 + timedelta(seconds=after_s)
    return Progress(timestamp=at, step=step, total_steps=total, **more)  # type: ignore[arg-type]


def pace_of(*reports: Progress) -> Pace:
    pace = Pace()
    for one in reports:
        pace = pace.advance(one)
    return pace


def test_one_report_gives_no_pace() -> None:
    assert pace_of(report(0, step=500)).per_second is None


def test_two_reports_give_the_rate_between_them() -> None:
    pace = pace_of(report(0, step=100), report(10, step=150))
    assert pace.steps_per_s() == pytest.approx(5.0)
    assert pace.remaining_s(report(10, step=150)) == pytest.approx(170.0)


def test_going_back_to_a_checkpoint_measures_anew_and_is_no_error() -> None:
    pace = pace_of(report(0, step=100), report(10, step=200), report(20, step=120))
    assert pace.per_second is None
    assert pace.advance(report(30, step=140)).per_second == pytest.approx(2.0)


def test_a_clock_that_goes_backwards_changes_no_rate() -> None:
    pace = pace_of(report(0, step=100), report(10, step=200))
    assert pace.advance(report(-3600, step=300)).per_second == pace.per_second


def test_a_clock_that_jumps_ahead_changes_no_rate_and_makes_no_pause() -> None:
    before = Pace().advance(report(0, 0)).advance(report(10, 10))
    jumped = before.advance(report(3620, 20), waited_s=70)
    assert (jumped.per_second, jumped.longest_gap_s) == (before.per_second, before.longest_gap_s)
    assert jumped.advance(report(3630, 30), waited_s=70).per_second == pytest.approx(1.0)


def test_the_same_report_read_twice_changes_nothing() -> None:
    pace = pace_of(report(0, step=100), report(10, step=200))
    assert pace.advance(report(10, step=200)) == pace


def test_the_longest_pause_between_two_moves_is_kept() -> None:
    pace = pace_of(report(0, step=1), report(1, step=2), report(61, step=3), report(62, step=4))
    assert pace.longest_gap_s == 60.0


def test_without_steps_the_percentage_gives_the_end() -> None:
    pace = pace_of(
        report(0, total=None, progress_percentage=10), report(10, total=None, progress_percentage=20)
    )
    assert pace.remaining_s(report(10, total=None, progress_percentage=20)) == pytest.approx(80.0)
    assert pace.steps_per_s() is None


def test_the_reports_own_estimate_counts_until_a_pace_is_known() -> None:
    first, second = report(0, step=100, remaining_s=7), report(10, step=200, remaining_s=7)
    assert pace_of(first).remaining_s(first) == 7.0
    assert pace_of(first, second).remaining_s(second) == 7.0
    third = report(20, step=300, remaining_s=7)
    assert pace_of(first, second, third).remaining_s(third) == pytest.approx(70.0)


def test_what_was_seen_of_the_start_alone_is_no_end() -> None:
    """The first step compiles: an end estimated from it was hundreds of times too late."""
    start, first = report(0, step=0), report(60, step=1)
    pace = pace_of(start, first, report(61, step=11))
    assert pace.left_s(report(61, step=11)) is None
    assert pace.advance(report(62, step=21)).remaining_s(report(62, step=21)) == pytest.approx(97.9)


def test_a_run_that_was_resumed_a_moment_ago_has_its_start_before_it() -> None:
    started = {"started_at": T0}
    said = [report(0.1, 500, **started), report(60, 501, **started), report(61, 511, **started)]  # type: ignore[arg-type]
    assert pace_of(*said).left_s(said[-1]) is None


def test_the_end_has_a_range_which_narrows_as_more_is_seen() -> None:
    widths = []
    for count in (5, 20, 60):
        said = [report(10 * i + 0.3 * (i % 3), step=10 * i) for i in range(1, count)]
        likely_s, least_s, most_s = pace_of(*said).left_s(said[-1]) or (None, None, None)
        assert likely_s is not None
        assert least_s is not None
        assert most_s is not None
        assert least_s < 1000 - 10 * count + 10 < most_s
        assert least_s <= likely_s <= most_s
        widths.append((most_s - least_s) / likely_s)
    assert widths == sorted(widths, reverse=True)


def test_the_range_is_wider_the_more_is_still_to_come_and_has_room_for_a_single_pause() -> None:
    forecast = Forecast(unit_s=2.0, pause_s=1.0, seen=100.0, spread=0.1)
    assert forecast.left_s(100.0) == pytest.approx((200.0, 150.0, 393.0))
    assert forecast.left_s(0.0) == (0.0, 0.0, 0.0)
    far = forecast.left_s(1e9)
    assert far[1:] == pytest.approx((2e9 * 0.6, 3e9 * 1.52), rel=1e-3)


def test_the_range_is_as_wide_as_the_quarters_of_what_was_seen_differ() -> None:
    """Of eight intervals the first two take 1.5 s a step, the others 1 s; the slowest two are as slow."""
    samples = [(0.0, 0.0)]
    for unit_s in (1.5, 1.5, 1, 1, 1, 1, 1, 1):
        samples.append((samples[-1][0] + 10 * unit_s, samples[-1][1] + 10))
    forecast = measure_samples(samples)
    assert forecast is not None
    assert (forecast.unit_s, forecast.pause_s, forecast.seen) == (1.125, 0.0, 80.0)
    assert forecast.spread == pytest.approx(0.04 + 0.5 * (1.5 / 1.125 - 1) + 0.2 / 8)


def test_a_single_pause_is_apart_from_the_rate() -> None:
    samples = [(0.0, 0.0), (10.0, 10.0), (20.0, 20.0), (50.0, 30.0), (60.0, 40.0)]
    forecast = measure_samples(samples)
    assert forecast is not None
    assert (forecast.unit_s, forecast.pause_s) == (1.0, 0.5)


def test_a_report_without_a_time_or_a_position_changes_no_pace() -> None:
    pace = pace_of(report(0, step=100), report(10, step=200))
    assert pace.advance(Progress(step=300)) is pace
    assert pace.advance(report(20)) is pace


def test_an_estimate_of_two_reports_has_no_range() -> None:
    said = report(0, step=100), report(10, step=150)
    assert pace_of(*said).left_s(said[-1]) == (pytest.approx(170.0), None, None)


def test_what_is_remembered_of_a_run_of_any_length_is_bounded() -> None:
    pace, longest = Pace(), 0
    for i in range(3000):
        pace = pace.advance(report(15 * i, step=30 * i, total=10**6))
        longest = max(longest, len(pace.samples))
    assert longest <= 8 * MAX_SAMPLES
    assert len(msgspec.msgpack.encode(pace)) < 500
    assert pace.steps_per_s() == pytest.approx(2.0)


def test_a_pace_that_is_remembered_goes_on_as_if_it_had_not_been() -> None:
    said = [report(15 * i + i % 4, step=30 * i, total=10**6) for i in range(200)]
    pace = remembered = Pace()
    for one in said:
        pace, remembered = pace.advance(one), remembered.advance(one)
        remembered = msgspec.json.decode(msgspec.json.encode(remembered), type=Pace)
        assert remembered == pace


@pytest.mark.parametrize("vector", ESTIMATES, ids=lambda vector: str(vector["name"]))
def test_the_rule_is_that_of_the_training_side(vector: dict[str, Any]) -> None:
    pace, said = Pace(), report(0)
    for at_s, step in vector["samples"]:
        said = report(at_s, step, vector["total"], started_at=T0)
        pace = pace.advance(said)
    expected = vector.get("serverRemainingSeconds", vector["remainingSeconds"])
    assert pace.remaining_s(said) == (expected if expected is None else pytest.approx(expected, rel=1e-4))
    if expected is not None:
        per_s = vector.get("serverStepsPerSecond", vector["stepsPerSecond"])
        assert pace.steps_per_s() == pytest.approx(per_s, rel=1e-4)


@pytest.mark.parametrize("interval_s", [15.0, 5.0], ids=["probed", "as reported"])
def test_ends_are_in_their_range_and_for_no_kind_of_run_farther_off_than_tqdms(interval_s: float) -> None:
    """docs/decisions/0030: the median over the moments of a run and over runs, for each kind."""
    kinds = measure(4, 0, interval_s)
    kinds["recorded"] = [kinds.pop(name)[0] for name in list(kinds) if name.startswith("recorded")]
    for name, scores in kinds.items():
        ours, theirs = (statistics.median(getattr(s, of) for s in scores) for of in ("after", "tqdm_after"))
        assert ours <= theirs + 0.01, name
    assert statistics.fmean(score.held for scores in kinds.values() for score in scores) > 0.9


@pytest.mark.parametrize("interval_s", [15.0, 1.0], ids=["probed", "as reported"])
def test_a_run_that_pauses_ten_minutes_after_each_fifty_is_estimated_to_five_percent(
    interval_s: float,
) -> None:
    """A step a second. Pauses that come again are counted, once two of them were seen."""
    view = rhythms.probed if interval_s == 15.0 else rhythms.reported
    for hours in (3.9, 5.5, 8.2):
        run = rhythms.simulate(random.Random(0), int(3000 * hours), 1.0, pauses=[(3000, 600.0, 0.05)])
        score = judge(run, view(run, interval_s))
        assert score is not None
        assert score.after <= 0.05
        assert score.held > 0.9


def test_a_run_without_a_planned_end_has_a_rate_and_no_end() -> None:
    pace = pace_of(report(0, step=1, total=None), report(1, step=2, total=None))
    assert pace.steps_per_s() == pytest.approx(1.0)
    assert pace.remaining_s(report(1, step=2, total=None)) is None


@pytest.mark.parametrize(
    ("one", "percent"),
    [
        (report(0, step=999), 99),
        (report(0, step=1000), 100),
        (report(0, step=0), 0),
        (report(0, step=5, total=None), None),
        (report(0, step=5, progress_percentage=45), 45),
        (report(0, total=None, epoch=1.5, total_epochs=3.0), 50),
        (report(0, total=None), None),
    ],
)
def test_percentage_is_rounded_down_so_that_100_means_all(one: Progress, percent: int | None) -> None:
    assert percentage(one) == percent


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 10**6)), max_size=30))
def test_no_sequence_of_reports_gives_a_negative_rate_or_end(said: list[tuple[float, int]]) -> None:
    reports = [report(at, step=step, total=10**6) for at, step in said]
    pace = pace_of(*reports)
    assert pace.per_second is None or pace.per_second >= 0
    if reports:
        remaining = pace.remaining_s(reports[-1])
        assert remaining is None or remaining >= 0


def test_noise_that_looks_like_an_ever_faster_run_gives_no_negative_rate() -> None:
    """Of a simulated run: the trend of its first ten reports led below zero seconds a step."""
    at_s = (0.0, 123.84, 179.55, 210.66, 243.62, 295.1, 308.91, 327.95, 341.2, 359.76)
    steps = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10)
    said = [report(at, step, 360) for at, step in zip(at_s, steps, strict=True)]
    pace = pace_of(*said)
    assert pace.per_second is not None
    assert 0 < pace.per_second < 0.2
    assert 0 < (pace.remaining_s(said[-1]) or 0) < 20_000


@pytest.mark.parametrize("factor", [0.5, 2.0], ids=["slower", "faster"])
def test_a_lasting_change_of_rate_is_noticed_though_a_run_is_long(factor: float) -> None:
    """After two hours: within an hour the rate is at most a fifth off, and the end in its range."""
    pace, changed_s, total = Pace(), 7200.0, 200_000
    for probe in range(1, 960):
        at_s = 15.0 * probe
        step = int(2 * min(at_s, changed_s) + 2 * factor * max(0.0, at_s - changed_s))
        said = report(at_s, step, total)
        pace = pace.advance(said)
        if at_s > changed_s + 3600:
            assert pace.per_second == pytest.approx(2 * factor, rel=0.2)
            found = pace.left_s(said)
            assert found is not None
            assert (found[1] or 0) < (total - step) / (2 * factor) < (found[2] or 0)


def test_the_range_has_room_for_a_single_pause_to_come_again_and_again() -> None:
    pace, seen = Pace(), report(0, 0, 500)
    for step in range(121):
        seen = report(step + (300 if step > 100 else 0), step, 500)
        pace = pace.advance(seen)
    found = pace.left_s(seen)
    assert found is not None
    likely_s, least_s, most_s = found
    assert least_s is not None
    assert most_s is not None
    assert likely_s == pytest.approx(380)
    assert least_s < 380 < 380 + 3 * 300 < most_s
