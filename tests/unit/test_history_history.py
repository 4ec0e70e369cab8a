"""The history of a job: nothing that matters is lost, nothing is there twice, and it stays in its bounds."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, example, given, settings, strategies as st

from tests.jobs import T0
from tests.past import add, progress
from visibility_api.history import job_history as subject
from visibility_api.history.attempt import PROGRESS, Attempt
from visibility_api.history.job_history import ROOM_BYTES, JobHistory, restore
from visibility_api.history.view import HistoryView, Selection, select
from visibility_api.reports.document import Point
from visibility_api.reports.fields import MAX_INTEGER

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes too long to be made smaller
FAR = T0.timestamp() + 1e9
VALUE = st.floats(-1e9, 1e9, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.25, 1e-5])


def view(history: JobHistory | None, **asked: Any) -> HistoryView:
    return select(history, Selection(**asked), now_s=FAR)


def size_of(history: JobHistory) -> int:
    """All bytes of points and names, and what each series and attempt costs."""
    return sum(each.size_bytes() for each in history.attempts)


def lasting(reports: int, metrics: int = 10, *, every_s: float = 15.0, attempt: str = "p1/0/0") -> JobHistory:
    """Of a run whose metrics are noise, the least that can be thinned."""
    noise, history = random.Random(1), JobHistory()
    for each in range(reports):
        values = {f"metric_{n}": round(noise.gauss(1, 0.1), 4) for n in range(metrics)}
        add(history, progress(every_s * each, 10 * each, epoch=each / 1000, metrics=values), attempt)
    return history


@settings(max_examples=10, deadline=None, phases=QUICK)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 900), st.dictionaries(st.sampled_from("abcd"), VALUE, max_size=4)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 60),
)
def test_extremes_and_ends_are_never_lost(
    pattern: list[tuple[float, dict[str, float]]], repetitions: int
) -> None:
    """However long it goes on, also over what there is room for."""
    history, told, at_s = JobHistory(), dict[str, list[float]](), 0.0
    steps = []
    for repetition in range(repetitions):
        for gap_s, metrics in pattern:
            at_s += gap_s + 0.01
            shaken = {name: value * (1 + repetition / 64) for name, value in metrics.items()}
            add(history, progress(at_s, len(steps), metrics=shaken))
            steps.append(len(steps))
            for name, value in shaken.items():
                told.setdefault(name, []).append(value)
    found = view(history)
    assert size_of(history) <= ROOM_BYTES
    [columns] = found.progress
    assert columns.steps is not None
    assert (columns.steps[0], columns.steps[-1]) == (steps[0], steps[-1])
    assert list(columns.times_s) == sorted(columns.times_s)
    assert {each.metric for each in found.series} == set(told)
    for series in found.series:
        values, kept = told[series.metric], list(series.values)
        assert repr([kept[0] + 0.0, kept[-1] + 0.0]) == repr([values[0] + 0.0, values[-1] + 0.0])  # 0 is -0
        assert extremes(kept) == extremes(values)
        assert is_part(kept, values)
        assert list(series.times_s) == sorted(series.times_s)


def extremes(values: Iterable[float]) -> tuple[object, ...]:
    values = list(values)
    finite = [value for value in values if math.isfinite(value)]
    unusual = {str(value) for value in values if not math.isfinite(value)}
    return min(finite, default=None), max(finite, default=None), unusual


def is_part(kept: list[float], values: list[float]) -> bool:
    """Whether the one is the other with some left out: no point is invented, and none changes its place."""
    rest = iter(values)
    return all(any(each == one or (each != each and one != one) for one in rest) for each in kept)


def test_all_is_there_while_there_is_room() -> None:
    history = lasting(40, 4)
    [columns] = view(history).progress
    assert columns.steps == [10 * each for each in range(40)]
    assert history.rows == 40


def test_what_was_reported_lately_is_whole_and_the_oldest_is_thinnest() -> None:
    [columns] = view(lasting(2000)).progress
    steps = [step for step in columns.steps or () if step is not None]
    assert steps[-20:] == [10 * each for each in range(1980, 2000)]
    first, second = (
        sum(low <= step < high for step in steps) for low, high in ((0, 5_000), (14_000, 19_000))
    )
    assert 3 <= first <= second


def test_a_week_of_ten_metrics_has_a_useful_curve_in_its_bounds() -> None:
    """Enough of a week that all widths have been gone through: each doubling is as the one before."""
    history = lasting(3000)
    assert size_of(history) <= ROOM_BYTES
    assert min(len(each.values) for each in view(history).series) >= 35


@pytest.mark.parametrize("metrics", [1, 3, 64])
def test_few_metrics_have_more_points_and_many_have_some(metrics: int) -> None:
    history = lasting(1200 if metrics < 64 else 150, metrics)
    found = [len(each.values) for each in view(history).series]
    assert len(found) == metrics
    assert min(found) >= {1: 180, 3: 90, 64: 6}[metrics]
    assert size_of(history) <= ROOM_BYTES


# --- hostile reports


@pytest.mark.parametrize(("metrics", "rows"), [(1, 256), (20, 100), (64, 32)])
def test_room_for_points_that_come_together_is_made_once(
    metrics: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push with as many as are read would keep the event loop for 20 ms, if each made room for itself."""
    history, shrunk = lasting(200, metrics), Counter[str]()
    shrink = Attempt.shrink
    monkeypatch.setattr(Attempt, "shrink", lambda of, by_bytes: (shrunk.update("s"), shrink(of, by_bytes))[1])
    values = tuple([(f"metric_{n}", "0.5") for n in range(metrics)])
    points = [
        Point(timestamp=T0 + timedelta(seconds=3000 + each / 100), step=2000 + each, metrics=values)
        for each in range(rows)
    ]
    add(history, progress(3015, 9000, metrics=dict.fromkeys(dict(values), 0.5)), points=points)
    assert size_of(history) <= ROOM_BYTES
    assert 1 <= shrunk.total() <= 3


