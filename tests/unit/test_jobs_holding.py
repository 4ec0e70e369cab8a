"""For how long accelerators are held, and how much of that is waste: docs/goodput.md."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, rank0
from visibility_api.jobs.job import Phase, Termination, TrainingJob
from visibility_api.reports.document import Progress
from visibility_api.reports.fields import MAX_INTEGER

from .bench import Bench, at

GPUS = (("nvidia.com/gpu", 8),)


def job(*, uid: str = "p1", pod_s: float | None = 0, **more: Any) -> TrainingJob:
    """On a node since `pod_s`; None: it has no pod."""
    pod = rank0(pod_uid=uid, pod_started_at=at(pod_s), **more.pop("pod", {})) if pod_s is not None else None
    return replace(JOB, accelerators=GPUS, rank0=pod, **more)


def bench(seconds: float = 0, seen: TrainingJob | None = None) -> Bench:
    made = Bench()
    made.now = at(seconds)
    made.job(seen or job())
    return made


def go_on(made: Bench, until_s: float, step: int | None = None, **more: Any) -> None:
    """It is then, and the job reports that, or is evaluated."""
    made.now = at(until_s)
    if step is not None:
        made.report(step, **more)
    made.review()


def seconds(made: Bench) -> float:
    """Of one accelerator."""
    held = made.last.resources
    assert held is not None
    assert held.accelerators == 8
    return held.held_s / 8


def wasted(made: Bench) -> float | None:
    """Of one accelerator."""
    held = made.last.resources
    assert held is not None
    return held.wasted_s / 8 if held.wasted_s is not None else None


def test_wasted_is_what_it_took_to_start_and_to_recover_and_what_was_done_again_or_stalled() -> None:
    made = Bench(now=at(90))
    made.job(replace(job(), rank0=rank0(pod_started_at=at(0), started_at=at(90))))
    for step in range(10, 160, 10):
        go_on(made, 100 + step, step=step)
    assert wasted(made) == 90
    go_on(made, 5000)
    assert wasted(made) == pytest.approx(90 + 5000 - 250)
    killed = Termination(exit_code=137, signal=9, reason="Error", finished_at=at(5000))
    made.now = at(5060)
    made.job(job(pod={"restart_count": 1, "started_at": at(5050), "last_termination": killed}))
    assert wasted(made) == pytest.approx(90 + 5060 - 250)


def test_initializers_hold_no_accelerators() -> None:
    made = bench(0, job(pod_s=None, phase=Phase.INITIALIZING))
    made.now = at(630)
    made.job(job(pod_s=600, pod={"started_at": at(630)}))
    for step in range(10, 1000, 10):
        go_on(made, 630 + step, step=step)
    assert seconds(made) == 1020
    assert wasted(made) == pytest.approx(30, abs=1)


def test_a_job_that_never_reported_and_says_not_where_is_not_called_wasteful() -> None:
    made = bench()
    go_on(made, 120)
    assert (seconds(made), wasted(made)) == (120, None)
    declares = bench(0, job(pod={"declared": (("exec", "variable TRAINJOB_PROGRESS_FILE"),)}))
    go_on(declares, 120)
    assert (seconds(declares), wasted(declares)) == (120, 0)


def test_a_suspended_job_holds_nothing() -> None:
    made = bench()
    go_on(made, 10, step=1)
    go_on(made, 100, step=2)
    made.now = at(200)
    made.job(job(pod_s=None, phase=Phase.SUSPENDED, is_suspended=True, suspension_changed_at=at(150)))
    assert seconds(made) == 150
    made.now = at(1000)
    made.job(job(pod_s=900, uid="p2", is_suspended=False))
    assert seconds(made) == 250


def test_an_ended_job_has_held_them_until_its_end() -> None:
    made = bench()
    go_on(made, 10, step=1)
    made.now = at(500)
    made.job(job(phase=Phase.SUCCEEDED, ended_at=at(400)))
    assert seconds(made) == 400
    made.now = at(9000)
    made.job(job(phase=Phase.SUCCEEDED, ended_at=at(400), pod_s=None))
    assert seconds(made) == 400


def test_a_pod_that_is_gone_holds_nothing_and_the_next_one_does() -> None:
    made = bench()
    go_on(made, 10, step=1)
    ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(80))
    made.now = at(85)
    made.job(job(pod={"is_running": False, "last_termination": ended}))
    made.now = at(100)
    made.job(job(pod_s=None))
    go_on(made, 180)
    assert seconds(made) == 80
    made.now = at(220)
    made.job(job(pod_s=200, uid="p2"))
    assert seconds(made) == 100


def test_a_pod_that_no_node_has_accepted_holds_nothing() -> None:
    made = Bench()
    made.job(replace(JOB, accelerators=GPUS, rank0=rank0(node_name=None, started_at=None, is_running=False)))
    go_on(made, 500)
    assert seconds(made) == 0


def test_what_a_job_claims_to_hold_is_bounded() -> None:
    """A Job with parallelism 2147483647 is one that kube-apiserver takes."""
    made = bench(seen=replace(job(), accelerators=tuple((f"gpu-{n}", MAX_INTEGER) for n in range(8))))
    go_on(made, 86_400, step=10)
    held = made.last.resources
    assert held is not None
    assert (held.accelerators, held.held_s) == (MAX_INTEGER, MAX_INTEGER)


def test_a_job_without_accelerators_shows_none() -> None:
    made = Bench()
    made.job(JOB)
    assert made.last.resources is None


def test_a_growing_number_wakes_no_watcher() -> None:
    made = bench()
    go_on(made, 10, step=1)
    count = len(made.published)
    go_on(made, 25)
    assert len(made.published) == count
    go_on(made, 75)
    assert seconds(made) == 75


def test_whoever_takes_over_counts_on() -> None:
    made = bench()
    go_on(made, 10, step=1)
    made.now = at(150)
    made.job(job(pod_s=None, phase=Phase.SUSPENDED, suspension_changed_at=at(150)))
    made.now = at(1000)
    made.job(job(pod_s=900, uid="p2"))
    made.report(1, attempt="p2/0/0")
    later = made.heir()
    later.job(job(pod_s=900, uid="p2"))
    assert seconds(later) == seconds(made) == 250


def test_no_more_is_wasted_than_is_held_however_long_a_run_stands_still() -> None:
    """Such as one whose first report is a file that lay in its volume."""
    made = bench(60)
    made.observe(Progress(timestamp=at(-18000), step=5, total_steps=100))
    made.advance(60)
    made.tracker.review(1.0)
    found = made.last.resources
    assert found is not None
    assert made.condition("Stalled")[0] == "True"
    assert found.wasted_s is not None
    assert found.wasted_s <= found.held_s


def test_a_job_that_is_first_seen_after_its_end_has_held_them_until_then() -> None:
    over = replace(job(), phase=Phase.SUCCEEDED, ended_at=at(4000))
    made = bench(9000, over)
    assert seconds(made) == 4000
    made.advance(600)
    made.job(over)
    assert seconds(made) == 4000
    watched = bench(60)
    go_on(watched, 3900, step=10)
    watched.now = at(4010)
    watched.job(over)
    assert seconds(watched) == 4000


def test_pods_that_overlap_hold_the_accelerators_of_the_job_once() -> None:
    """As where one may hold rank 0 while the other is being replaced."""
    made = bench(0, job(uid="p1", pod_s=0))
    go_on(made, 100)
    made.job(job(uid="p2", pod_s=10))
    go_on(made, 200)
    made.job(job(uid="p1", pod_s=0))
    go_on(made, 300)
    assert seconds(made) == 300


def test_a_failed_pod_that_outlives_the_next_one_is_not_taken_for_a_watch_that_is_behind() -> None:
    made = bench(0, job(uid="p1", pod_s=0))
    go_on(made, 100)
    made.job(job(uid="p2", pod_s=100))
    go_on(made, 200)
    made.job(job(uid="p1", pod_s=0, phase=Phase.SUSPENDED, suspension_changed_at=at(200)))
    go_on(made, 100_000)
    assert seconds(made) == 200


def test_the_end_of_an_earlier_run_is_not_that_of_a_pod_that_is_gone() -> None:
    made = bench()
    ended = Termination(exit_code=1, signal=None, reason="Error", finished_at=at(30))
    made.job(job(pod={"restart_count": 1, "started_at": at(40), "last_termination": ended}))
    go_on(made, 9000)
    made.job(job(pod_s=None))
    assert seconds(made) == 9000


def test_what_was_held_is_known_when_the_jobset_and_its_pods_are_gone() -> None:
    """As after `ttlSecondsAfterFinished` of the JobSet; also by a process that starts then."""
    made = bench()
    go_on(made, 100, step=10)
    ended = job(pod_s=None, phase=Phase.SUCCEEDED, ended_at=at(7200))
    made.now = at(7200)
    made.job(ended)
    gone = replace(ended, accelerators=())
    made.now = at(9000)
    made.job(gone)
    later = made.heir()
    later.job(gone)
    assert seconds(made) == seconds(later) == 7200
