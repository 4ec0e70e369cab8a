"""Ages are those of the job, whoever looks and since when; what is not known is blank."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, KILLED, RANK0, T0
from visibility_api.jobs.job import Phase, Termination
from visibility_api.reports.document import Progress

from .bench import Bench, at

HOUR = timedelta(hours=1)


def estimates(bench: Bench) -> tuple[object, ...]:
    return bench.last.steps_per_s, bench.last.remaining_s, bench.last.completion_at


def trained(bench: Bench) -> None:
    bench.report(100)
    bench.advance(10)
    bench.report(200)
    assert None not in estimates(bench)


class TestAServerThatStartsLate:
    def test_a_report_of_half_an_hour_ago_is_not_fresh_for_being_new_to_us(self, bench: Bench) -> None:
        bench.advance(2000)
        bench.observe(Progress(timestamp=T0, step=10, total_steps=100, remaining_s=40))
        assert bench.condition("Fresh") == ("False", "NoNewReport")
        assert bench.condition("Stalled") == ("True", "NoAdvance")
        assert bench.last.seen_at == T0
        assert estimates(bench) == (None, None, None)

    def test_what_began_before_us_began_then(self, bench: Bench) -> None:
        bench.advance(600)
        bench.observe(Progress(timestamp=T0, step=10, metrics=(("loss", "nan"),)))
        assert (
            bench.shown("Reporting").since
            == bench.shown("Stalled").since
            == bench.shown("Diverged").since
            == T0
        )
        assert bench.shown("Fresh").since == at(45)

    def test_a_report_without_a_time_may_be_as_old_as_its_container(self, bench: Bench) -> None:
        bench.advance(600)
        bench.observe(Progress(step=10, total_steps=100))
        assert bench.condition("Fresh") == ("Unknown", "AgeNotKnown")
        assert bench.shown("Fresh").message.startswith("The report bears no time:")
        assert bench.last.seen_at is None
        bench.advance(15)
        bench.observe(Progress(step=20, total_steps=100))
        assert bench.condition("Fresh") == ("True", "RecentReport")
        assert bench.shown("Fresh").message.startswith("The report bears no time:")
        assert bench.last.seen_at == bench.now

    def test_a_report_without_a_time_is_no_older_than_a_container_that_just_started(
        self, bench: Bench
    ) -> None:
        bench.advance(20)
        bench.observe(Progress(step=10, total_steps=100))
        assert bench.condition("Fresh") == ("True", "RecentReport")

    def test_the_age_of_a_report_from_the_future_is_not_known(self, bench: Bench) -> None:
        bench.advance(600)
        bench.observe(Progress(timestamp=bench.now + HOUR, step=10))
        assert bench.condition("Fresh") == ("Unknown", "AgeNotKnown")
        assert "at least 60m ahead" in bench.shown("Fresh").message
        assert bench.last.seen_at is None


@pytest.mark.parametrize(("off", "name"), [(HOUR, "60m ahead"), (-HOUR, "60m behind")])
def test_a_node_whose_clock_is_off_is_called_out_and_its_ages_are_right(
    bench: Bench, off: timedelta, name: str
) -> None:
    for step in range(1, 4):
        bench.advance(15)
        bench.observe(Progress(timestamp=bench.now + off, step=step, total_steps=100))
    assert bench.condition("Fresh") == ("True", "RecentReport")
    assert name in bench.shown("Fresh").message
    assert bench.last.seen_at == bench.now
    assert bench.last.updated_at == bench.now + off
    assert bench.last.remaining_s == 97 * 15
    bench.advance(60)
    bench.review()
    assert bench.condition("Fresh") == ("False", "NoNewReport")
    assert name in bench.shown("Fresh").message


def test_a_pushed_report_from_before_its_container_shows_a_clock_that_is_behind(bench: Bench) -> None:
    bench.advance(30)
    bench.observe(Progress(timestamp=at(20) - 2 * HOUR, step=1), source="push")
    assert bench.condition("Fresh") == ("True", "RecentReport")
    assert bench.last.seen_at == bench.now


class TestARunThatDoesNotAdvance:
    def test_it_has_no_rate_and_no_end_once_its_report_is_old(self, bench: Bench) -> None:
        trained(bench)
        bench.advance(50)
        bench.review()
        assert bench.condition("Fresh") == ("False", "NoNewReport")
        assert bench.condition("Stalled") == ("False", "Advancing")
        assert estimates(bench) == (None, None, None)

    @pytest.mark.parametrize(
        "now",
        [
            replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, rank0=None),
            replace(JOB, phase=Phase.FAILED, ended_at=at(11)),
            replace(JOB, phase=Phase.SUCCEEDED, ended_at=at(11)),
            replace(JOB, rank0=replace(RANK0, is_running=False, last_termination=KILLED)),
            replace(JOB, rank0=replace(RANK0, restart_count=1)),
            replace(JOB, rank0=None),
        ],
        ids=["suspended", "failed", "succeeded", "waits to be restarted", "restarted", "without a pod"],
    )
    def test_it_has_none_either_when_it_is_not_running(self, bench: Bench, now: object) -> None:
        trained(bench)
        bench.job(now)  # type: ignore[arg-type]
        assert estimates(bench) == (None, None, None)

    def test_a_run_that_has_reported_its_end_has_no_rate(self, bench: Bench) -> None:
        trained(bench)
        bench.report(1000, state="completed")
        assert estimates(bench) == (None, 0, None)

    def test_what_a_run_completed_is_not_promised_of_a_job_that_failed(self, bench: Bench) -> None:
        bench.report(1000, state="completed")
        bench.job(replace(JOB, phase=Phase.FAILED))
        assert bench.last.remaining_s is None

    def test_it_is_stalled_since_its_last_advance(self, bench: Bench) -> None:
        trained(bench)
        bench.advance(2000)
        bench.review()
        assert bench.condition("Stalled") == ("True", "NoAdvance")
        assert bench.shown("Stalled").since == at(10)
        bench.advance(5)
        bench.report(210)
        assert bench.condition("Stalled") == ("False", "Advancing")
        assert bench.shown("Stalled").since == bench.now


def test_an_end_that_passes_is_withdrawn_then_and_not_a_minute_later(bench: Bench) -> None:
    bench.report(979)
    bench.advance(10)
    bench.report(989)
    assert bench.last.completion_at == at(21)
    for _ in range(11):
        bench.advance(1)
        bench.tracker.review(0)
        assert bench.last.completion_at is None or bench.last.completion_at > bench.now
    assert bench.last.remaining_s is None
    assert bench.condition("Fresh") == ("True", "RecentReport")


class TestWhatTheJobItselfShows:
    def test_its_conditions_keep_its_times(self, bench: Bench) -> None:
        bench.advance(600)
        bench.job(replace(JOB, phase=Phase.SUCCEEDED, ended_at=at(300)))
        assert bench.shown("Complete").since == at(300)
        bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=at(200)))
        assert bench.shown("Suspended").since == at(200)
        bench.job(replace(JOB, is_suspended=False, suspension_changed_at=at(400)))
        assert bench.condition("Suspended") == ("False", "Resumed")
        assert bench.shown("Suspended").since == at(400)

    def test_a_time_that_its_controller_gives_later_counts(self, bench: Bench) -> None:
        bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True))
        assert bench.shown("Suspended").since == T0
        bench.advance(60)
        bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=at(1)))
        assert bench.shown("Suspended").since == at(1)

    def test_a_condition_without_a_time_is_kept_since_it_was_first_seen(self, bench: Bench) -> None:
        bench.job(replace(JOB, phase=Phase.FAILED))
        bench.advance(60)
        bench.job(replace(JOB, phase=Phase.FAILED, reason="FailedJobs"))
        assert bench.shown("Failed").since == T0

    def test_when_it_ended_and_how_long_it_ran_are_known(self, bench: Bench) -> None:
        trained(bench)
        assert (bench.last.ended_at, bench.last.ran_s) == (None, None)
        bench.job(replace(JOB, phase=Phase.FAILED, ended_at=at(90)))
        assert (bench.last.started_at, bench.last.ended_at, bench.last.ran_s) == (T0, at(90), 90)

    def test_how_long_it_ran_allows_for_a_clock_that_is_off(self, bench: Bench) -> None:
        for step in range(3):
            bench.advance(15)
            bench.observe(Progress(timestamp=bench.now - HOUR, step=step, started_at=at(5) - HOUR))
        bench.job(replace(JOB, phase=Phase.SUCCEEDED, ended_at=at(90)))
        assert bench.last.ran_s == 85

    def test_a_job_whose_start_is_not_known_has_no_duration(self, bench: Bench) -> None:
        bench.job(replace(JOB, phase=Phase.FAILED, ended_at=at(90), rank0=replace(RANK0, started_at=None)))
        assert (bench.last.ended_at, bench.last.ran_s) == (at(90), None)

    def test_a_job_without_the_time_of_its_end_ended_with_its_container(self, bench: Bench) -> None:
        ended = Termination(exit_code=0, signal=None, reason="Completed", finished_at=at(80))
        bench.job(replace(JOB, phase=Phase.SUCCEEDED, rank0=replace(RANK0, last_termination=ended)))
        assert (bench.last.ended_at, bench.last.ran_s) == (at(80), 80)

    def test_numbers_are_old_since_the_job_ended(self, bench: Bench) -> None:
        trained(bench)
        bench.advance(20)
        bench.job(replace(JOB, phase=Phase.FAILED, ended_at=at(25)))
        assert bench.condition("Fresh") == ("False", "EndedWithoutFinalReport")
        assert bench.shown("Fresh").since == at(25)


class TestBeforeThereIsAnythingToJudge:
    def test_nothing_is_judged(self, bench: Bench) -> None:
        assert bench.condition("Stalled") == ("Unknown", "NotJudged")
        assert bench.condition("Diverged") == ("Unknown", "NotJudged")
        bench.report(1, metrics=(("accuracy", "0.5"), ("loss", "n/a")))
        assert bench.condition("Stalled") == ("False", "Advancing")
        assert bench.condition("Diverged") == ("Unknown", "NotJudged")
        bench.report(2, metrics=(("loss", "0.5"),))
        assert bench.condition("Diverged") == ("False", "Finite")

    def test_a_job_that_does_not_train_is_not_stalled(self, bench: Bench) -> None:
        bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=at(5)))
        assert bench.condition("Stalled") == ("False", "NotTraining")
        bench.job(replace(JOB, phase=Phase.SUCCEEDED, ended_at=at(9)))
        assert bench.condition("Stalled") == ("False", "NotTraining")

    def test_it_does_not_since_it_ended_whoever_saw_it_run(self, bench: Bench) -> None:
        ended = replace(JOB, phase=Phase.SUCCEEDED, ended_at=at(9))
        late = Bench()
        trained(bench)
        for each in (bench, late):
            each.advance(20)
            each.job(ended)
            assert each.condition("Stalled") == ("False", "NotTraining")
            assert each.shown("Stalled").since == at(9)

    def test_it_does_not_since_it_was_suspended_then_since_it_ended(self, bench: Bench) -> None:
        trained(bench)
        bench.advance(20)
        bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=at(5)))
        assert bench.shown("Stalled").since == at(5)
        bench.job(replace(JOB, phase=Phase.FAILED, ended_at=at(9)))
        assert bench.shown("Stalled").since == at(9)


def test_a_termination_message_without_a_time_was_left_when_the_container_ended(bench: Bench) -> None:
    bench.advance(600)
    ended = Termination(exit_code=0, signal=None, reason="Completed", finished_at=at(80))
    left = json.dumps({"progressPercentage": 100, "currentStep": 10, "totalSteps": 10})
    rank0 = replace(RANK0, is_running=False, last_termination=ended, termination_message=left)
    bench.job(replace(JOB, phase=Phase.SUCCEEDED, rank0=rank0, ended_at=at(81)))
    assert (bench.last.step, bench.last.seen_at) == (10, at(80))


def test_reports_missed_while_nobody_looked_make_no_long_pause(bench: Bench) -> None:
    trained(bench)
    other = bench.heir()
    other.now = at(3000)
    other.job(JOB)
    other.observe(Progress(timestamp=at(2999), step=200 + 29_890, total_steps=100_000))
    other.advance(1900)
    other.review()
    assert other.condition("Stalled") == ("True", "NoAdvance")


def test_without_a_report_since_the_job_was_made_whoever_looks_and_since_when(bench: Bench) -> None:
    started = replace(JOB, rank0=replace(RANK0, started_at=T0 + timedelta(minutes=1)))
    bench.job(replace(JOB, phase=Phase.PENDING, rank0=None))
    bench.advance(120)
    bench.job(started)
    late = Bench()
    late.now = bench.now
    late.job(started)
    assert [each.last.condition("Fresh").since for each in (bench, late)] == [T0, T0]


@pytest.mark.parametrize("unwatched", [{None}, {"team-a"}])
def test_while_the_cluster_is_not_followed_no_report_of_a_job_counts_as_fresh(
    bench: Bench, unwatched: set[str | None]
) -> None:
    trained(bench)
    for namespaces, expected in ((unwatched, ("Unknown", "WatchDown")), ({"b"}, ("True", "RecentReport"))):
        bench.tracker.unwatched = frozenset(("trainjobs", each) for each in namespaces)
        bench.review()
        fresh = bench.shown("Fresh")
        assert (fresh.status, fresh.reason) == expected


def test_an_object_that_cannot_be_read_is_said_where_reports_are(bench: Bench) -> None:
    bench.job(replace(JOB, unread=("pod bert-node-0-0-x7", "ObjectTooLarge")))
    found = bench.shown("Reporting")
    assert (found.status, found.reason) == ("Unknown", "ObjectTooLarge")
    assert "pod bert-node-0-0-x7" in found.message
