"""Spikes, NaN and infinities between two samples: a document has them, and so has what the server keeps."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given, settings, strategies as st

from tests.jobs import JOB, RANK0, REF, T0
from trainjob_progress import Reporter, document, published_run, run_state
from trainjob_progress.document import Snapshot, encode, prepare
from trainjob_progress.extremes import MAX_EXACT, MAX_SAMPLES
from trainjob_progress.live_run import LiveRun
from trainjob_progress.sinks.file import FileSink
from trainjob_progress.tail import Tail, thin
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Progress
from visibility_api.reports.report import parse_report
from visibility_api.reports.training_document import parse_document

START_S = T0.timestamp()
Row = tuple[int, int | None, float | None, dict[str, Any]]


class Training:
    """A run on a clock that moves by hand, sampled when asked."""

    def __init__(self) -> None:
        prepare()
        self.now_s = START_S
        clock = SimpleNamespace(
            time=lambda: self.now_s, monotonic=lambda: self.now_s, gmtime=time.gmtime, strftime=time.strftime
        )
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(document, "time", clock)
        self.patch.setattr(document, "_ahead_s", -math.inf)
        self.patch.setattr(published_run, "time", clock)
        self.patch.setattr(run_state, "time", clock)
        self.run = LiveRun()
        self.run.values = {}
        self.reporter = self.open()
        self.tail = Tail()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def open(self) -> Reporter:
        """One more level."""
        reporter = Reporter()
        reporter._run = self.run
        self.run.levels.append(reporter)
        return reporter

    def step(self, after_s: float = 0.0005, **metrics: Any) -> None:
        self.now_s += after_s
        self.reporter.step(**metrics)

    def sample(self) -> Snapshot:
        self.now_s += 0.0001
        self.run._read(is_sign_of_life=True)
        assert self.run.snapshot is not None
        return self.run.snapshot

    def rows(self) -> list[Row]:
        """That a reader finds now, without the document's own values."""
        sample = self.sample()
        self.tail.follow(sample)
        report = parse_document(encode(sample, recent=self.tail.columns(sample)))
        assert isinstance(report, Progress)
        return [
            (round((each.timestamp.timestamp() - START_S) * 1e6), each.step, each.epoch, dict(each.metrics))
            for each in report.points
        ]


def test_a_nan_and_a_spike_of_one_step_each_are_in_the_last_file_and_in_the_history(tmp_path: Path) -> None:
    """Seen: of 3,000 steps in 1.5 s neither was in any document."""
    sink = FileSink(str(tmp_path / "progress.json"))
    with Training() as training:
        for step in range(1, 3001):
            training.step(loss={700: math.nan, 2300: 99.0}.get(step, 0.5))
            if step % 1000 == 0:
                sink.write(training.sample())
        now = T0 + timedelta(seconds=training.now_s - START_S)
    report = parse_report((tmp_path / "progress.json").read_bytes())
    assert isinstance(report, Progress)
    found = {(each.step, each.metrics) for each in report.points}
    assert {(700, (("loss", "nan"),)), (2300, (("loss", "99.0"),))} <= found

    tracker = Tracker(publish=lambda _: None, retract=lambda _: None, now=lambda: now, interval_s=15)
    tracker.job_changed(JOB)
    tracker.observed(
        Observation(ref=REF, attempt=RANK0.attempt, source="exec", at=now, outcome=report, latency_s=0.01)
    )
    history = tracker._records[REF].history
    assert history is not None
    kept = history.attempts[-1].points("loss")
    assert (2300, 99.0) in [(step, value) for _, step, value in kept]
    assert any(step == 700 and math.isnan(value) for _, step, value in kept)


def test_a_value_that_stays_the_same_stands_where_it_began_before_it_changes_and_last() -> None:
    """Seen: a learning rate was drawn as a slope from its first step to its change, and ended there."""
    with Training() as training:
        for at in range(1, 1001):
            seldom = {"seldom": 0.5} if at % 300 == 0 else {}
            training.step(0.05, loss=1 / at, lr=0.1 if at <= 600 else 0.01, flat=1, **seldom)
            if at % 10 == 0:
                rows = training.rows()
                if at == 300:
                    midway = rows

    def steps(rows: list[Row], name: str) -> list[int | None]:
        return [row[1] for row in rows if name in row[3]]

    assert steps(midway, "lr")[-1:] == steps(midway, "flat")[-1:] == [290]
    lr = {row[1]: row[3]["lr"] for row in rows if "lr" in row[3]}
    assert (lr[600], lr[610], max(step or 0 for step in lr)) == ("0.1", "0.01", 990)
    assert len(steps(rows, "flat")) < 6  # what lies on a line takes no room
    assert [step for step in steps(rows, "seldom") if step] == [300, 600, 900]