@pytest.mark.timeout(20)
@pytest.mark.parametrize("characters", range(10, 18))
def test_an_attempt_begins_where_those_before_it_leave_no_room(characters: int) -> None:
    """Of one report each, they cannot be thinned. The server hung for ever, as did those that follow it."""
    history = JobHistory()
    metrics = {f"{n:0{characters}}": n for n in range(34)}
    for number in range(12):
        add(history, progress(100 * number, number, metrics=metrics), f"a/{number}", continues=False)
    assert size_of(history) <= ROOM_BYTES
    assert history.attempts[-1].number == 11


def test_ever_new_names_displace_no_series_and_take_no_memory() -> None:
    history = JobHistory()
    for each in range(300):
        names = {f"{each}-{n}-{'x' * 50}": n for n in range(60)}
        add(history, progress(15 * each, each, metrics={"loss": each % 7, **names}))
    assert size_of(history) <= ROOM_BYTES
    loss = next(each for each in view(history).series if each.metric == "loss")
    assert len(loss.values) >= 4
    assert (loss.values[0], loss.values[-1]) == (0, 299 % 7)


@pytest.mark.parametrize("name", ["", "\x1f", "a\x1fb", "\x00", "\N{GRINNING FACE}" * 64, "x" * 5000])
def test_any_name_is_a_name(name: str) -> None:
    history = JobHistory()
    for each in range(60):
        add(history, progress(each, each, metrics={"loss": each, name: 1}))
    assert size_of(history) <= ROOM_BYTES
    assert len(view(history).series[0].values) == 60


@settings(max_examples=10, deadline=None, phases=QUICK)
@example([("a", False, 0.0, None, None, {"": 1.0}, 0.0, False)] * 3)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.booleans(),
            st.floats(-5e8, 2e11),
            st.none() | st.integers(0, 2**53),
            st.none() | st.floats(0, 2**53),
            st.dictionaries(st.text(max_size=3), st.floats() | st.text(max_size=4), max_size=5),
            st.floats(-1e10, 1e10),
            st.booleans(),
        ),
        max_size=80,
    )
)
def test_whatever_is_reported_it_can_be_read_and_stored(reports: list[tuple[Any, ...]]) -> None:
    """Clocks that jump by centuries, metrics that are no numbers, attempts that come and go."""
    history = JobHistory()
    for attempt, continues, at_s, step, epoch, metrics, ahead_s, is_set in reports:
        report = progress(at_s, step, epoch=epoch, metrics=metrics)
        add(
            history,
            report,
            attempt,
            continues=continues,
            ahead_s=ahead_s,
            is_clock_set=is_set,
            reported_at=T0,
        )
    found = view(history)
    for columns in (*found.progress, *found.series):
        assert list(columns.times_s) == sorted(columns.times_s)
        assert all(0 <= time_s <= FAR for time_s in columns.times_s)
    again = restore(history.save())
    assert again is not None
    assert repr(view(again)) == repr(found)
    assert len(history.attempts) <= subject.MAX_ATTEMPTS


# --- points that come late or twice


def point(at_s: float, value: int) -> Point:
    return Point(timestamp=T0 + timedelta(seconds=at_s), step=value, metrics=(("loss", str(value)),))


