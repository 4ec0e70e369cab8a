"""The earlier values in a document: what is kept of them, and how far back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.test_reporter_document import snapshot
from trainjob_progress.document import MAX_BYTES, MAX_RECENT_BYTES, Snapshot, encode, prepare
from trainjob_progress.tail import MAX_METRICS, MAX_ROWS, Tail, thin
from trainjob_progress.values import to_metrics
from visibility_api.reports.document import Progress
from visibility_api.reports.training_document import parse_document

START_S = 1769164245.123456


@pytest.fixture(autouse=True)
def _prepared() -> None:
    prepare()  # as the thread that begins to report does


def follow(tail: Tail, snapshots: Sequence[Snapshot]) -> Progress:
    """What a reader makes of the last of these documents."""
    for each in snapshots:
        tail.follow(each)
    report = parse_document(encode(snapshots[-1], recent=tail.columns(snapshots[-1])))
    assert isinstance(report, Progress)
    return report


def losses(*given: float, every_s: float = 0.5) -> list[Snapshot]:
    return [
        snapshot(timestamp=START_S + at * every_s, step=at, metrics=to_metrics({"loss": loss}))
        for at, loss in enumerate(given)
    ]


def test_a_document_brings_the_values_before_its_own_at_their_very_times() -> None:
    said = losses(0.9, 0.8, math.nan, 0.7)
    report = follow(Tail(), said)
    alone = [parse_document(encode(each)) for each in said]
    assert [(each.timestamp, each.step, each.metrics) for each in report.points] == [
        (each.timestamp, each.step, each.metrics) for each in alone[:-1] if isinstance(each, Progress)
    ]
    assert report.metrics == (("loss", "0.7"),)


def test_the_first_document_and_one_that_says_the_same_again_bring_no_earlier_values() -> None:
    (first,) = losses(0.9)
    tail = Tail()
    assert follow(tail, [first]).points == ()
    assert follow(tail, [first.replace(timestamp=START_S + 60, message="evaluating")]).points == ()


def test_a_row_has_the_metrics_that_were_new_then_in_the_order_in_which_they_were_named() -> None:
    metrics = ({"loss": 0.5, "lr": 1e-3}, {"loss": 0.25, "lr": 1e-3, "eval_loss": 0.75}, {"loss": 0.125})
    said = [snapshot(timestamp=START_S + at, metrics=dict(each)) for at, each in enumerate(metrics)]
    said[2] = said[2].replace(metrics={**metrics[1], **metrics[2]})
    report = follow(Tail(), said)
    assert [each.metrics for each in report.points] == [
        (("loss", "0.5"), ("lr", "0.001")),
        (("loss", "0.25"), ("eval_loss", "0.75")),
    ]


def test_two_thirds_of_the_rows_are_every_one_and_the_rest_reaches_back_for_hours() -> None:
    report = follow(Tail(), losses(*(1 + math.sin(at) / at for at in range(1, 20_001))))
    steps = [each.step for each in report.points]
    whole = MAX_ROWS * 2 // 3
    assert whole <= len(steps) <= MAX_ROWS
    assert steps[-whole:] == list(range(19_999 - whole, 19_999))
    assert steps[0] is not None
    assert steps[0] < 10_000


@pytest.mark.parametrize("odd", [math.nan, math.inf, 7.0, -7.0])
def test_what_stands_out_is_thinned_last(odd: float) -> None:
    ordinary = [0.5 + 0.01 * (at % 7) for at in range(400)]
    ordinary[100] = odd
    report = follow(Tail(), losses(*ordinary))
    assert (100, (("loss", str(odd)),)) in [(each.step, each.metrics) for each in report.points]


def test_a_value_that_is_alone_is_thinned_last() -> None:
    said = losses(*(0.5 + 0.01 * (at % 7) for at in range(400)))
    said[100] = said[100].replace(metrics={**said[100].metrics, "eval_loss": 0.75})
    report = follow(Tail(), said)
    assert [each.step for each in report.points if ("eval_loss", "0.75") in each.metrics] == [100]


def test_of_four_rows_the_least_and_the_greatest_of_the_first_metric_stay() -> None:
    rows = [(at, at, None, {"loss": loss, "lr": at}) for at, loss in enumerate([3, 5, 2, 4])]
    assert [row[0] for row in thin(rows)] == [1, 2]
    assert thin(rows[:1]) == rows[:1]
    assert thin([]) == []


def test_a_clock_that_is_set_back_leaves_out_what_was_before() -> None:
    said = losses(0.9, 0.8, 0.7, 0.6)
    tail = Tail()
    follow(tail, said)
    back = [each.replace(timestamp=each.timestamp - 3600) for each in losses(0.1, 0.2, 0.3, 0.4)]
    assert [each.step for each in follow(tail, back).points] == [0, 1, 2]
    assert tail.columns(back[0]) is None


def test_earlier_values_give_way_before_what_is_said_now() -> None:
    metrics = {f"metric_{i:03}": "x" * 64 for i in range(256)}
    tail = Tail()
    wordy = snapshot(metrics=metrics, message="m" * 1024)
    said = [wordy.replace(timestamp=START_S + at, step=at) for at in range(90)]
    for each in said:
        tail.follow(each)
    recent = tail.columns(said[-1])
    room = len(encode(said[-1])) + 100
    assert json.loads(encode(said[-1], room, recent)) == json.loads(encode(said[-1], room))
    assert "recent" in json.loads(encode(said[-1], recent=recent))


def test_of_many_metrics_the_first_named_have_a_tail() -> None:
    said = [
        snapshot(timestamp=START_S + at, step=at, metrics={f"m{i}": at + i / 7 for i in range(100)})
        for at in range(200)
    ]
    tail = Tail()
    for each in said:
        tail.follow(each)
    document = json.loads(encode(said[-1], recent=tail.columns(said[-1])))
    names = list(document["recent"]["metrics"])
    assert names == [f"m{i}" for i in range(len(names))]
    assert 8 <= len(names) <= MAX_METRICS
    assert len(document["recent"]["step"]) > MAX_ROWS // 2


@st.composite
def runs(draw: st.DrawFn) -> Iterator[Snapshot]:
    names = draw(st.lists(st.text(max_size=70), max_size=6, unique=True))
    values = st.one_of(st.floats(), st.integers(), st.text(max_size=70), st.none())
    at_s, said = START_S, []
    for _ in range(draw(st.integers(1, 12))):
        at_s += draw(st.sampled_from([0.5, 0.0, 1e-6, 7.3, -5.0, 86400.0 * 30]))
        said.append(
            snapshot(
                timestamp=at_s,
                step=draw(st.none() | st.integers(0, 2**53)),
                epoch=draw(st.none() | st.floats(0, 1e6)),
                metrics=to_metrics({name: draw(values) for name in names}),
            )
        )
    return said * draw(st.integers(1, 5))  # type: ignore[return-value]


@settings(max_examples=40, deadline=None)
@given(runs(), st.sampled_from([1000, 4095, MAX_BYTES]))
def test_whatever_happens_the_tail_is_read_and_within_its_bounds(said: Any, max_bytes: int) -> None:
    tail = Tail()
    for each in said:
        tail.follow(each)
    body = encode(said[-1], max_bytes, tail.columns(said[-1]))
    assert len(body) <= max_bytes
    written = json.loads(body).get("recent")
    report = parse_document(body)
    assert isinstance(report, Progress)
    assert len(report.points) == (len(written["secondsBefore"]) if written else 0)
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) <= MAX_RECENT_BYTES
