"""What is published for a job as the cluster and its training process speak, in turn."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, KILLED, RANK0, REF, T0, job_ref
from visibility_api.diagnosis.result import AT_WORK, IDLE, Diagnosis
from visibility_api.jobs.job import JobRef, Phase, ProbeHints, Rank0, Termination, Thresholds
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.jobs.training_health import stalled_after_s
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.marks import EVALUATION, Marks

from .bench import Bench


def test_a_job_exists_before_it_was_ever_probed(bench: Bench) -> None:
    assert bench.last.phase is Phase.RUNNING
    assert bench.condition("Reporting") == ("Unknown", "NotYetProbed")
    assert bench.last.progress_percentage is None


def test_a_job_without_pod_says_so() -> None:
    bench = Bench()
    bench.job(replace(JOB, phase=Phase.PENDING, rank0=None))
    assert bench.condition("Reporting") == ("False", "NoRank0Pod")


def test_reports_become_percentage_rate_and_end(bench: Bench) -> None:
    bench.report(100)
    bench.advance(10)
    bench.report(150, metrics=(("loss", "0.5"),))
    assert bench.last.progress_percentage == 15
    assert bench.last.steps_per_s == pytest.approx(5.0)
    assert bench.last.remaining_s == 170
    assert bench.last.completion_at == bench.now + timedelta(seconds=170)
    assert bench.last.metrics == (("loss", "0.5"),)
    assert bench.condition("Reporting") == ("True", "DocumentRead")
    assert bench.condition("Fresh") == ("True", "RecentReport")


def test_a_silent_pod_keeps_its_last_document_and_shows_its_age(bench: Bench) -> None:
    bench.report(40)
    bench.advance(90)
    bench.observe(Refused(reason="PodUnreachable", message="The pod cannot be reached."))
    assert bench.last.step == 40
    fresh = bench.shown("Fresh")
    assert (fresh.status, fresh.reason) == ("False", "PodUnreachable")
    assert fresh.message == (
        "Last new report at 2026-01-23T10:00:00Z, 90s before this was evaluated. "
        "Since then: The pod cannot be reached."
    )
    assert bench.observation.consecutive_failures == 1
    assert bench.observation.reason == "PodUnreachable"


def test_an_old_number_read_again_and_again_is_not_shown_as_new(bench: Bench) -> None:
    old = Progress(timestamp=T0, step=40, total_steps=1000)
    for _ in range(10):
        bench.observe(old)
        bench.advance(15)
    bench.observe(old)
    assert bench.condition("Reporting") == ("True", "DocumentRead")
    assert bench.condition("Fresh") == ("False", "NoNewReport")
    assert bench.last.seen_at == T0


def test_a_run_that_stops_advancing_is_stalled_and_has_no_end(bench: Bench) -> None:
    bench.report(100)
    bench.advance(10)
    bench.report(200)
    for _ in range(30):
        bench.advance(65)
        bench.report(200)
    assert bench.condition("Stalled") == ("True", "NoAdvance")
    assert bench.last.remaining_s is None
    bench.advance(15)
    bench.report(201)
    assert bench.condition("Stalled") == ("False", "Advancing")


HANG = Diagnosis(at=T0 + timedelta(seconds=140), reason="InCollective", message="All wait.", is_hang=True)


def stand_still(bench: Bench, seconds: float) -> None:
    """After a step in each second; each probe finds the last one."""
    for step in range(10):
        bench.report(step)
        bench.advance(1)
    bench.advance(seconds)
    bench.report(9)


def test_ranks_are_read_two_minutes_after_the_last_step_and_a_hang_is_a_stall_at_once(bench: Bench) -> None:
    stand_still(bench, 100)
    assert bench.suspected == []
    bench.advance(30)
    bench.report(9)
    assert bench.suspected == [131]
    assert bench.condition("Stalled") == ("False", "Advancing")
    bench.tracker.diagnosed(REF, replace(HANG, is_hang=False))
    assert bench.condition("Stalled") == ("False", "Advancing")
    bench.tracker.diagnosed(REF, HANG)
    assert bench.condition("Stalled") == ("True", "NoAdvance")
    assert bench.shown("Stalled").message.endswith(" All wait.")
    assert bench.memory().diagnosis == HANG
    bench.advance(15)
    bench.report(10)
    assert bench.condition("Stalled") == ("False", "Advancing")


@pytest.mark.parametrize(("state", "status"), [("failed", "True"), ("completed", "False")])
def test_a_run_that_failed_stalls_once_its_pod_outlives_it_by_two_minutes(
    bench: Bench, state: Literal["failed", "completed"], status: str
) -> None:
    bench.report(9)
    bench.advance(5)
    ended_at = bench.now
    for seconds, expected in ((110, "False"), (20, status)):
        bench.advance(seconds)
        bench.observe(Progress(timestamp=ended_at, step=9, total_steps=1000, state=state))
        assert bench.condition("Stalled")[0] == expected
    if status == "True":
        said = "The run has reported its failure 2m ago, and its pod still runs. "
        assert bench.shown("Stalled").message == f"{said}Check the training process."
        bench.tracker.diagnosed(REF, HANG)
        assert bench.shown("Stalled").message == f"{said}All wait."


def test_ranks_of_a_stall_are_read_again_while_that_has_told_nothing(bench: Bench) -> None:
    bench.job(replace(JOB, hints=ProbeHints(thresholds=Thresholds(stalled_after_s=30.0))))
    stand_still(bench, 35)
    assert (bench.condition("Stalled"), bench.suspected) == (("True", "NoAdvance"), [])
    for reason, expected in (("NotKnown", 1), ("InDataLoader", 1)):
        found = Diagnosis(at=bench.now, reason=reason, message="It waits.")
        bench.tracker.diagnosed(REF, found)
        assert len(bench.suspected) == expected


@pytest.mark.parametrize("is_read_again", [True, False])
def test_a_rank_that_works_puts_a_stall_off_while_it_is_seen_to_and_not_for_ever(
    bench: Bench, is_read_again: bool
) -> None:
    stand_still(bench, 0)
    working = Diagnosis(
        at=T0, reason="Compiling", message="It compiles.", shows=AT_WORK, evidence="Rank 0 uses a CPU."
    )
    record, seen = bench.tracker._records[REF], []
    assert record.report is not None
    limit_s = stalled_after_s(record, record.report)
    for still_s in range(15, 3 * int(limit_s), 15):
        bench.advance(15)
        if is_read_again or still_s <= 60:
            bench.tracker.diagnosed(REF, replace(working, at=bench.now), is_told=False)
        bench.report(9)
        seen.append(bench.condition("Stalled"))
        if seen[-1][1] == "AtWork":
            assert bench.shown("Stalled").message.endswith(" Rank 0 uses a CPU.")
    first = seen.index(("True", "NoAdvance"))
    assert first * 15 in range(int(limit_s * (2 if is_read_again else 1)) - 30, int(limit_s * 2.1))
    assert (("False", "AtWork") in seen) is is_read_again
    assert seen[first:] == [("True", "NoAdvance")] * (len(seen) - first)
    assert first * 15 < limit_s + 30 or is_read_again
    assert bench.memory().diagnosis is None


def test_the_message_of_a_stall_has_the_evidence(bench: Bench) -> None:
    stand_still(bench, 140)
    says = "All 8 ranks were read: none uses a CPU."
    bench.tracker.diagnosed(REF, replace(HANG, shows=IDLE, evidence=says))
    assert bench.shown("Stalled").message.endswith(f" All wait. {says}")


@pytest.mark.parametrize("annotation", [600.0, math.inf])
def test_a_time_that_is_annotated_counts_whatever_the_ranks_do(bench: Bench, annotation: float) -> None:
    hints = ProbeHints(thresholds=Thresholds(stalled_after_s=annotation))
    bench.job(replace(JOB, hints=hints))
    stand_still(bench, 150)
    bench.tracker.diagnosed(REF, HANG)
    assert bench.condition("Stalled") == ("False", "Advancing")
    assert bench.suspected == []


def test_in_an_evaluation_that_is_marked_no_rank_is_read(bench: Bench) -> None:
    stand_still(bench, 10)
    evaluates = Marks(section=EVALUATION, section_at=bench.now)
    for _ in range(10):
        bench.advance(60)
        bench.observe(Progress(timestamp=bench.now, step=9, total_steps=1000, marks=evaluates))
    assert bench.suspected == []


def test_a_run_whose_clock_stands_still_is_not_called_stalled_while_it_advances(bench: Bench) -> None:
    for step in range(40):
        bench.observe(Progress(timestamp=T0, step=step))
        bench.advance(15)
    assert bench.condition("Stalled") == ("False", "Advancing")


def test_a_run_that_reports_no_position_is_not_called_stalled(bench: Bench) -> None:
    for _ in range(3):
        bench.advance(400)
        bench.observe(Progress(timestamp=bench.now, metrics=(("loss", "0.5"),)), source="logs")
    assert bench.condition("Stalled") == ("Unknown", "NotJudged")


def test_a_restart_in_place_keeps_the_old_numbers_but_not_as_new(bench: Bench) -> None:
    bench.report(500)
    again = replace(RANK0, restart_count=1, last_termination=KILLED)
    bench.job(replace(JOB, rank0=again))
    assert bench.last.step == 500
    assert bench.condition("Fresh") == ("False", "AttemptEnded")
    assert bench.condition("Reporting") == ("Unknown", "NotYetProbed")
    assert bench.last.steps_per_s is None
    assert bench.last.remaining_s is None
    bench.advance(5)
    bench.report(400, attempt=again.attempt)
    assert bench.last.step == 400
    assert bench.condition("Fresh") == ("True", "RecentReport")


def test_an_older_report_of_another_source_changes_nothing(bench: Bench) -> None:
    bench.report(500)
    older = Progress(timestamp=T0 - timedelta(seconds=5), step=400, total_steps=1000)
    bench.observe(older, source="logs")
    assert bench.last.step == 500


def test_a_training_clock_that_is_set_back_stops_no_report(bench: Bench) -> None:
    bench.report(100)
    bench.advance(10)
    bench.report(150)
    for step in range(200, 2000, 50):  # reports keep coming, an hour earlier by their own clock
        bench.advance(10)
        told_at = bench.now - timedelta(hours=1)
        bench.observe(Progress(timestamp=told_at, step=step, total_steps=10_000))
        assert bench.last.step == step
        assert bench.last.steps_per_s == pytest.approx(5.0)
    assert bench.condition("Fresh") == ("True", "RecentReport")
    assert bench.condition("Stalled") == ("False", "Advancing")


def test_a_training_clock_that_jumps_ahead_hides_no_stall(bench: Bench) -> None:
    for step in range(4):
        ahead = timedelta(hours=1 if step >= 2 else 0)
        bench.observe(Progress(timestamp=bench.now + ahead, step=step, total_steps=1000))
        bench.advance(15)
    assert bench.last.steps_per_s == pytest.approx(1 / 15)
    bench.advance(1900)
    bench.job(replace(JOB, labels={"seen": "again"}))
    assert bench.condition("Stalled") == ("True", "NoAdvance")
    assert bench.condition("Fresh") == ("False", "NoNewReport")


def test_when_our_own_clock_is_set_back_ages_count_from_there(bench: Bench) -> None:
    bench.report(500)
    bench.advance(-3600)
    unreachable = Refused(reason="PodUnreachable", message="no")
    bench.observe(unreachable)
    assert bench.condition("Fresh") == ("True", "RecentReport")
    bench.advance(90)
    bench.observe(unreachable)
    assert bench.condition("Fresh") == ("False", "PodUnreachable")


@pytest.mark.parametrize(
    "gone",
    [None, replace(RANK0, is_running=False, last_termination=KILLED, waiting_reason="CrashLoopBackOff")],
    ids=["pod deleted", "container ended"],
)
def test_numbers_of_a_container_that_has_ended_are_not_shown_as_current(
    bench: Bench, gone: Rank0 | None
) -> None:
    bench.report(500)
    bench.job(replace(JOB, rank0=gone))
    assert bench.last.step == 500
    assert bench.condition("Fresh") == ("False", "Rank0NotRunning")
    assert bench.last.remaining_s is None


def test_numbers_of_a_job_that_is_switched_off_are_not_shown_as_current(bench: Bench) -> None:
    bench.report(500)
    bench.job(replace(JOB, hints=ProbeHints(source="none")))
    assert bench.condition("Fresh") == ("False", "SwitchedOff")


def test_the_document_left_in_the_termination_message_is_the_final_report(bench: Bench) -> None:
    bench.report(900, metrics=(("loss", "0.4"), ("accuracy", "0.9")))
    bench.advance(3)
    left = json.dumps(
        {"timestamp": bench.now.isoformat(), "state": "completed", "step": 1000, "metrics": {"loss": 0.1}}
    )
    ended = replace(
        RANK0,
        is_running=False,
        last_termination=Termination(exit_code=0, signal=None, reason="Completed", finished_at=T0),
        termination_message=left,
    )
    bench.job(replace(JOB, rank0=ended))
    assert bench.last.step == 1000
    assert bench.last.progress_percentage == 100
    assert dict(bench.last.metrics) == {"loss": "0.1", "accuracy": "0.9"}
    assert bench.condition("Fresh") == ("True", "FinalReport")
    bench.job(replace(JOB, phase=Phase.SUCCEEDED, rank0=None))
    assert bench.last.step == 1000
    assert bench.last.remaining_s == 0
    assert bench.last.job.rank0 == ended
    assert bench.condition("Complete") == ("True", "Rank0Running")


@pytest.mark.parametrize("text", ["Traceback (most recent call last):", "{", '{"timestamp": 3}', "\ud800"])
def test_a_termination_message_that_is_no_document_is_left_alone(bench: Bench, text: str) -> None:
    bench.report(900)
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, termination_message=text)))
    assert bench.last.step == 900


def test_a_killed_job_shows_how_it_ended_after_its_pod_has_gone(bench: Bench) -> None:
    bench.report(500)
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, last_termination=KILLED)))
    bench.job(replace(JOB, phase=Phase.FAILED, reason="FailedJobs", rank0=None))
    assert bench.last.job.rank0 is not None
    assert bench.last.job.rank0.last_termination == KILLED
    assert bench.condition("Failed") == ("True", "FailedJobs")
    assert bench.condition("Fresh") == ("False", "EndedWithoutFinalReport")
    assert bench.last.remaining_s is None


def test_the_last_exit_is_still_shown_when_a_new_pod_takes_over() -> None:
    bench = Bench()
    bench.job(replace(JOB, rank0=replace(RANK0, is_running=False, last_termination=KILLED)))
    bench.job(replace(JOB, rank0=replace(RANK0, pod_uid="p2")))
    assert bench.last.job.rank0 is not None
    assert bench.last.job.rank0.last_termination == KILLED


def test_a_job_that_never_reported_says_so_when_it_has_ended(bench: Bench) -> None:
    bench.observe(Refused(reason="NoProgressFile", message="No progress file at /tmp/x."))
    assert bench.condition("Reporting") == ("False", "NoProgressFile")
    bench.job(replace(JOB, phase=Phase.SUCCEEDED))
    assert bench.condition("Reporting") == ("False", "NoProgressFile")
    bench.job(replace(JOB, phase=Phase.SUCCEEDED, labels={"katib.kubeflow.org/trial": "random-4k2x"}))
    assert bench.condition("Reporting") == ("False", "MetricsUnavailable")  # Katib's word
    assert bench.shown("Reporting").message == "No progress file at /tmp/x."


def test_a_job_that_ended_unread_says_what_was_missing(bench: Bench) -> None:
    bench.observe(Refused(reason="ExecForbidden", message="This server has no right to exec into the pod."))
    bench.job(replace(JOB, rank0=replace(RANK0, pod_uid="p2", is_running=False)))
    bench.job(replace(JOB, phase=Phase.FAILED, rank0=None))
    heir = bench.heir()
    heir.job(replace(JOB, phase=Phase.FAILED, rank0=None))
    for each in (bench, heir):
        assert each.condition("Reporting") == ("False", "EndedWithoutReport")
        assert each.shown("Reporting").message.endswith("This server has no right to exec into the pod.")
    untried = Bench()
    untried.job(replace(JOB, phase=Phase.SUCCEEDED))
    assert untried.shown("Reporting").message.startswith("The job ended before it was probed.")


def test_a_queued_job_is_suspended_for_that_reason() -> None:
    bench = Bench()
    bench.job(replace(JOB, phase=Phase.SUSPENDED, is_suspended=True, is_queued=True, rank0=None))
    assert bench.condition("Suspended") == ("True", "Queued")
    bench.job(replace(JOB, is_suspended=False))
    assert bench.condition("Suspended") == ("False", "Resumed")


def test_what_repeats_the_job_s_own_conditions_is_not_there_before_it_is_true(bench: Bench) -> None:
    bench.report(100)
    assert [c.type for c in bench.last.conditions] == ["Reporting", "Fresh", "Stalled", "Diverged"]


def test_a_condition_that_comes_and_goes_leaves_the_times_of_the_others(bench: Bench) -> None:
    began = {c.type: c.since for c in bench.last.conditions}
    bench.advance(10)
    bench.job(replace(JOB, phase=Phase.SUCCEEDED))
    bench.advance(10)
    bench.job(JOB)
    assert {c.type: c.since for c in bench.last.conditions if c.type in ("Stalled", "Diverged")} == {
        type_: began[type_] for type_ in ("Stalled", "Diverged")
    }


def test_a_deleted_job_is_retracted_once(bench: Bench) -> None:
    bench.tracker.job_gone(REF)
    bench.tracker.job_gone(REF)
    assert bench.retracted == [REF]
    bench.report(1)
    assert len(bench.published) == 1


def test_an_annotation_that_cannot_be_used_is_named_in_the_condition() -> None:
    bench = Bench()
    fault = "Annotation visibility.trainer.kubeflow.org/path is ignored: it must be an absolute path."
    bench.job(replace(JOB, hints=ProbeHints(faults=(fault,))))
    bench.report(1)
    reporting = bench.shown("Reporting")
    assert reporting.message == fault


FAR_APART = (
    (datetime(9998, 1, 1, tzinfo=UTC), datetime(1970, 1, 3, tzinfo=UTC)),
    (datetime(1970, 1, 3, tzinfo=UTC), datetime(9998, 12, 1, tzinfo=UTC)),
)


@pytest.mark.parametrize(("told_at", "began_at"), FAR_APART, ids=["ahead", "behind"])
def test_times_that_are_thousands_of_years_apart_are_as_far_as_times_go(
    told_at: datetime, began_at: datetime
) -> None:
    bench = Bench()
    bench.job(replace(JOB, rank0=replace(RANK0, pod_started_at=T0), accelerators=(("nvidia.com/gpu", 8),)))
    for step in range(1, 4):
        bench.advance(15)
        at = told_at + timedelta(seconds=15 * step)
        bench.observe(Progress(timestamp=at, started_at=began_at, step=step, total_steps=10))
        bench.tracker.review(1.0)
        assert bench.last.step == step
    status = Progress(timestamp=began_at, progress_percentage=5)
    bench.job(JOB, status=status)


def test_a_job_that_cannot_be_evaluated_keeps_no_other_from_it() -> None:
    """And the end of the others is watched as before."""
    shown: list[JobProgress] = []
    broken = False

    def publish(document: JobProgress) -> None:
        if broken and document.job.ref == REF:
            raise ValueError("this one")
        shown.append(document)

    now = T0
    tracker = Tracker(publish=publish, retract=lambda _ref: None, now=lambda: now, interval_s=15.0)
    good = job_ref("good", uid="u2")
    for ref in (REF, good):
        tracker.job_changed(replace(JOB, ref=ref))
    for step in range(5):
        now += timedelta(seconds=15)
        for ref in (REF, good):
            report = Progress(timestamp=now, step=step, total_steps=6)
            tracker.observed(
                Observation(ref=ref, attempt=RANK0.attempt, source="exec", at=now, outcome=report)
            )
    broken = True
    shown.clear()
    for _ in range(120):
        now += timedelta(seconds=1)
        with suppress(ValueError):
            tracker.review(1 / 60)
        last = [each for each in shown if each.job.ref == good][-1:]
        assert all(each.completion_at is None or each.completion_at > now for each in last)
    assert [each.completion_at for each in shown if each.job.ref == good][-1] is None


def test_in_one_turn_a_few_of_very_many_jobs_are_evaluated() -> None:
    """A second's share of 20,000 jobs kept the event loop for 25 ms; all whose end came at one moment, for as
    long as they took."""
    now, shown = T0, Counter[JobRef]()
    tracker = Tracker(
        publish=lambda each: shown.update([each.job.ref]), retract=print, now=lambda: now, interval_s=15.0
    )
    refs = [job_ref(f"job-{number}", uid=f"u{number}") for number in range(120)]
    for ref in refs:
        tracker.job_changed(replace(JOB, ref=ref))
    for step in range(5):
        now += timedelta(seconds=15)
        report = Progress(timestamp=now, step=step, total_steps=6)
        for ref in refs:
            found = Observation(ref=ref, attempt=RANK0.attempt, source="exec", at=now, outcome=report)
            tracker.observed(found)
    shown.clear()
    now += timedelta(seconds=40)
    tracker.review(0)
    assert 0 < shown.total() <= 40
    for _ in range(4):
        tracker.review(0)
    assert shown == dict.fromkeys(refs, 1)
    now += timedelta(seconds=61)
    shown.clear()
    for _ in range(20):
        tracker.review(1 / 60 / 20)
    assert 1 <= shown.total() <= 2
    for _ in range(60 * 20):
        tracker.review(1 / 60 / 20)
    assert (shown.keys(), shown.total() <= 122) == (set(refs), True)