def tell(history: JobHistory, at_s: int, tail: Iterable[int], **more: Any) -> None:
    """A report with earlier points, by their seconds; loss and step are the second."""
    report = progress(at_s, max(at_s, 0), metrics={"loss": at_s})
    add(history, report, points=[point(each, max(each, 0)) for each in tail], **more)


def losses(history: JobHistory) -> list[float]:
    return [value for each in view(history).series for value in each.values]


def test_points_between_two_reports_are_kept_once() -> None:
    history = JobHistory()
    for at_s in (10, 20, 30, 30):
        tell(history, at_s, range(max(0, at_s - 15), at_s))
    assert losses(history) == list(map(float, range(31)))


def test_points_whose_times_are_rounded_are_the_same() -> None:
    history = JobHistory()
    tell(history, 20, range(10, 20))
    later = [point(each + 0.001, each) for each in range(10, 30)]
    add(history, progress(30, 30, metrics={"loss": 30}), points=later)
    assert losses(history) == list(map(float, range(10, 31)))


def test_several_points_of_one_second_are_told_apart_by_their_steps() -> None:
    history = JobHistory()
    for _ in range(2):
        report = progress(5, 8, metrics={"loss": 8})
        add(history, report, points=[point(5, each) for each in range(8)])
    assert losses(history) == list(map(float, range(9)))


def test_another_metric_of_the_same_step_is_added() -> None:
    history = JobHistory()
    for metrics in ({"loss": 1}, {"loss": 1, "eval_loss": 2}, {"loss": 1, "eval_loss": 2}):
        add(history, progress(5, 8, metrics=metrics))
    assert [(each.metric, each.values) for each in view(history).series] == [
        ("loss", [1]),
        ("eval_loss", [2]),
    ]


def test_a_clock_that_is_set_back_or_forward_leaves_the_times_as_they_are() -> None:
    history = JobHistory()
    for minute, shift_s in enumerate([0, 0, -3600, -3600, 86400, 86400]):
        told_s = 60 * minute + shift_s
        at = T0 + timedelta(minutes=minute)
        more = {"reported_at": at, "is_clock_set": minute in (2, 4), "ahead_s": float(shift_s)}
        tell(history, told_s, [told_s - 40, told_s - 20], **more)
    [columns] = view(history).progress
    assert [round(time_s - T0.timestamp()) for time_s in columns.times_s[-3:]] == [260, 280, 300]
    assert max(columns.times_s) == T0.timestamp() + 300


def test_times_are_corrected_by_what_is_known_of_the_clock() -> None:
    """As the age of the last report is; what is learnt of the clock later holds for earlier points too."""
    history = JobHistory()
    for each, ahead_s in enumerate((3590.0, 3600.0)):
        add(history, progress(3600 + 10 * each, each), ahead_s=ahead_s, reported_at=T0)
    [columns] = view(history).progress
    assert columns.times_s == [T0.timestamp(), T0.timestamp() + 10]


# --- attempts


def test_a_step_back_within_an_attempt_stays_and_attempts_are_apart() -> None:
    history = JobHistory()
    for each, step in enumerate([10, 20, 30, 15, 25]):
        add(history, progress(each, step))
    add(history, progress(60, 5), "p2/0/0")
    add(history, progress(70, 6), "p3/0/0", continues=True)  # of a pod that may hold rank 0 as well
    found = view(history)
    assert [each.steps for each in found.progress] == [[10, 20, 30, 15, 25], [5, 6]]
    assert [(each.number, each.first_step, each.last_step) for each in found.attempts] == [
        (0, 10, 25),
        (1, 5, 6),
    ]


def test_of_many_attempts_the_long_ones_stay_and_keep_their_numbers() -> None:
    history = JobHistory()
    for attempt in range(200):
        for each in range(3000 if attempt == 3 else 2):
            add(history, progress(1e5 * attempt + each, each, metrics={"loss": each}), f"p{attempt}/0/0")
    numbers = [each.number for each in view(history).attempts]
    assert len(numbers) <= subject.MAX_ATTEMPTS
    assert {3, 199} <= set(numbers)
    assert size_of(history) <= ROOM_BYTES


def test_what_an_attempt_reported_last_is_whole_also_after_it() -> None:
    history = lasting(1000)
    add(history, progress(1e6, 1), "p2/0/0")
    first, _ = view(history).progress
    assert first.steps is not None
    assert first.steps[-10:] == [10 * each for each in range(990, 1000)]


# --- stored, and brought together


REPORT = st.tuples(
    st.sampled_from("aab"),
    st.booleans(),
    st.floats(-60, 900),
    st.none() | st.integers(0, 10**6),
    st.dictionaries(st.sampled_from(["loss", "lr", "eval_loss", "acc"]), VALUE, max_size=4),
    st.lists(st.tuples(st.floats(0, 60), st.integers(0, 10**6)), max_size=3),
    st.booleans(),
)