def test_what_stays_between_two_samples_has_no_rows_of_its_own() -> None:
    with Training() as training:
        for at in range(1, 41):
            training.step(loss=100.0 / at, lr=at / 100, constant=0.5)
            if at % 10 == 0:
                rows = training.rows()
    # The first values are one row: no sample was before them.
    assert [row[1] for row in rows] == [1, 10, 20, 30]


@pytest.mark.parametrize("given", [3.0, 3])
def test_values_that_are_given_as_a_mapping_or_apart_from_a_step_count_too(given: float) -> None:
    with Training() as training:
        training.step(0.5, loss=1.0)
        training.rows()
        training.now_s += 0.1
        training.reporter.update({"loss": given})
        training.step(0.5, metrics={"loss": 0.25})
        training.step(0.5, loss=1.0)
        seen = [(row[1], row[3]["loss"]) for row in training.rows()[1:]]
    assert seen == [(1, str(given)), (2, "0.25")]


def test_rows_are_apart_where_there_is_room_for_that() -> None:
    with Training() as training:
        training.step(0.5, loss=1.0)
        training.rows()
        training.now_s += 0.1
        for loss in (9.0, -9.0, math.inf):
            training.step(0.00001, loss=loss, grad_norm=loss)
        training.step(0.5, loss=1.0, grad_norm=1.0)
        rows = training.rows()
    times = [row[0] for row in rows]
    assert [row[3].get("loss") for row in rows] == ["1.0", "9.0", "-9.0", "inf"]
    assert [row[3].get("grad_norm") for row in rows] == [None, "9.0", "-9.0", "inf"]
    assert all(later - earlier >= 2900 for earlier, later in pairwise(times))


def test_extremes_of_many_metrics_share_three_rows() -> None:
    names = [f"m{i}" for i in range(24)]
    with Training() as training:
        training.step(0.5, **dict.fromkeys(names, 1.0))
        training.rows()
        for at, name in enumerate(names):
            for value in (9.0, math.nan, -9.0 - at):
                training.step(0.005, **{name: value})
        training.step(0.5, **dict.fromkeys(names, 1.0))
        rows = training.rows()[1:]
    assert len(rows) == 3
    for at, name in enumerate(names):
        assert [row[3][name] for row in rows] == ["9.0", "nan", str(-9.0 - at)]


def test_steps_are_those_of_all_levels_together() -> None:
    with Training() as training:
        training.reporter._is_loop = True
        training.reporter._inner_done = 100
        training.reporter = training.open()
        training.step(0.5, loss=1.0)
        training.rows()
        training.step(0.5, loss=7.0)
        training.step(0.5, loss=1.0)
        assert [(row[1], row[3]["loss"]) for row in training.rows()] == [(101, "1.0"), (102, "7.0")]


def test_of_a_run_beside_another_one_the_values_have_no_step() -> None:
    with Training() as training:
        beside = Reporter()
        beside._run = LiveRun()
        beside._run.levels = [beside]
        beside._run.start_beside(training.run)
        training.step(0.5, loss=1.0)
        beside.step(score=1.0, loss=1.0)
        training.rows()
        training.now_s += 0.1
        beside.step(score=7.0, loss=7.0)
        beside.step(score=1.0, loss=1.0)
        training.step(0.5, loss=1.0)
        assert [(row[1], row[3]) for row in training.rows()[1:]] == [(None, {"score": "7.0"})]


def test_values_count_while_no_step_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with Training() as training:
        training.reporter._step = training.reporter._initial_step = None  # as the wrapper begins
        for lr in (0.5, 3.0, 0.001, 0.5):
            training.now_s += 0.1
            training.reporter.update({"lr": lr})
        rows = [(step, metrics) for _, step, _, metrics in training.rows()]
        assert rows == [(None, {"lr": "3.0"}), (None, {"lr": "0.001"})]
    assert "lost" not in capsys.readouterr().err


