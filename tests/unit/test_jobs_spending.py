"""NoProgress, LowGoodput, AtRisk and AcceleratorsIdle: whether the time of a job comes to something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from visibility_api.jobs.job import ProbeHints, Termination, Thresholds
from visibility_api.reports.marks import Marks

from .bench import Bench, at
from .test_jobs_goodput import Run, job, marked


def crash(run: Run, number: int, back_to: int) -> None:
    """The container ends and is started again."""
    ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(run.now_s))
    pod: dict[str, Any] = {"restart_count": number - 1, "last_termination": ended}
    began = run.made.tracker._records[job().ref].job.rank0
    assert began is not None
    stopped = replace(began, is_running=False, last_termination=ended)
    run.made.job(replace(job(), rank0=stopped))
    run.wait(20)
    run.made.job(job(run_s=run.now_s, pod=pod | {"restart_count": number}))
    run.attempt, run.step = f"p1/{number}/0", back_to


def saved(step: int, at_s: float) -> Marks:
    return Marks(checkpoint_step=step, checkpoint_at=at(at_s))


def hinted(run: Run, **thresholds: Any) -> None:
    seen = run.made.tracker._records[job().ref].job
    run.made.job(replace(seen, hints=ProbeHints(thresholds=Thresholds(**thresholds))))


def test_three_attempts_that_reach_no_new_step_are_no_progress() -> None:
    run = Run()
    run.train(300)
    for number in (1, 2, 3):
        crash(run, number, back_to=100)
        assert run.made.last.condition("NoProgress") is None
        run.train(60)
    crash(run, 4, back_to=100)
    assert run.made.condition("NoProgress") == ("True", "NoNewStep")
    assert run.made.shown("NoProgress").message.startswith("3 attempts in a row")
    run.train(210)
    assert run.made.condition("NoProgress") == ("False", "Advancing")


def test_a_crash_loop_before_the_first_step_is_no_progress_where_a_step_could_be_told() -> None:
    for declared, found in (((("exec", "variable"),), True), ((), False)):
        made = Bench()
        for number in range(4):
            made.now = at(100 * number)
            ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(100 * number + 50))
            pod = {"restart_count": number, "declared": declared}
            made.job(job(run_s=100 * number, pod=pod))
            made.now = at(100 * number + 50)
            made.job(job(run_s=100 * number, pod=pod | {"is_running": False, "last_termination": ended}))
        assert (made.last.condition("NoProgress") is not None) is found


def test_a_run_is_at_risk_once_its_last_checkpoint_is_long_ago() -> None:
    run = Run()
    run.train(600, marks=saved(200, 230))
    assert run.made.condition("AtRisk") == ("False", "RecentCheckpoint")
    assert run.made.last.checkpoint == (200, at(230))
    run.train(1800, marks=saved(200, 230))
    assert run.made.condition("AtRisk") == ("True", "NoRecentCheckpoint")
    shown = run.made.shown("AtRisk")
    assert "The last checkpoint is of step 200. If the run ends now, 36m are lost." in shown.message
    assert shown.since == at(230 + 1800)
    run.train(15, marks=saved(2400, run.now_s))
    assert run.made.condition("AtRisk") == ("False", "RecentCheckpoint")


def test_a_run_whose_checkpoints_are_rare_is_at_risk_later() -> None:
    run = Run()
    run.train(60, marks=saved(60, 90))
    run.train(3600)
    run.train(2400, marks=saved(3660, run.now_s))
    assert run.made.condition("AtRisk") == ("False", "RecentCheckpoint")


def test_a_checkpoint_outlives_its_attempt_and_what_was_done_since_a_restart_is_at_risk() -> None:
    run = Run()
    run.train(1500, marks=saved(1200, 1230))
    crash(run, 1, back_to=1200)
    run.train(1500)
    assert run.made.condition("AtRisk") == ("False", "RecentCheckpoint")
    assert run.made.last.checkpoint == (1200, at(1230))
    heir = run.made.heir()
    heir.job(job(run_s=1550, pod={"restart_count": 1}))
    assert heir.last.checkpoint == (1200, at(1230))


@pytest.mark.parametrize(("after_s", "status"), [(600.0, "True"), (float("inf"), "False")])
def test_an_annotation_says_after_how_long_a_run_is_at_risk(after_s: float, status: str) -> None:
    run = Run()
    run.train(900, marks=saved(100, 130))
    hinted(run, at_risk_after_s=after_s)
    assert run.made.shown("AtRisk").status == status


def test_a_run_that_tells_of_no_checkpoints_is_not_judged() -> None:
    run = Run()
    run.train(3600)
    assert run.made.last.condition("AtRisk") is None


def test_low_goodput_is_called_out_where_an_annotation_says_what_is_low() -> None:
    run = Run()
    run.train(1800)
    for _ in range(75):
        run.wait(60)
    assert run.made.last.condition("LowGoodput") is None
    hinted(run, goodput_below=0.5)
    run.wait(60)
    assert run.made.condition("LowGoodput") == ("True", "BelowThreshold")
    message = run.made.shown("LowGoodput").message
    assert message.startswith("Goodput was 0% in the last hour, less than the 50% of the job's annotation")
    assert message.endswith("The rest: Stalled 60m.")
    run.train(3600)
    assert run.made.condition("LowGoodput") == ("False", "AboveThreshold")


def test_a_marked_evaluation_does_not_stall_and_has_an_end() -> None:
    """The third evaluation of ten minutes takes half a day. Until then its end is part of the estimate."""
    run = Run()
    for _ in range(2):
        run.train(3000)
        run.tell(marks=marked("evaluation", run.now_s))
        run.wait(600)
        assert run.made.condition("Fresh")[0] == "True"
        run.tell()
    run.train(3000)
    run.tell(marks=marked("evaluation", run.now_s), total_steps=run.step + 2000)
    run.wait(60)
    assert run.made.last.remaining_s == pytest.approx(2000 + 540, rel=0.01)
    for _ in range(720):
        run.wait(60)
        assert run.made.condition("Stalled") == ("False", "Advancing")


@pytest.mark.parametrize("kind", ["evaluation", "checkpointSave"])
def test_a_section_that_is_over_was_no_stall_though_no_step_has_followed_yet(kind: str) -> None:
    run = Run()
    run.train(3600)
    run.tell(marks=marked(kind, run.now_s))
    run.wait(3000)
    run.tell(marks=marked(**{kind: 3000.0}))
    assert run.made.condition("Stalled") == ("False", "Advancing")
    for _ in range(10):
        run.wait(60)
    assert run.made.condition("Stalled")[0] == "True"


@pytest.mark.parametrize(("kind", "after"), [("checkpointSave", "2h"), ("dataLoading", "5m")])
def test_a_stall_in_a_marked_section_says_which(kind: str, after: str) -> None:
    run = Run()
    run.train(600)
    run.tell(marks=marked(kind, run.now_s))
    while run.made.condition("Stalled") == ("False", "Advancing"):
        run.wait(20)
    assert run.made.condition("Stalled")[0] == "True"
    assert f"No advance for {after} in its section {kind}" in run.made.shown("Stalled").message


def used(run: Run, seconds: int, *percent: float) -> None:
    """So long its accelerators are so busy."""
    metrics = tuple(
        (f"system/gpu_{each}_utilization_percentage", f"{of:g}") for each, of in enumerate(percent)
    )
    for _ in range(seconds // 15):
        run.now_s += 15
        run.step += 1
        run.tell(metrics=(("loss", "1"), *metrics))


@pytest.mark.parametrize(
    ("phases", "status"),
    [
        (((900, 0, 0),), None),  # its first report is of 45 s
        (((1200, 0, 4.9),), "True"),
        (((1200, 0, 5),), None),  # one of them is busy
        (((600, 0, 0), (15, 90, 90), (600, 0, 0)), None),  # not for so long without a break
        (((1200, 0, 0), (15, 90, 90)), "False"),
        (((3000,),), None),  # nothing is said of accelerators
        (((1200, float("nan")),), None),
    ],
)
def test_accelerators_are_idle_once_none_was_busy_for_long(
    phases: Sequence[Sequence[float]], status: str | None
) -> None:
    run = Run()
    for seconds, *percent in phases:
        used(run, int(seconds), *percent)
    found = run.made.last.condition("AcceleratorsIdle")
    assert (found and found.status) == status
    if status == "True":
        assert found is not None
        assert (found.reason, found.since) == ("NotUsed", at(45 + 900))
        heir = run.made.heir()
        heir.job(job())
        assert heir.condition("AcceleratorsIdle") == ("True", "NotUsed")
        hinted(run, idle_after_s=float("inf"))
        assert run.made.condition("AcceleratorsIdle") == ("False", "Busy")


def test_idle_accelerators_of_an_earlier_attempt_do_not_count() -> None:
    run = Run()
    used(run, 840, 0)
    crash(run, 1, back_to=1)
    used(run, 600, 0)
    assert run.made.last.condition("AcceleratorsIdle") is None
