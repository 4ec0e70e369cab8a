"""More than one source for one job: the newest word counts, and no field flickers between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, RESTARTED, T0
from visibility_api.jobs.summary import JobProgress
from visibility_api.reports.document import Progress, Refused

from .bench import Bench, at


def test_what_only_one_source_reports_stays_while_they_take_turns(bench: Bench) -> None:
    for turn in range(3):
        bench.advance(5)
        bench.observe(
            Progress(timestamp=bench.now, step=100 + turn, total_steps=1000, metrics=(("accuracy", "0.9"),))
        )
        bench.advance(5)
        bench.observe(Progress(timestamp=bench.now, metrics=(("loss", "0.3"),)), source="push")
        assert dict(bench.last.metrics) == {"accuracy": "0.9", "loss": "0.3"}
        assert (bench.last.step, bench.last.total_steps, bench.last.progress_percentage) == (
            100 + turn,
            1000,
            10,
        )


def test_a_lone_document_is_whole_so_a_metric_it_drops_is_gone(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(1), step=1, metrics=(("loss", "1"), ("eval_loss", "2"))))
    bench.observe(Progress(timestamp=at(2), step=2, metrics=(("loss", "1"),)))
    assert dict(bench.last.metrics) == {"loss": "1"}


@pytest.mark.parametrize("source", ["logs", "push", "status"])
def test_a_source_that_reports_only_news_is_completed_by_its_earlier_reports(
    bench: Bench, source: str
) -> None:
    bench.observe(
        Progress(timestamp=at(1), step=97, total_steps=100, metrics=(("loss", "1"),)), source=source
    )
    bench.observe(
        Progress(timestamp=at(9), progress_percentage=100, metrics=(("train_loss", "2"),)), source=source
    )
    assert (bench.last.step, bench.last.total_steps, bench.last.progress_percentage) == (97, 100, 100)
    assert dict(bench.last.metrics) == {"loss": "1", "train_loss": "2"}


def test_metrics_collected_from_several_reports_stay_bounded(bench: Bench) -> None:
    for number in range(4):
        names = tuple((f"m{number}-{i}", "1") for i in range(200))
        bench.observe(Progress(timestamp=at(number), step=number, metrics=names), source="logs")
    assert len(bench.last.metrics) == 256
    assert [name for name, _ in bench.last.metrics][-200:] == [f"m3-{i}" for i in range(200)]


def test_a_second_run_in_the_same_container_is_not_taken_for_completed(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(1), step=1000, total_steps=1000, state="completed"))
    bench.advance(30)
    bench.observe(Progress(timestamp=at(31), step=3, total_steps=500), source="push")
    assert (bench.last.progress_percentage, bench.last.remaining_s) == (0, None)
    assert bench.condition("Fresh") == ("True", "RecentReport")
    bench.advance(30)
    bench.observe(Progress(timestamp=at(61), step=9, total_steps=500), source="push")
    assert bench.last.progress_percentage == 1


def test_the_end_that_one_source_reports_stays_beside_the_last_push(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(1), step=1000, total_steps=1000, state="completed"))
    bench.observe(Progress(timestamp=at(2), progress_percentage=100), source="push")
    assert bench.condition("Fresh") == ("True", "FinalReport")


@pytest.mark.parametrize(
    ("state", "ending", "percentage", "remaining_s"),
    [
        ("completed", "stopped", 40, 0),
        ("completed", None, 100, 0),  # by a reporter that knows no endings: all is done
        ("running", "preempted", 40, None),
    ],
)
def test_a_run_that_has_reported_its_end_is_as_far_as_that_says(
    bench: Bench, state: Any, ending: Any, percentage: int, remaining_s: int | None
) -> None:
    bench.observe(Progress(timestamp=at(1), step=40, total_steps=100, state=state, ending=ending))
    assert (bench.last.progress_percentage, bench.last.remaining_s) == (percentage, remaining_s)
    assert bench.condition("Fresh") == ("True", "FinalReport")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Progress(timestamp=at(1), step=90, total_steps=100), Progress(timestamp=at(9), step=150)),
        (Progress(timestamp=at(1), step=90), Progress(timestamp=at(9), total_steps=50)),
        (Progress(timestamp=at(1), total_epochs=1e-300), Progress(timestamp=at(9), epoch=1e15)),
    ],
    ids=["further than planned", "a smaller plan", "beyond all numbers"],
)
def test_a_plan_that_another_report_has_left_behind_is_none(
    bench: Bench, before: Progress, after: Progress
) -> None:
    bench.observe(before, source="push")
    bench.observe(after, source="push")
    assert (bench.last.total_steps, bench.last.total_epochs, bench.last.progress_percentage) == (None,) * 3


def test_a_position_guessed_from_the_log_takes_no_turns_with_one_that_was_reported(bench: Bench) -> None:
    """A bar for each epoch says 10 of 1000 where the job pushes 510 of 3000."""
    for turn in range(3):
        bench.advance(5)
        bench.observe(Progress(timestamp=bench.now, step=510 + turn, total_steps=3000), source="push")
        bench.advance(2)
        bar = Progress(timestamp=bench.now, step=10 + turn, total_steps=1000, metrics=(("loss", f"{turn}"),))
        bench.observe(bar, source="logs")
        assert (bench.last.step, bench.last.total_steps) == (510 + turn, 3000)
        assert dict(bench.last.metrics) == {"loss": f"{turn}"}


def test_the_log_is_believed_again_when_the_reporter_of_the_position_has_fallen_silent(bench: Bench) -> None:
    bench.observe(Progress(timestamp=bench.now, step=510, total_steps=3000), source="push")
    for elapsed_s, step in ((200, 510), (101, 6)):
        bench.advance(elapsed_s)
        bench.observe(Progress(timestamp=bench.now, step=6, total_steps=1000), source="logs")
        assert bench.last.step == step


def test_a_clock_that_is_set_back_does_not_silence_the_log(bench: Bench) -> None:
    bench.observe(Progress(timestamp=bench.now, step=510, total_steps=3000), source="push")
    told_at = bench.now
    bench.advance(-7200)
    bench.observe(Progress(timestamp=told_at + timedelta(seconds=1), step=6, total_steps=1000), source="logs")
    assert bench.last.step == 6


def test_a_bar_of_one_epoch_does_not_contradict_a_percentage_of_the_run(bench: Bench) -> None:
    bench.observe(Progress(timestamp=bench.now, progress_percentage=17), source="push")
    bench.advance(2)
    bench.observe(Progress(timestamp=bench.now, step=10, total_steps=1000), source="logs")
    assert (bench.last.step, bench.last.progress_percentage) == (None, 17)


def test_a_report_without_a_time_is_of_the_moment_its_content_changed(bench: Bench) -> None:
    bench.observe(Progress(step=1), source="logs")
    bench.advance(20)
    bench.observe(Progress(step=1), source="logs")
    assert bench.last.updated_at == T0
    bench.observe(Progress(step=2), source="logs")
    assert bench.last.updated_at == at(20)


def test_two_clocks_an_hour_apart_do_not_make_the_time_of_the_last_report_jump(bench: Bench) -> None:
    behind = timedelta(hours=-1)
    bench.observe(Progress(step=1), source="logs")
    bench.advance(10)
    bench.observe(Progress(timestamp=bench.now + behind, step=2))
    assert (bench.last.step, bench.last.updated_at) == (2, at(10) + behind)
    bench.advance(10)
    bench.observe(Progress(step=3), source="logs")
    assert (bench.last.step, bench.last.updated_at) == (3, at(20) + behind)
    bench.advance(10)
    bench.observe(Progress(timestamp=bench.now + behind, step=4))
    assert (bench.last.step, bench.last.steps_per_s) == (4, pytest.approx(0.1))


def test_pushed_positions_count_as_steps(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(0), progress_percentage=1, step=10, total_steps=1000), source="push")
    bench.advance(10)
    bench.observe(Progress(timestamp=at(10), progress_percentage=2, step=20, total_steps=1000), source="push")
    assert bench.last.steps_per_s == pytest.approx(1.0)
    assert bench.last.remaining_s == 980


def push(bench: Bench, report: Progress, *, is_other_rank: bool = False) -> None:
    bench.observe(report, source="push", is_other_rank=is_other_rank)


def test_a_push_that_comes_after_the_next_one_changes_nothing(bench: Bench) -> None:
    """Seen: a replica had passed it on for some seconds, while its owner died."""
    bench.observe(Progress(timestamp=at(6), step=6), source="push")
    bench.observe(Progress(timestamp=at(5), step=5), source="push")
    assert bench.last.step == 6
    bench.observe(Progress(timestamp=at(5), step=5, state="completed", message="done"), source="push")
    assert bench.last.message == "done"


def test_a_push_that_waited_in_a_replica_that_stood_still_changes_nothing(bench: Bench) -> None:
    """Seen: it went on after a minute, and passed on what pods had sent it meanwhile."""
    bench.observe(Progress(timestamp=at(70), step=70), source="push")
    bench.observe(Progress(timestamp=at(10), step=10), source="push")
    assert bench.last.step == 70


def test_a_clock_that_is_set_back_does_not_silence_pushes(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(3600), step=5), source="push")
    bench.observe(Progress(timestamp=at(6), step=6), source="push")
    assert bench.last.step == 6


def test_another_rank_reports_until_rank_0_does(bench: Bench) -> None:
    push(bench, Progress(timestamp=bench.now, step=5), is_other_rank=True)
    assert (bench.last.step, bench.observation.source) == (5, "push")  # type: ignore[union-attr]
    push(bench, Progress(timestamp=bench.now, step=7))
    bench.advance(5)
    push(bench, Progress(timestamp=bench.now, step=6), is_other_rank=True)
    assert bench.last.step == 7


@pytest.mark.parametrize("source", ["exec", "logs", "push"])
def test_rank_0_is_believed_though_another_rank_spoke_whose_clock_is_ahead(bench: Bench, source: str) -> None:
    push(bench, Progress(timestamp=at(3600), step=6), is_other_rank=True)
    bench.advance(10)
    bench.observe(Progress(timestamp=None if source == "logs" else bench.now, step=3), source=source)
    assert (bench.last.step, bench.last.updated_at) == (3, at(10))


def test_the_pace_of_rank_0_is_not_measured_from_another_ranks_report(bench: Bench) -> None:
    push(bench, Progress(timestamp=at(-30), step=6), is_other_rank=True)
    for second in (10, 20):
        bench.advance(10)
        push(bench, Progress(timestamp=at(second), step=second))
    assert bench.last.steps_per_s == pytest.approx(1.0)


def test_a_status_found_at_the_start_does_not_silence_another_rank() -> None:
    bench = Bench()
    bench.job(JOB, status=Progress(timestamp=at(1), step=5))
    bench.advance(10)
    push(bench, Progress(timestamp=at(10), step=6), is_other_rank=True)
    assert bench.last.step == 6


def test_two_pods_that_may_hold_rank_0_report_one_run() -> None:
    worker = replace(RANK0, pod_uid="p9", pod_name="bert-node-0-0-xyzzy")
    bench = Bench()
    bench.job(replace(JOB, alternates=(worker,)))
    for turn in range(3):
        bench.observe(
            Progress(timestamp=bench.now, step=10 + turn, total_steps=100, metrics=(("loss", "1"),)),
            attempt=worker.attempt,
        )
        bench.advance(5)
        push(bench, Progress(timestamp=bench.now, metrics=(("lr", "2"),)))
        bench.advance(5)
        late = Progress(timestamp=bench.now - timedelta(seconds=9), step=turn)
        bench.observe(late, source="push", attempt=worker.attempt)
        assert (bench.last.step, bench.last.progress_percentage) == (10 + turn, 10 + turn)
        assert dict(bench.last.metrics) == {"loss": "1", "lr": "2"}
    assert bench.last.steps_per_s == pytest.approx(0.1)


def last_word(bench: Bench, step: int, attempt: str = RANK0.attempt) -> None:
    bench.observe(Progress(step=step), source="logs", attempt=attempt, is_final_read=True)


def test_the_final_read_of_a_crashed_attempt_is_shown_until_the_next_one_reports(bench: Bench) -> None:
    bench.observe(Progress(step=40), source="logs")
    bench.job(replace(JOB, rank0=RESTARTED))
    last_word(bench, 47)
    assert bench.last.step == 47
    assert bench.condition("Fresh") == ("False", "AttemptEnded")
    bench.observe(Progress(step=1), source="logs", attempt=RESTARTED.attempt)
    last_word(bench, 48)
    assert bench.last.step == 1


def test_the_final_read_of_an_attempt_without_reports_counts_more_than_the_attempt_before(
    bench: Bench,
) -> None:
    bench.observe(Progress(step=40), source="logs")
    bench.job(replace(JOB, rank0=RESTARTED))
    bench.job(replace(JOB, rank0=replace(RESTARTED, restart_count=2)))
    last_word(bench, 47, attempt=RESTARTED.attempt)
    last_word(bench, 41)  # of the first life, late
    assert bench.last.step == 47


def test_a_status_from_before_the_restart_is_not_shown_as_current(bench: Bench) -> None:
    old = Progress(timestamp=at(-600), progress_percentage=80)
    bench.job(JOB, status=old)
    assert bench.last.progress_percentage == 80
    assert bench.condition("Fresh") == ("False", "AttemptEnded")
    bench.advance(30)
    bench.job(JOB, status=Progress(timestamp=at(30), progress_percentage=5))
    assert bench.last.progress_percentage == 5
    assert bench.condition("Fresh") == ("True", "RecentReport")


def test_a_status_brings_nothing_new_of_a_job_that_reports_itself(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(1), step=450, total_steps=1000))
    before = bench.last
    bench.job(JOB, status=Progress(timestamp=at(1), progress_percentage=45))
    assert msgspec.structs.replace(bench.last, job=JOB) == before


def test_jobs_that_are_not_probed_are_evaluated_anew_all_the_same(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(0), step=1), source="push")
    assert bench.condition("Fresh") == ("True", "RecentReport")
    bench.advance(3600)
    bench.review()
    assert bench.condition("Fresh") == ("False", "NoNewReport")


_reports = st.builds(
    Progress,
    step=st.none() | st.integers(0, 50),
    total_steps=st.none() | st.just(50),
    epoch=st.none() | st.floats(0, 3),
    progress_percentage=st.none() | st.integers(0, 100),
    metrics=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("123")), max_size=3).map(
        lambda pairs: tuple(dict(pairs).items())
    ),
    message=st.none() | st.just("evaluating"),
    state=st.none() | st.just("running"),
)
_words = st.lists(
    st.tuples(st.sampled_from(["exec", "http", "logs", "push"]), _reports, st.integers(-3, 3), st.booleans()),
    max_size=12,
)


def _said(shown: JobProgress) -> set[str]:
    fields = ("step", "total_steps", "epoch", "progress_percentage", "message")
    return {f for f in fields if getattr(shown, f) is not None} | {name for name, _ in shown.metrics}


@given(_words)
def test_once_two_sources_have_spoken_nothing_that_was_shown_vanishes(words: list[tuple]) -> None:  # type: ignore[type-arg]
    bench = Bench()
    bench.job(JOB)
    heard: set[str] = set()
    shown: set[str] = set()
    for source, report, skew_s, has_clock in words:
        bench.advance(5)
        said_at = bench.now + timedelta(seconds=skew_s) if has_clock else None
        bench.observe(msgspec.structs.replace(report, timestamp=said_at), source=source)
        heard.add(source)
        if len(heard) == 1 and source in ("exec", "http"):
            shown = set()  # a lone document is whole
        lost = shown - _said(bench.last)
        assert not lost
        shown = _said(bench.last)


@given(_words)
def test_an_ended_attempt_changes_nothing_whatever_its_sources_report(words: list[tuple]) -> None:  # type: ignore[type-arg]
    bench = Bench()
    bench.job(JOB)
    bench.advance(60)
    bench.job(replace(JOB, rank0=RESTARTED))
    bench.observe(Progress(timestamp=bench.now, step=7), attempt=RESTARTED.attempt)
    before = bench.last
    for source, report, skew_s, _ in words:
        said_at = bench.now + timedelta(seconds=skew_s)
        bench.observe(
            msgspec.structs.replace(report, timestamp=said_at), source=source, attempt=RANK0.attempt
        )
        last_word(bench, 3)
    assert bench.last == before


@pytest.mark.parametrize("source", ["push", "status"])
def test_that_no_file_is_found_does_not_concern_numbers_that_came_another_way(
    bench: Bench, source: str
) -> None:
    bench.observe(Progress(timestamp=at(0), step=1), source=source)
    bench.advance(40)
    bench.observe(Refused(reason="NoProgressFile", message="there is none"))
    assert bench.condition("Fresh") == ("True", "RecentReport")


def test_a_line_of_the_log_that_stands_there_for_long_is_no_news_later(bench: Bench) -> None:
    """Its position, which others contradict, is left out for five minutes: it is not new after them."""
    bench.job(JOB)
    for step in range(1000, 1100, 10):
        bench.advance(15)
        bench.observe(Progress(timestamp=bench.now, step=step, total_steps=5000), source="push")
    line = Progress(timestamp=bench.now, step=37, total_steps=500, metrics=(("loss", "0.51"),))
    for _ in range(40):
        bench.advance(15)
        bench.observe(line, source="logs")
        bench.tracker.review(1.0)
        assert (bench.last.step, bench.last.total_steps) == (1090, 5000)
    assert bench.condition("Fresh") == ("False", "NoNewReport")
    assert bench.condition("Stalled")[0] == "True"
