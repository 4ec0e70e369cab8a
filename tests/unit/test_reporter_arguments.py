"""Nothing that a program gives us changes what it does; a wrong argument is one warning."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.reporting import MemorySink
from trainjob_progress import document, report, track
from trainjob_progress.loops import abandon_all
from trainjob_progress.values import show


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> list[MemorySink]:
    """What the environment asks for."""
    made: list[MemorySink] = []

    def find_sinks(**_: Any) -> list[MemorySink]:
        made.append(MemorySink())
        return made[-1:]

    monkeypatch.setattr("trainjob_progress.settings.find_sinks", find_sinks)
    return made


@pytest.mark.parametrize("epochs", [0, -1, -(2**70), 0.0, numpy.int64(0)])
@pytest.mark.parametrize("sinks", [None, []])
def test_no_epochs_are_no_items(epochs: Any, sinks: Any) -> None:
    """Seen: `epochs=planned - done` with nothing left trained a whole epoch more."""
    loop = track(range(5), epochs=epochs, initial_step=15, sinks=sinks)
    assert len(loop) == 0
    assert list(loop) == []


def test_a_run_with_no_epoch_left_is_completed_where_it_stands(places: list[MemorySink]) -> None:
    def train() -> None:
        for _ in track(range(5), epochs=0, initial_step=15):
            pass

    train()
    last = places[0].last
    assert (last.state, last.step, last.total_steps, last.percentage) == ("completed", 15, 15, 100)


def test_a_resumed_loop_plans_what_is_left_beside_what_was_done(places: list[MemorySink]) -> None:
    """Seen: 15 steps done and 10 planned: a total that is less than the steps, and no percentage."""
    with track(range(5), epochs=2, initial_step=15) as loop:
        for _ in loop:
            pass
        assert loop._total_steps == 25
    last = places[0].last
    assert (last.state, last.step, last.total_steps, last.percentage) == ("completed", 25, 25, 100)


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ({"epochs": "x"}, "epochs='x' is no whole number: 1 is used"),
        ({"epochs": None}, "epochs=None is no whole number: 1 is used"),
        ({"epochs": 1.5}, "epochs=1.5 is no whole number: 1 is used"),
        ({"epochs": math.inf}, "epochs=inf is no whole number: 1 is used"),
        ({"accumulate": "x"}, "accumulate='x' is no whole number above 0: 1 is used"),
        ({"accumulate": 0}, "accumulate=0 is no whole number above 0: 1 is used"),
        ({"initial_step": "x"}, "initial_step='x' is left out: a number from 0 to 2^53 is needed"),
        ({"rank": "x"}, "rank='x' is no rank: the one that is found is used"),
        ({"rank": -1}, "rank=-1 is no rank: the one that is found is used"),
        (
            {"sinks": "abc"},
            "sinks='abc' need write, close and interval_s each: what the environment asks for is",
        ),
        (
            {"sinks": [None]},
            "sinks=[None] need write, close and interval_s each: what the environment asks for",
        ),
        (
            {"sinks": 5},
            "sinks=5 need write, close and interval_s each: what the environment asks for is used",
        ),
        ({"wait_s": "x"}, "wait_s='x' is no number of seconds: 60 is used"),
        ({"wait_s": math.nan}, "wait_s=nan is no number of seconds: 60 is used"),
    ],
)
def test_a_wrong_argument_is_one_warning_with_what_is_used_instead(
    places: list[MemorySink], capfd: pytest.CaptureFixture[str], arguments: Any, warning: str
) -> None:
    def train() -> None:
        assert list(track(range(4), **arguments)) == [0, 1, 2, 3]

    train()
    errors = capfd.readouterr().err
    assert (errors.count("\n"), warning in errors) == (1, True), errors
    last = places[0].last
    assert (last.state, last.step, last.total_steps) == ("completed", 4, 4)


@pytest.mark.parametrize("wait_s", [Decimal(2), Fraction(1, 2), numpy.float32(0.5)])
def test_a_wait_is_a_number_of_any_type(
    places: list[MemorySink], capfd: pytest.CaptureFixture[str], wait_s: Any
) -> None:
    with report(total_steps=5, wait_s=wait_s) as r:
        r.step(5)
        r.flush(wait_s)
    assert (places[0].last.state, capfd.readouterr().err) == ("completed", "")


def test_a_bar_that_is_neither_is_a_warning(
    places: list[MemorySink], capfd: pytest.CaptureFixture[str]
) -> None:
    with report(total_steps=5, bar=Odd()) as r:  # type: ignore[arg-type]
        r.step(5)
    assert places[0].last.state == "completed"
    assert "is neither true nor false: no bar is shown" in capfd.readouterr().err


def test_of_several_sinks_those_that_are_some_are_used(capfd: pytest.CaptureFixture[str]) -> None:
    sink = MemorySink()
    with report(total_steps=1, sinks=[None, sink, "stdout"]) as r:  # type: ignore[list-item]
        r.step()
    assert sink.last.step == 1
    assert "1 of them is used" in capfd.readouterr().err
    alone = MemorySink()
    with report(total_steps=1, sinks=alone) as r:  # type: ignore[arg-type]
        r.step()
    assert alone.last.step == 1


class Odd:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if sys._getframe(1).f_code is show.__code__:
            raise RuntimeError("repr")
        return "Odd()"  # hypothesis must be able to say what failed

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("iter")

    def __float__(self) -> float:
        raise RuntimeError("float")


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.complex_numbers(),
    st.decimals(),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.builds(Odd),
    st.builds(object),
    st.sampled_from(
        [10**5000, -(10**5000), numpy.nan, numpy.int8(3), numpy.zeros(3), numpy.ma.masked, Decimal("sNaN"),
         Odd, len, range(3)]
    ),
)  # fmt: skip


class Stream:
    """Items, and an error at the end if there is one; `len` is whatever it is."""

    def __init__(self, items: int, error: BaseException | None, length: Any) -> None:
        self.items, self.error, self.length = items, error, length

    def __len__(self) -> int:
        return self.length()  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[int]:
        yield from range(self.items)
        if self.error is not None:
            raise self.error


def fail() -> int:
    raise RuntimeError("no length")


STREAMS = st.builds(
    Stream,
    st.integers(0, 4),
    st.sampled_from([None, None, ValueError("shard"), KeyboardInterrupt(), SystemExit(1)]),
    st.sampled_from([lambda: 3, lambda: -1, lambda: 2**70, lambda: "x", fail]),
)


def outcome(run: Callable[[], Iterator[Any]]) -> tuple[list[Any], BaseException | None]:
    seen: list[Any] = []
    try:
        seen.extend(run())
    except BaseException as error:
        return seen, error
    return seen, None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STREAMS, st.dictionaries(st.sampled_from(
    ["initial_step", "accumulate", "rank", "sinks", "bar", "wait_s", "total", "desc", "best"]), ANYTHING,
), ANYTHING, ANYTHING)  # fmt: skip
def test_no_argument_changes_what_a_loop_yields_or_raises(
    stream: Stream, arguments: dict[str, Any], first: Any, second: Any
) -> None:
    arguments.pop("bar", None)
    arguments.setdefault("wait_s", 0.01)
    loop = track(stream, **arguments)

    def ours() -> Iterator[Any]:
        for item in loop:
            loop.step(first, second)
            loop.update(
                first, step=second, total_steps=first, epoch=second, percentage=first, remaining_s=second
            )
            loop.update(total_epochs=first, message=second, metrics=first, loss=second)
            loop.epoch(first, second)
            loop.message(first)
            with loop.phase(first):
                loop.ranks(step_seconds=first, steps=second, names=first)
            loop.flush(0.001)
            yield item

    seen, error = outcome(ours)
    assert (seen, type(error)) == (list(range(stream.items)), type(stream.error))
    assert error is stream.error
    loop.finish(first, second)
    loop.update(first)
    abandon_all()


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(
    ["total_steps", "total_epochs", "initial_step", "rank", "sinks", "wait_s", "name", "best"]), ANYTHING,
), ANYTHING, ANYTHING)  # fmt: skip
def test_no_argument_makes_a_reporter_raise(arguments: dict[str, Any], first: Any, second: Any) -> None:
    arguments.setdefault("wait_s", 0.01)
    with report(**arguments) as r:
        r.step(first, second)
        r.step(loss=first, n=second)
        r.step({"": 1, "x" * 1000: first})
        r.update(first, loss=second)
        r.update(step=second, total_steps=first, percentage=second, remaining_s=first, message=second)
        r.update(metrics={1: first, None: second})  # type: ignore[dict-item]
        r.epoch(first, second)
        r.message(first)
        r.flush("soon")  # type: ignore[arg-type]
        r.finish(first, second)
    abandon_all()


@pytest.mark.parametrize(("arguments", "is_said"), [({"n": 32}, True), ({"n": 2}, False), ({}, False)])
def test_a_metric_that_is_taken_for_a_number_of_steps_is_said(
    capfd: pytest.CaptureFixture[str], arguments: dict[str, Any], is_said: bool
) -> None:
    """`n=32`, the number of samples, say: once it counts more than is planned."""
    with report(total_steps=100) as r:
        for _ in range(50):
            r.step(loss=0.5, **arguments)
    wanted = ['trainjob_progress: n=32 counts steps, more than are planned: step({"n": …}) is a metric']
    assert capfd.readouterr().err.splitlines() == (wanted if is_said else [])


def test_a_masked_number_is_left_out(places: list[MemorySink], capfd: pytest.CaptureFixture[str]) -> None:
    """Seen: 0.0."""
    with report() as r:
        r.step(loss=numpy.ma.masked, accuracy=numpy.ma.array([0.5]), f1=numpy.ma.array([0.5], mask=[True]))
    assert places[0].last.metrics == {"accuracy": 0.5}
    assert sorted(capfd.readouterr().err.splitlines()) == [
        "trainjob_progress: metric f1 is left out: it is masked",
        "trainjob_progress: metric loss is left out: it is masked",
    ]


def test_steps_that_no_reader_takes_are_left_out_with_a_warning(
    places: list[MemorySink], capfd: pytest.CaptureFixture[str]
) -> None:
    """Seen: the step vanished without a word."""
    with report(initial_step=2**53 - 1) as r:
        r.step(2)
    assert places[0].last.step is None
    assert capfd.readouterr().err == "trainjob_progress: steps beyond 2^53 are left out\n"


def test_a_wall_clock_that_is_set_back_makes_no_document_older(
    places: list[MemorySink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a `timestamp` before its `startTime`."""
    wall_s, monotonic_s = 1_900_000_000.0, 5000.0
    clock = SimpleNamespace(time=lambda: wall_s, monotonic=lambda: monotonic_s)
    monkeypatch.setattr(document, "time", clock)
    monkeypatch.setattr(document, "_ahead_s", -math.inf)
    with report(total_steps=2) as r:
        wall_s, monotonic_s = wall_s - 3600, monotonic_s + 7
        r.step(2)
    last = places[0].last
    assert (last.start_time, last.timestamp) == (1_900_000_000.0, 1_900_000_007.0)
