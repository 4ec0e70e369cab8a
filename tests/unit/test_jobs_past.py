"""The tracker keeps what counts in a job's history: each report once, with the points that come with it."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from tests.jobs import JOB, RANK0, REF, T0, rank0
from visibility_api.history.view import HistoryView, Selection, select
from visibility_api.reports.document import Point, Progress

from .bench import Bench


def past(bench: Bench) -> HistoryView:
    return select(bench.tracker.history(REF), Selection(), now_s=bench.now.timestamp())


def steps(bench: Bench) -> list[list[int | None]]:
    """Of each attempt."""
    return [list(each.steps or ()) for each in past(bench).progress]


def values(bench: Bench, metric: str) -> list[float]:
    return [value for each in past(bench).series if each.metric == metric for value in each.values]


def points(bench: Bench, *steps: int, **metrics: str) -> tuple[Point, ...]:
    """One a second, the last of them a second ago."""
    return tuple(
        Point(
            timestamp=bench.now - timedelta(seconds=len(steps) - index),
            step=step,
            metrics=tuple(metrics.items()) or (("loss", str(step)),),
        )
        for index, step in enumerate(steps)
    )


def test_nothing_is_kept_of_a_job_that_has_reported_nothing(bench: Bench) -> None:
    assert bench.tracker.history(REF) is None
    assert not past(bench).attempts


def test_each_report_is_a_point_and_the_same_again_is_none(bench: Bench) -> None:
    for step in (10, 20, 20):
        bench.report(step, metrics=(("loss", str(step)), ("note", "warm")))
        if step == 10:
            bench.advance(15)
    assert steps(bench) == [[10, 20]]
    assert [(each.metric, each.values) for each in past(bench).series] == [("loss", [10, 20])]


def test_points_between_two_probes_are_kept(bench: Bench) -> None:
    for last in (10, 20):
        bench.advance(15)
        tail = points(bench, *range(last - 9, last))
        bench.report(last, metrics=(("loss", str(last)),), points=tail)
    assert steps(bench) == [list(range(1, 21))]
    assert values(bench, "loss") == list(range(1, 21))


def test_a_metric_that_was_measured_long_ago_is_no_new_point_with_each_report(bench: Bench) -> None:
    """A file has the latest of each metric; with a tail it shows what was measured when."""
    for last in (10, 20, 30):
        bench.advance(15)
        bench.report(
            last, metrics=(("loss", str(last)), ("eval_loss", "0.5")), points=points(bench, last - 1)
        )
    assert values(bench, "loss") == [9, 10, 19, 20, 29, 30]
    assert values(bench, "eval_loss") == [0.5]
    bench.report(30, state="completed", metrics=(("eval_loss", "0.5"),), points=points(bench, 29))
    assert values(bench, "eval_loss") == [0.5, 0.5], "the last report of all is whole"


def test_attempts_are_apart_and_a_late_report_of_the_one_before_is_none_of_the_next(bench: Bench) -> None:
    bench.report(500)
    bench.advance(60)
    again = rank0(restart_count=1, started_at=bench.now)
    bench.job(replace(JOB, rank0=again))
    bench.report(400, attempt=again.attempt)
    bench.advance(15)
    bench.report(510, attempt=RANK0.attempt)
    bench.report(410, attempt=again.attempt)
    assert steps(bench) == [[500], [400, 410]]


def test_times_are_corrected_as_the_age_of_the_report_is(bench: Bench) -> None:
    """The node's clock is an hour ahead."""
    ahead = timedelta(hours=1)
    for step in (10, 20):
        bench.advance(15)
        bench.observe(Progress(timestamp=bench.now + ahead, step=step))
    [columns] = past(bench).progress
    assert columns.times_s == [T0.timestamp() + 15, T0.timestamp() + 30]


def test_of_two_sources_each_point_is_there_once(bench: Bench) -> None:
    bench.report(10, metrics=(("loss", "1"),))
    bench.observe(Progress(timestamp=bench.now, step=10, metrics=(("loss", "1"),)), source="push")
    assert steps(bench) == [[10]]


def test_a_deleted_job_has_no_past(bench: Bench) -> None:
    bench.report(10)
    bench.tracker.job_gone(REF)
    assert bench.tracker.history(REF) is None