@settings(max_examples=20, deadline=None, phases=QUICK)
@given(st.lists(REPORT, min_size=1, max_size=30), st.integers(1, 25), st.sets(st.integers(0, 750)))
def test_the_same_calls_make_the_same_history_to_the_byte(
    pattern: list[tuple[Any, ...]], repetitions: int, saved_after: set[int]
) -> None:
    """Also when one of the two is saved and restored in between: those who follow the owner get its calls."""
    one, other, at_s = JobHistory(), JobHistory(), 0.0
    for number, (attempt, continues, gap_s, step, metrics, tail, is_set) in enumerate(pattern * repetitions):
        at_s += gap_s
        report = progress(at_s, step, epoch=number / 9, metrics=metrics)
        points = [
            Point(timestamp=T0 + timedelta(seconds=at_s - before_s), step=some, metrics=(("loss", "1"),))
            for before_s, some in tail
        ]
        for history in (one, other):
            add(
                history,
                report,
                f"{attempt}/{number // 200}",
                points=points,
                continues=continues,
                reported_at=T0 + timedelta(seconds=number),
                is_clock_set=is_set,
            )
        if number in saved_after:
            assert other.save() == one.save()
            again = restore(other.save())
            assert again is not None
            other = again
    assert other.save() == one.save()


@given(st.binary(max_size=60))
def test_other_bytes_are_no_history(saved: bytes) -> None:
    found = restore(saved)
    assert found is None or isinstance(view(found), HistoryView)


@pytest.mark.parametrize("damaged", [b"\xff" * 24, b"x" * 25, b"\xff" * 37], ids=["nan", "uneven", "both"])
def test_damage_within_a_history_loses_no_more_than_that(damaged: bytes) -> None:
    history = lasting(200, 2)
    history.attempts[0].series[PROGRESS] = damaged
    assert view(history).attempts == []
    history.attempts[0].series["metric_0"] = damaged
    for each in range(700):
        add(history, progress(1e6 + each, 7, metrics={"a": 1}))
    assert view(history).attempts[-1].last_step == 7


@pytest.mark.parametrize(
    "field", ["number", "ahead_ms", "shift_ms", "rows", "last_step", "width_ms", "first_ms"]
)
def test_a_history_with_a_number_that_cannot_be_is_not_read(field: str) -> None:
    history = lasting(3, 1)
    assert restore(history.save()) is not None
    impossible = math.nan if field in ("last_step", "width_ms", "first_ms") else MAX_INTEGER + 1
    setattr(history.attempts[0], field, impossible)
    assert restore(history.save()) is None


@pytest.mark.parametrize(("count", "is_read"), [(MAX_INTEGER, True), (MAX_INTEGER + 1, False)])
def test_attempts_are_counted_as_far_as_numbers_go(count: int, is_read: bool) -> None:
    saved = zlib.compress(msgspec.msgpack.encode([[], count]))
    assert (restore(saved) is not None) == is_read


def test_a_history_that_would_be_too_large_is_not_read() -> None:
    assert restore(zlib.compress(b"\x92\x90" + b"\x00" * 2**24)) is None


def attempts(*rows: int, names: Sequence[str] = ("loss",)) -> JobHistory:
    """Of attempts that made so many reports, one after the other."""
    history, rng, at_s = JobHistory(), random.Random(1), 0.0
    for attempt, number in enumerate(rows):
        for step in range(number):
            at_s += 15
            metrics = {name: round(rng.random(), 4) for name in names}
            add(history, progress(at_s, step, metrics=metrics), f"p{attempt}/0/0")
    return history


@pytest.mark.parametrize("rows", [50, 200, 2000])
def test_ten_attempts_are_kept_and_none_pays_for_all_others(rows: int) -> None:
    history = attempts(*[rows] * 10)
    points = sorted(len(series.values) for series in view(history).series)
    assert [each.number for each in history.attempts] == list(range(10))
    assert points[0] >= 5
    assert points[5] >= 15
    assert size_of(history) <= ROOM_BYTES


def test_a_crash_loop_leaves_the_course_of_the_long_run_before_it() -> None:
    history = attempts(20_000, *[30] * 9)
    assert [each.number for each in history.attempts] == list(range(10))
    assert len(view(history).series[0].values) >= 15


def test_an_attempt_keeps_all_its_metrics_or_goes_whole() -> None:
    history = attempts(*[500] * 10, names=[f"metric{number}" for number in range(10)])
    kept = Counter(series.attempt for series in view(history).series)
    assert len(kept) >= 6
    assert set(kept.values()) == {10}
