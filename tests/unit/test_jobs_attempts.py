"""How often training was started: counted of the pods that are seen, and of what they say was before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.jobs import JOB, KILLED, rank0
from visibility_api.jobs.job import Phase, Rank0, TrainingJob

from .bench import Bench

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
    later = bench.heir()
    later.job(of(rank0(pod_uid="p2", restart_count=1)))
    assert later.last.attempts == 3
