"""A file in a volume outlives the container that wrote it: the next life finds what the last one left."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, RANK0, RESTARTED
from visibility_api.jobs.job import Phase
from visibility_api.reports.document import Progress

from .bench import Bench, at


def test_a_file_that_an_earlier_run_left_in_a_volume_is_not_shown_as_current(bench: Bench) -> None:
    bench.report(500)
    bench.advance(15)
    left = Progress(timestamp=bench.now, step=510, total_steps=1000, state="failed")
    bench.advance(2)
    again = replace(RANK0, restart_count=1, started_at=bench.now)
    bench.job(replace(JOB, rank0=again))
    for _ in range(3):
        bench.advance(15)
        bench.observe(left, attempt=again.attempt)
        assert bench.last.step == 500
        assert bench.condition("Reporting") == ("False", "OutdatedReport")
        assert bench.condition("Fresh") == ("False", "AttemptEnded")
    bench.report(1, attempt=again.attempt)
    assert bench.last.step == 1
    assert bench.condition("Fresh") == ("True", "RecentReport")


def test_a_process_whose_clock_is_behind_is_believed_as_soon_as_its_file_changes(bench: Bench) -> None:
    """What a life that has ended left behind does not."""
    bench.job(replace(JOB, rank0=RESTARTED))
    behind = at(-3600)
    bench.observe(Progress(timestamp=behind, step=1, total_steps=1000), attempt=RESTARTED.attempt)
    assert bench.condition("Reporting") == ("False", "OutdatedReport")
    for step in (2, 2, 3):
        bench.advance(15)
        moved = behind + timedelta(seconds=step)
        bench.observe(Progress(timestamp=moved, step=step, total_steps=1000), attempt=RESTARTED.attempt)
        assert bench.last.step == step
        assert bench.condition("Reporting") == ("True", "DocumentRead")
        assert bench.condition("Fresh") == ("True", "RecentReport")


def test_a_first_run_is_believed_whatever_its_clock_shows(bench: Bench) -> None:
    bench.observe(Progress(timestamp=at(-3600), step=1, total_steps=1000))
    assert bench.condition("Reporting") == ("True", "DocumentRead")


def test_a_job_that_is_resumed_with_another_pod_is_not_shown_the_file_of_before(bench: Bench) -> None:
    """As after three hours in Kueue's queue: neither stalled, nor three hours for a step."""
    for step in range(10):
        bench.advance(15)
        bench.report(step)
    left = Progress(timestamp=bench.now, step=9, total_steps=1000)
    bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, rank0=None))
    bench.advance(3 * 3600)
    resumed = replace(RANK0, pod_uid="p2", pod_name="bert-node-0-0-p2", started_at=bench.now)
    bench.job(replace(JOB, rank0=resumed))
    bench.advance(6)
    bench.observe(left, attempt=resumed.attempt)
    assert bench.condition("Reporting") == ("False", "OutdatedReport")
    assert bench.condition("Stalled") == ("Unknown", "NotJudged")
    for step in range(10, 14):
        bench.advance(15)
        bench.report(step, attempt=resumed.attempt)
    assert bench.last.steps_per_s == pytest.approx(1 / 15)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_an_end_that_is_older_than_the_first_container_is_of_another_job(
    bench: Bench, state: Literal["completed", "failed"]
) -> None:
    left = Progress(timestamp=at(-3600), step=1000, total_steps=1000, state=state)
    bench.observe(left)
    assert bench.condition("Reporting") == ("False", "OutdatedReport")
    assert bench.last.progress_percentage is None
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False)))
    bench.observe(left)
    assert bench.last.progress_percentage is None, "nor does the end of this one make it true"
    bench.report(1)
    assert bench.last.step == 1


def test_the_time_before_the_container_started_is_none_of_its_steps(bench: Bench) -> None:
    """A first run is believed; so the file of another job in its volume is, until it changes."""
    bench.observe(Progress(timestamp=at(-18000), step=700, total_steps=1000))
    for step in range(701, 705):
        bench.advance(15)
        bench.report(step)
        assert bench.last.remaining_s is None or bench.last.remaining_s < 2 * 300 * 15
    assert bench.last.steps_per_s == pytest.approx(1 / 15)
