"""The phase of a TrainJob, by its own status and that of its JobSet and pods."""

from __future__ import annotations

import msgspec
import pytest

from visibility_api.workloads.objects import JobSet, Pod, TrainJob

from .test_workloads_trainjobs import TORCH, condition, counts, described, jobset, pod, trainjob


def phase_of(job: TrainJob, js: JobSet | None = TORCH, *pods: Pod) -> tuple[str, str]:
    seen = described(job, js, pods)
    return seen.phase, seen.reason


@pytest.mark.parametrize(
    ("job", "js", "pods", "expected"),
    [
        pytest.param(
            trainjob(status={"conditions": [condition("Failed", reason="FailedJobs")]}),
            TORCH, [pod()], ("Failed", "FailedJobs"), id="failed",
        ),
        pytest.param(
            trainjob(status={"conditions": [condition("Complete", reason="AllJobsCompleted")]}, suspend=True),
            TORCH, [], ("Succeeded", "AllJobsCompleted"), id="complete",
        ),
        pytest.param(trainjob(suspend=True), TORCH, [pod()], ("Suspended", "Suspended"), id="suspend wanted"),
        pytest.param(
            trainjob(status={"conditions": [condition("Suspended", "False"), condition("Failed", "False")]}),
            TORCH, [pod()], ("Running", "Rank0Running"), id="resumed: looked up by type, not by position",
        ),
        pytest.param(trainjob(), None, [], ("Pending", "NoJobSet"), id="no JobSet"),
        pytest.param(trainjob(), TORCH, [], ("Pending", "NoPod"), id="no pod"),
        pytest.param(
            trainjob(), TORCH, [pod(scheduled=False, state={})], ("Pending", "Unscheduled"), id="unscheduled"
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"waiting": {"reason": "ContainerCreating"}})],
            ("Initializing", "ContainerCreating"), id="container creating",
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"waiting": {"reason": "ImagePullBackOff"}})],
            ("Initializing", "ImagePullBackOff"), id="image pull",
        ),
        pytest.param(
            trainjob(), TORCH,
            [pod(state={"waiting": {"reason": "PodInitializing"}},
                 init=[{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])],
            ("Initializing", "CrashLoopBackOff"), id="init container crashes",
        ),
        pytest.param(
            trainjob(), TORCH,
            [pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last={"terminated": {"exitCode": 1}})],
            ("Running", "CrashLoopBackOff"), id="crash loop",
        ),
        pytest.param(
            trainjob(), TORCH, [pod(state={"terminated": {"exitCode": 0}})],
            ("Running", "Rank0Terminated"), id="rank 0 has ended, the job not yet",
        ),
        pytest.param(
            trainjob(status=counts(ready=1)), TORCH, [], ("Running", "TrainerReady"), id="trainer ready"
        ),
        pytest.param(
            trainjob(managedBy="kueue.x-k8s.io/multikueue"), None, [],
            ("Unknown", "ManagedElsewhere"), id="managed elsewhere",
        ),
        pytest.param(
            trainjob(status={"jobsStatus": [{"name": "dataset-initializer", "active": 1}]}),
            jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer")), [],
            ("Initializing", "InitializerRunning"), id="initializer",
        ),
    ],
)  # fmt: skip
def test_the_phase_is_the_first_rule_that_matches(
    job: TrainJob, js: JobSet | None, pods: list[Pod], expected: tuple[str, str]
) -> None:
    assert phase_of(job, js, *pods) == expected


def test_a_suspended_job_with_a_queue_name_is_queued() -> None:
    plain = trainjob(suspend=True)
    queued = msgspec.convert(
        {
            "metadata": {**msgspec.to_builtins(plain.metadata), "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"suspend": True},
        },
        TrainJob,
    )
    assert described(queued, None, ()).is_queued
    assert not described(plain, None, ()).is_queued


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (trainjob(), None),
        (trainjob(suspend=True), True),
        (trainjob(status={"conditions": [condition("Suspended")]}), True),
        (trainjob(status={"conditions": [condition("Suspended", "False")]}), False),
    ],
)
def test_a_job_that_was_suspended_differs_from_one_that_never_was(job: TrainJob, expected: object) -> None:
    assert described(job, None, ()).is_suspended is expected