def test_a_sink_that_was_not_there_for_many_samples_still_gets_what_was_outside() -> None:
    with Training() as training:
        training.step(0.5, loss=1.0)
        training.rows()
        for at in range(100):
            training.step(0.1, loss={3: 9.0, 50: math.nan, 97: -9.0}.get(at, 1.0))
            training.sample()
            assert len(training.run._between) <= MAX_SAMPLES
        assert [row[3]["loss"] for row in training.rows()] == ["1.0", "9.0", "nan", "-9.0"]


def test_a_clock_that_is_set_back_loses_what_was_before_and_nothing_after() -> None:
    with Training() as training:
        training.step(0.5, loss=1.0)
        training.rows()
        training.now_s -= 3600
        training.step(0.5, loss=1.0)
        training.rows()
        training.step(0.5, loss=5.0)
        training.step(0.5, loss=1.0)
        assert [row[3].get("loss") for row in training.rows()][-1] == "5.0"


def test_a_reporter_that_reports_nowhere_keeps_nothing() -> None:
    reporter = Reporter()
    for loss in (1.0, 5.0, math.nan):
        reporter.step(loss=loss, lr=loss)
        reporter.update(loss=loss)
    assert reporter._run.seen == {}


def shown(value: Any) -> str:
    return f"{float(value) + 0.0:.7g}"


numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf, 1.0])
steps = st.fixed_dictionaries({"loss": numbers}, optional={"grad_norm": numbers, "lr": numbers})
runs = st.lists(st.lists(steps, min_size=1, max_size=8), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(runs, st.sampled_from([0.00001, 0.0005, 0.01]))
def test_of_any_series_the_least_the_greatest_and_one_that_is_not_finite_are_rows(
    run: list[list[dict[str, float]]], after_s: float
) -> None:
    with Training() as training:
        training.step(0.5, loss=1.0, grad_norm=1.0, lr=1.0)
        training.rows()
        now = {"loss": 1.0, "grad_norm": 1.0, "lr": 1.0}
        for interval in run:
            before = dict(now)
            since_us = round((training.now_s - START_S) * 1e6)
            for metrics in interval:
                training.step(after_s, **metrics)
                now.update(metrics)
            rows = training.rows()
            times = [row[0] for row in rows]
            assert times == sorted(times)
            between = [row for row in rows if row[0] > since_us - 3]
            assert len(between) <= MAX_EXACT + 1
            for name in now:
                values = [before[name], *(each[name] for each in interval if name in each)]
                seen = {before[name], now[name], *(float(row[3][name]) for row in between if name in row[3])}
                finite = [each for each in values if math.isfinite(each)]
                if finite:
                    assert {shown(min(finite)), shown(max(finite))} <= set(map(shown, seen))
                if len(finite) < len(values):
                    assert not all(map(math.isfinite, seen))


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=18, max_size=40))
def test_thinning_keeps_the_extremes_of_each_metric_and_what_is_not_finite(
    given_rows: list[dict[str, float]],
) -> None:
    kept = thin([(at, at, None, row) for at, row in enumerate(given_rows)])
    assert len(kept) == (len(given_rows) + 1) // 2
    assert [row[0] for row in kept] == sorted({row[0] for row in kept})
    for name in {name for row in given_rows for name in row}:
        values = [row[name] for row in given_rows if name in row]
        left = [row[3][name] for row in kept if name in row[3]]
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            assert {min(finite), max(finite)} <= set(left)
        if len(finite) < len(values):
            assert not all(map(math.isfinite, left))


def test_a_spike_is_thinned_after_noise_however_late_its_metric_was_named() -> None:
    noise = [0.5 + 0.1 * math.sin(at * 1.7) for at in range(40)]
    rows: list[Row] = [
        (at, at, None, {"loss": each, "grad_norm": 1.0 + each}) for at, each in enumerate(noise)
    ]
    for at, spike in ((5, 90.0), (14, 80.0), (23, 70.0), (30, 60.0)):
        rows[at][3]["grad_norm"] = spike
    assert {5, 14, 23, 30} <= {row[0] for row in thin(thin(rows))}
