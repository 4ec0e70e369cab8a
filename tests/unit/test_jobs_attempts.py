"""How often training was started: counted of the pods that are seen, and of what they say was before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, KILLED, T0, rank0
from visibility_api.jobs.job import Phase, Rank0, TrainingJob

from .test_jobs_memory import heir, memory_of
from .test_jobs_tracker import Bench

NEVER_RUN = rank0(is_running=False, started_at=None, waiting_reason="ContainerCreating")


def of(pod: Rank0 | None) -> TrainingJob:
    return replace(JOB, rank0=pod)


@pytest.mark.parametrize(
    ("pods", "attempts"),
    [
        ([None], None),
        ([NEVER_RUN], None),
        ([NEVER_RUN, rank0()], 1),
        ([rank0(), rank0()], 1),
        ([rank0(), rank0(is_running=False, waiting_reason="CrashLoopBackOff", last_termination=KILLED)], 1),
        ([rank0(), rank0(restart_count=1), rank0(restart_count=2)], 3),
        ([rank0(), rank0(restart_count=2)], 3),  # one was too short to be seen
        ([rank0(restart_count=2)], 3),
        ([rank0(), None, rank0(pod_uid="p2")], 2),
        ([rank0(restart_count=1), rank0(pod_uid="p2"), rank0(pod_uid="p2", restart_count=1)], 4),
        ([rank0(), replace(NEVER_RUN, pod_uid="p2")], 1),
        ([rank0(pod_uid="p3", restart_attempt=2)], 3),  # the JobSet made two others before
        ([rank0(), rank0(pod_uid="p3", restart_attempt=2)], 3),
    ],
)
def test_each_start_of_the_container_is_an_attempt(pods: list[Rank0 | None], attempts: int | None) -> None:
    bench = Bench()
    for pod in pods:
        bench.job(of(pod))
    assert bench.last.attempts == attempts


def test_a_suspended_job_that_is_resumed_has_begun_another() -> None:
    bench = Bench()
    bench.job(JOB)
    bench.job(replace(JOB, phase=Phase.SUSPENDED, rank0=None))
    assert bench.last.attempts == 1
    bench.job(of(rank0(pod_uid="p2")))
    assert bench.last.attempts == 2


def test_a_process_that_starts_later_counts_on() -> None:
    bench = Bench()
    bench.job(JOB)
    bench.job(of(rank0(pod_uid="p2")))
    later = heir(bench)
    later.job(of(rank0(pod_uid="p2", restart_count=1)))
    assert later.last.attempts == 3


def test_another_replica_s_count_is_taken_over_where_it_is_higher() -> None:
    bench = Bench()
    for uid in ("p1", "p2", "p3"):
        bench.job(of(rank0(pod_uid=uid)))
    other = Bench()
    other.job(of(rank0(pod_uid="p3")))
    other.tracker.recalled(JOB.ref, memory_of(bench))
    assert other.last.attempts == 3
    other.job(of(rank0(pod_uid="p4")))
    assert other.last.attempts == 4


def test_a_state_of_an_earlier_version_counts_no_attempt_twice() -> None:
    """It does not say when its last pod was created."""
    pods = [rank0(pod_uid=f"p{n}", pod_created_at=T0 + timedelta(seconds=n)) for n in (1, 2, 3)]
    bench, behind = Bench(), Bench()
    for pod in pods:
        bench.job(of(pod))
    old = replace(memory_of(bench), begun_pod_at=None)
    upgraded = heir(bench)
    upgraded.job(of(pods[2]))
    upgraded.tracker.past_recalled(JOB.ref, old)
    assert memory_of(upgraded).begun_pod_at == pods[2].pod_created_at
    behind.job(of(pods[1]))
    behind.tracker.past_recalled(JOB.ref, memory_of(upgraded))
    behind.job(of(pods[2]))
    assert behind.last.attempts == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (rank0(), rank0(restart_count=1)),
        (rank0(pod_created_at=T0), rank0(pod_uid="p2", pod_created_at=T0 + timedelta(seconds=11))),
    ],
    ids=["same pod", "another pod"],
)
def test_what_another_replica_has_seen_sooner_is_counted_once(before: Rank0, after: Rank0) -> None:
    """This one's watch is a moment behind when it is given the state, and shows some more of the past."""
    bench, behind = Bench(), Bench()
    for each in (bench, behind):
        each.job(of(before))
    bench.job(of(after))
    behind.tracker.recalled(JOB.ref, memory_of(bench))
    behind.job(of(replace(before, is_running=False, last_termination=KILLED)))
    behind.job(of(after))
    assert bench.last.attempts == behind.last.attempts == 2
