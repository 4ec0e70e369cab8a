"""`TrainJob.status.trainerStatus` as a source: it outlives what it tells of, and may be our own echo."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0
from visibility_api.jobs.job import Phase
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Progress

from .bench import Bench, at

ELSEWHERE = replace(JOB, rank0=None, runs_elsewhere=True)


def status(seconds: float, percent: int = 40) -> Progress:
    return Progress(timestamp=at(seconds), progress_percentage=percent)


class TestAJobThatRunsElsewhere:
    def test_its_status_is_its_progress(self) -> None:
        bench = Bench()
        bench.job(ELSEWHERE)
        assert bench.condition("Reporting") == ("False", "NotInStatus")
        for turn in (1, 2, 3):
            bench.advance(10)
            bench.job(ELSEWHERE, status=status(10 * turn, 10 * turn))
        assert bench.condition("Reporting") == ("True", "DocumentRead")
        assert bench.condition("Fresh") == ("True", "RecentReport")
        assert bench.last.progress_percentage == 30
        assert bench.last.remaining_s == pytest.approx(70, abs=1)
        assert bench.observation.source == "status"

    def test_a_status_that_stands_still_is_not_fresh(self) -> None:
        bench = Bench()
        bench.job(ELSEWHERE, status=status(0))
        bench.advance(60)
        bench.review()
        assert bench.condition("Fresh") == ("False", "NoNewReport")

    def test_a_status_that_stood_there_long_before_us_is_not_fresh(self) -> None:
        bench = Bench()
        bench.advance(7200)
        bench.job(ELSEWHERE, status=status(0))
        assert bench.last.progress_percentage == 40
        assert bench.condition("Fresh") == ("False", "NoNewReport")
        assert bench.last.seen_at == at(0)
        bench.advance(1)
        bench.job(ELSEWHERE, status=status(7201, 41))
        assert bench.condition("Fresh") == ("True", "RecentReport")

    def test_nothing_is_fresh_while_it_waits_for_its_pods(self) -> None:
        bench = Bench()
        bench.job(replace(ELSEWHERE, phase=Phase.PENDING), status=status(0))
        assert bench.condition("Fresh") == ("False", "Rank0NotRunning")


class TestAnEcho:
    """What `--write-back` wrote comes back through our own watch."""

    @pytest.mark.parametrize("source", ["exec", "logs", "push"])
    @pytest.mark.parametrize("age_s", [0, 5])
    def test_it_is_no_new_report_and_wakes_no_watcher(self, source: str, age_s: float) -> None:
        bench = Bench()
        has_time = source != "logs"
        bench.job(JOB)
        for turn in (1, 2):
            bench.advance(5)
            stamp = bench.now if has_time else None
            bench.observe(Progress(timestamp=stamp, step=turn, total_steps=10), source=source)
        before, published = bench.last, len(bench.published)
        bench.advance(1)
        bench.job(JOB, status=Progress(timestamp=at(10 - age_s), progress_percentage=10, step=1))
        assert len(bench.published) == published
        bench.advance(59)
        bench.review()
        assert (bench.last.step, bench.last.seen_at) == (2, before.seen_at)
        assert bench.observation.source == source

    def test_it_speaks_until_rank_0_does_when_we_have_just_started(self) -> None:
        bench = Bench()
        bench.advance(600)
        bench.job(JOB, status=Progress(timestamp=at(580), step=70, total_steps=100))
        assert bench.last.progress_percentage == 70
        bench.advance(1)
        bench.observe(Progress(timestamp=at(580), step=70, total_steps=100, message="epoch 7"))
        assert bench.last.message == "epoch 7"
        assert bench.observation.source == "exec"

    def test_lines_without_a_time_are_dated_by_our_clock_after_an_old_one(self) -> None:
        bench = Bench()
        bench.advance(600)
        bench.job(JOB, status=Progress(timestamp=at(10), step=7))
        bench.observe(Progress(step=8), source="logs")
        assert bench.last.updated_at == bench.now

    def test_it_is_not_taken_for_the_word_of_an_attempt_that_began_just_after_it(self, bench: Bench) -> None:
        bench.advance(60)
        bench.observe(Progress(timestamp=bench.now, step=97, total_steps=100))
        restarted = replace(RANK0, restart_count=1, started_at=at(61))
        bench.advance(2)
        bench.job(replace(JOB, rank0=restarted), status=Progress(timestamp=at(60), step=97))
        assert bench.condition("Fresh") == ("False", "AttemptEnded")
        bench.advance(1)
        bench.observe(Progress(timestamp=bench.now, step=1, total_steps=100), attempt=restarted.attempt)
        assert bench.last.progress_percentage == 1


def test_a_later_status_counts_beside_other_sources(bench: Bench) -> None:
    bench.advance(5)
    bench.observe(Progress(timestamp=bench.now, step=4, total_steps=10))
    bench.advance(5)
    bench.job(JOB, status=Progress(timestamp=bench.now, progress_percentage=50, step=5))
    assert (bench.last.step, bench.last.progress_percentage) == (5, 50)


def test_a_status_may_be_observed_like_any_other_source(bench: Bench) -> None:
    bench.advance(5)
    report = Progress(timestamp=at(5), step=5)
    status = Observation(ref=JOB.ref, attempt="", source="status", at=bench.now, outcome=report)
    assert bench.tracker.observed(status)
    assert not bench.tracker.observed(status)  # the same again is no news
    assert bench.last.step == 5
    assert bench.observation.source == "status"
