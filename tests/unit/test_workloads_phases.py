"""The phase of a TrainJob, by its own status and that of its JobSet and pods."""

from __future__ import annotations

import pytest

from tests.workload_objects import TORCH, condition, counts, described, jobset, pod, trainjob
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob
from visibility_api.workloads.objects import Pod

WITH_DATA = jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer"))


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
            trainjob(), TORCH,
            [pod(phase="Pending", state={"waiting": {"reason": "ContainerCreating"}},
                 conditions=[condition("PodReadyToStartContainers")])],
            ("Initializing", "PullingImage"), id="image is being pulled",
        ),
        pytest.param(
            trainjob(), TORCH,
            [pod(phase="Pending", scheduled=False, state={},
                 conditions=[condition("PodScheduled", "False", "SchedulingGated")])],
            ("Pending", "SchedulingGated"), id="scheduling gates",
        ),
        pytest.param(
            trainjob(), jobset(("node", "trainer"), restarts=2), [], ("Pending", "Restarting"),
            id="the JobSet begins anew",
        ),
        pytest.param(
            trainjob(labels={"kueue.x-k8s.io/queue-name": "gpu"}, suspend=True), TORCH, [],
            ("Suspended", "Queued"), id="queued",
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
            trainjob(status=counts("dataset-initializer", active=1)),
            jobset(("dataset-initializer", "dataset-initializer"), ("node", "trainer")), [],
            ("Initializing", "InitializerRunning"), id="initializer",
        ),
        pytest.param(
            trainjob(), WITH_DATA, [pod("dataset-initializer", container="dataset-initializer")],
            ("Initializing", "InitializerRunning"), id="initializer that no status counts yet",
        ),
        pytest.param(
            trainjob(), WITH_DATA,
            [pod("dataset-initializer", container="dataset-initializer", phase="Pending",
                 state={"waiting": {"reason": "ErrImagePull"}})],
            ("Initializing", "ErrImagePull"), id="image pull of an initializer",
        ),
        pytest.param(
            trainjob(), WITH_DATA,
            [pod("dataset-initializer", container="dataset-initializer", phase="Succeeded",
                 state={"terminated": {"exitCode": 0}})],
            ("Pending", "NoPod"), id="initializer done",
        ),
    ],
)  # fmt: skip
def test_the_phase_is_the_first_rule_that_matches(
    job: TrainJob, js: JobSet | None, pods: list[Pod], expected: tuple[str, str]
) -> None:
    assert phase_of(job, js, *pods) == expected


def test_a_suspended_job_with_a_queue_name_is_queued() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "q"}
    queued = described(trainjob(labels=queue, suspend=True), None, ())
    assert queued.is_queued
    assert queued.message == "The job waits in queue q until Kueue admits it."
    assert not described(trainjob(suspend=True), None, ()).is_queued
    assert not described(trainjob(labels=queue), None, ()).is_queued


def test_a_suspended_job_whose_pod_still_runs_says_so() -> None:
    job = trainjob(suspend=True, status={"conditions": [condition("Suspended")]})
    seen = described(job, TORCH, [pod(deleting=True)])
    assert seen.phase == "Suspended"
    assert seen.message == "The job is suspended. Pod bert-node-0-0-p1 has not ended yet."


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (
            pod(
                phase="Pending", scheduled=False, state={},
                conditions=[
                    {**condition("PodScheduled", "False", "Unschedulable"),
                     "message": "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."}
                ],
            ),
            "Pod bert-node-0-0-p1 is not scheduled: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu.",
        ),
        (
            pod(phase="Pending", state={"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}),
            "Container node of pod bert-node-0-0-p1 waits: no such tag",
        ),
        (
            pod(phase="Pending", state={"waiting": {"reason": "PodInitializing"}},
                init=[{"name": "sidecar", "state": {"running": {}}},
                      {"name": "flux-installer", "state": {"running": {}}},
                      {"name": "next", "state": {"waiting": {"reason": "PodInitializing"}}}]),
            "Init container flux-installer of pod bert-node-0-0-p1 is running.",
        ),
        (
            pod(phase="Pending", conditions=[condition("PodReadyToStartContainers")],
                state={"waiting": {"reason": "ContainerCreating"}}),
            "Node gpu-1 pulls the image of container node of pod bert-node-0-0-p1, or starts it.",
        ),
    ],
    ids=["unschedulable", "image pull", "init container", "pulling"],
)  # fmt: skip
def test_the_message_says_what_a_job_waits_for(seen: Pod, message: str) -> None:
    assert described(trainjob(), TORCH, [seen]).message == message


def test_what_a_scheduler_says_of_many_nodes_is_cut() -> None:
    why = {**condition("PodScheduled", "False", "Unschedulable"), "message": "0/9 nodes: " + "x" * 3000}
    seen = described(trainjob(), TORCH, [pod(phase="Pending", scheduled=False, state={}, conditions=[why])])
    assert len(seen.message) < 500
    assert seen.message.endswith("…")


def test_terminals_are_safe_from_what_a_status_says() -> None:
    failed = {**condition("Failed", reason="A\x1b[2J"), "message": "two\nlines\u202e"}
    seen = described(trainjob(status={"conditions": [failed]}), TORCH, ())
    assert (seen.reason, seen.message) == ("A\ufffd[2J", "two lines\ufffd")


def test_of_a_pod_s_conditions_only_what_explains_is_kept() -> None:
    """Or each pod that becomes ready would be a change of its job, and all of them would be kept."""
    ready = [condition(t) for t in ("PodScheduled", "Initialized", "PodReadyToStartContainers", "Ready")]
    assert pod(conditions=ready).status.conditions is None
    assert [c.type for c in pod(phase="Pending", conditions=ready).status.conditions or ()] == [
        "PodReadyToStartContainers"
    ]


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


# What initializers do

PREPARED = jobset(
    ("dataset-initializer", "dataset-initializer"),
    ("model-initializer", "model-initializer"),
    ("node", "trainer"),
)
DATASET = pod("dataset-initializer", container="dataset-initializer", uid="d1")
MODEL = pod("model-initializer", container="model-initializer", uid="m1")
FILES = "Fetching 12 files 41 % (5/12)"


def test_what_an_initializer_has_printed_is_part_of_why_the_job_does_not_run() -> None:
    seen = described(trainjob(), PREPARED, [DATASET, MODEL], said={"d1/0": FILES})
    assert (seen.phase, seen.reason) == ("Initializing", "InitializerRunning")
    assert seen.message == f"dataset-initializer: {FILES}. model-initializer is running."
    assert [(each.name, each.attempt) for each in seen.initializers] == [
        ("dataset-initializer", "d1/0"),
        ("model-initializer", "m1/0"),
    ]


def test_one_that_cannot_start_is_not_read() -> None:
    waits = pod("model-initializer", container="model-initializer", uid="m1", phase="Pending",
                state={"waiting": {"reason": "ErrImagePull"}})  # fmt: skip
    seen = described(trainjob(), PREPARED, [DATASET, waits], said={"d1/0": FILES, "m1/0": FILES})
    assert seen.reason == "ErrImagePull"
    assert seen.message == (
        f"dataset-initializer: {FILES}. "
        "model-initializer: Container model-initializer of pod bert-model-initializer-0-0-m1 waits."
    )
    assert [each.name for each in seen.initializers] == ["dataset-initializer"]


def test_what_an_earlier_run_of_an_initializer_has_printed_is_not_shown() -> None:
    again = pod("dataset-initializer", container="dataset-initializer", uid="d1", restarts=1)
    seen = described(trainjob(), PREPARED, [again], said={"d1/0": FILES})
    assert seen.message == "dataset-initializer is running."


@pytest.mark.parametrize(
    ("job", "pods", "phase"),
    [
        (trainjob(), [DATASET, pod()], "Running"),
        (trainjob(suspend=True), [DATASET], "Suspended"),
        (trainjob(status={"conditions": [condition("Failed")]}), [DATASET], "Failed"),
        (trainjob(), [pod("dataset-initializer", container="dataset-initializer", uid="d1", phase="Succeeded",
                          state={"terminated": {"exitCode": 0}})], "Pending"),
        (trainjob(), [pod("dataset-initializer", container="dataset-initializer", uid="d1", deleting=True)],
         "Initializing"),
    ],
    ids=["training runs", "suspended", "failed", "initializer ended", "initializer is being deleted"],
)  # fmt: skip
def test_no_initializer_is_read_but_while_it_runs_and_the_training_waits(
    job: TrainJob, pods: list[Pod], phase: str
) -> None:
    seen = described(job, PREPARED, pods, said={"d1/0": FILES})
    assert (seen.phase, seen.initializers) == (phase, ())
    assert FILES not in seen.message


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (
            pod(phase="Failed", reason="OutOfnvidia.com/gpu", state={}, status={"containerStatuses": None}),
            "OutOfnvidia.com/gpu",
        ),
        (
            pod(phase="Failed", reason="Evicted", state={"waiting": {"reason": "ContainerCreating"}}),
            "Evicted",
        ),
        (pod(phase="Failed", state={"waiting": {"reason": "PodInitializing"}}), "PodFailed"),
    ],
    ids=["refused by the kubelet", "evicted while its image was pulled", "its init container failed"],
)
def test_a_pod_that_failed_before_it_began_is_not_about_to_start(seen: Pod, reason: str) -> None:
    found = described(trainjob(), TORCH, [seen])
    assert (found.phase, found.reason) == ("Initializing", reason)
    assert found.message == "Pod bert-node-0-0-p1 failed before container node began."
