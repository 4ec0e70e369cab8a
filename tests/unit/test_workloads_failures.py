"""Why a job failed, by its objects as kubelets, the scheduler and the controllers write them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.workload_objects import (
    MPI,
    TORCH,
    all_pods,
    batch_job,
    condition,
    container_status,
    counts,
    described,
    pod,
    reference,
    trainjob,
)
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase
from visibility_api.kinds.replicated_jobs import JobSet
from visibility_api.kinds.trainjob import TrainJob
from visibility_api.workloads.failures import Replica, pod_failure
from visibility_api.workloads.objects import BatchJob, ObjectCondition, Pod, PodStatus
from visibility_api.workloads.rank0 import COMPLETION_INDEX

from .test_workloads_phases import WITH_DATA

NODE_3 = Replica(name="node-3")
AT = "2026-01-23T10:30:00Z"
FAILED_AT = datetime(2026, 1, 23, 10, 30, tzinfo=UTC)


def ended(code: int, reason: str = "Error", *, at: str | None = AT, **more: Any) -> dict[str, Any]:
    began = {"startedAt": "2026-01-23T10:02:00Z", "finishedAt": at}
    return {
        "terminated": {"exitCode": code, "reason": reason, "containerID": "containerd://1", **began, **more}
    }


def disrupted(reason: str, message: str) -> dict[str, Any]:
    return {**condition("DisruptionTarget", reason=reason), "message": message, "lastTransitionTime": AT}


EVICTED = pod(
    phase="Failed",
    reason="Evicted",
    state=ended(137, "ContainerStatusUnknown", at=None, startedAt=None),
    conditions=[disrupted("TerminationByKubelet", "The node was low on resource: memory.")],
    status={"message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "},
)
PREEMPTED = pod(
    deleting=True,
    conditions=[
        disrupted(
            "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"
        )
    ],
)
LOST = pod(
    deleting=True,
    conditions=[disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")],
)
SHUT_DOWN = pod(
    phase="Failed",
    reason="Terminated",
    state=ended(143),
    conditions=[
        disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")
    ],
    status={"message": "Pod was terminated in response to imminent node shutdown."},
)
OVERDUE = pod(
    phase="Failed",
    reason="DeadlineExceeded",
    state=ended(137),
    status={"message": "Pod was active on the node longer than the specified deadline"},
)
REFUSED = pod(
    phase="Failed",
    reason="OutOfnvidia.com/gpu",
    state={},
    status={
        "message": "Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8, capacity: 8",
        "containerStatuses": None,
        "startTime": AT,
    },
)


@pytest.mark.parametrize(
    ("seen", "reason", "exit_code", "signal", "retryable", "says"),
    [
        (pod(state=ended(1)), "Error", 1, None, False, "ended with exit code 1."),
        (
            pod(state=ended(126, "ContainerCannotRun")), "ContainerCannotRun", 126, None, False,
            "ended with exit code 126 (ContainerCannotRun).",
        ),
        (pod(state=ended(128, "StartError")), "StartError", 128, None, False, "128 (StartError)"),
        (
            pod(state=ended(137, "OOMKilled")), "OOMKilled", 137, 9, False,
            "node-3: container node of pod bert-node-0-0-p1 on node gpu-1 was killed for lack of memory",
        ),
        (pod(state=ended(137)), "Error", 137, 9, True, "was ended by signal 9, SIGKILL, (exit code 137)"),
        (pod(state=ended(139)), "Error", 139, 11, False, "signal 11, SIGSEGV,"),
        (pod(state=ended(143)), "Error", 143, 15, True, "SIGTERM"),
        (pod(state=ended(255)), "Error", 255, None, None, "exit code 255"),
        (pod(state={"running": {}}, last=ended(134), restarts=1), "Error", 134, 6, True, "SIGABRT"),
        (
            pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=ended(1), restarts=4),
            "Error", 1, None, False, "exit code 1",
        ),
        (
            pod(phase="Failed", init=[{"name": "flux-installer", "state": ended(2)}],
                state={"waiting": {"reason": "PodInitializing"}}),
            "Error", 2, None, False, "init container flux-installer of pod",
        ),
        (EVICTED, "Evicted", 137, 9, True, "node-3: pod bert-node-0-0-p1 on node gpu-1 was evicted: The"),
        (PREEMPTED, "Preempted", None, None, True, "was preempted by a pod of higher priority: default-sch"),
        (LOST, "NodeLost", None, None, True, "was lost with its node: Taint manager"),
        (SHUT_DOWN, "NodeShutdown", 143, 15, True, "its node shut down"),
        (OVERDUE, "DeadlineExceeded", 137, 9, False, "longer than its activeDeadlineSeconds: Pod was active"),
        (REFUSED, "OutOfnvidia.com/gpu", None, None, None, "failed (OutOfnvidia.com/gpu): Node didn't have"),
    ],
    ids=[
        "program error", "cannot run", "start error", "out of memory", "killed", "segmentation fault",
        "terminated", "lost connection", "restarted in place", "crash loop", "init container", "evicted",
        "preempted", "node lost", "node shut down", "deadline of the pod", "refused by the kubelet",
    ],
)  # fmt: skip
def test_a_pod_shows_why_it_failed(
    seen: Pod, reason: str, exit_code: int | None, signal: int | None, retryable: bool | None, says: str
) -> None:
    found = pod_failure(seen, NODE_3)
    assert found is not None
    assert (found.reason, found.exit_code, found.signal) == (reason, exit_code, signal)
    assert found.is_retryable is retryable
    assert (found.replica, found.pod_name, found.node_name) == ("node-3", "bert-node-0-0-p1", "gpu-1")
    assert found.at == FAILED_AT
    assert says in found.message
    assert found.message.endswith((".", "…"))


@pytest.mark.parametrize(
    "seen",
    [
        pod(),
        pod(phase="Succeeded", state=ended(0, "Completed")),
        pod(phase="Succeeded", state=ended(0, "Completed"), init=[{"name": "sidecar", "state": ended(143)}]),
        pod(phase="Pending", state={"waiting": {"reason": "ImagePullBackOff"}}),
        # Deleted at 11:00:00, and ended by that.
        pod(deleting=True, state=ended(143, at="2026-01-23T11:00:02Z")),
        pod(deleting=True, state=ended(1, at="2026-01-23T11:00:00Z")),
        pod(deleting=True, state=ended(137, at=None)),
        pod(
            deleting=True,
            state=ended(143, at="2026-01-23T10:59:31Z"),
            metadata={"deletionGracePeriodSeconds": 30},
        ),
        # Nothing that could be compared with others.
        pod(state=ended(1, at=None, startedAt=None)),
    ],
    ids=[
        "running", "succeeded", "sidecar", "image pull", "deleted", "answers SIGTERM by exit 1", "no time",
        "within the grace period", "nothing has a time",
    ],
)  # fmt: skip
def test_what_has_not_failed_is_not_said_to_have(seen: Pod) -> None:
    assert pod_failure(seen, NODE_3) is None


def test_a_container_that_failed_before_its_pod_was_deleted_has_failed() -> None:
    """When backoffLimit is reached, the Job deletes the pod."""
    seen = pod(deleting=True, state=ended(143, at="2026-01-23T11:00:02Z"), last=ended(1), restarts=1)
    found = pod_failure(seen, NODE_3)
    assert found is not None
    assert (found.exit_code, found.at) == (1, FAILED_AT)


def test_of_two_containers_the_first_to_fail_counts() -> None:
    seen = pod(
        phase="Failed",
        status={
            "containerStatuses": [
                container_status("sidecar", state=ended(1, at="2026-01-23T10:30:30Z")),
                container_status("node", state=ended(139)),
            ]
        },
    )
    found = pod_failure(seen, NODE_3)
    assert found is not None
    assert found.container_name == "node"


def test_what_a_container_wrote_is_not_repeated() -> None:
    seen = pod(state=ended(1, message="password=hunter2"))
    assert b"hunter2" not in msgspec.json.encode(pod_failure(seen, NODE_3))


def test_what_a_kubelet_says_is_cut_and_harms_no_terminal() -> None:
    seen = pod(phase="Failed", reason="Evi\x1bcted", status={"message": "x\x1b[2J" * 500, "startTime": AT})
    found = pod_failure(seen, NODE_3)
    assert found is not None
    assert len(found.message) < 500
    assert "\x1b" not in found.message + found.reason


def failure_of(job: TrainJob, js: JobSet | None, *pods: Pod) -> Failure | None:
    return described(job, js, pods).failure


def failed_trainjob(reason: str, message: str = "", at: str = "2026-01-23T10:30:05Z") -> TrainJob:
    why = {**condition("Failed", reason=reason), "message": message, "lastTransitionTime": at}
    return trainjob(status={"conditions": [why]})


def test_rank_0_and_initializers_show_their_failures() -> None:
    found = failure_of(trainjob(), TORCH, pod(state=ended(1)))
    assert found is not None
    assert found.replica == "node-0"
    failed = pod("dataset-initializer", container="dataset-initializer", phase="Failed", state=ended(1))
    found = failure_of(failed_trainjob("FailedJobs"), WITH_DATA, failed)
    assert found is not None
    assert (found.replica, found.reason) == ("dataset-initializer", "InitializerFailed")


def test_a_job_that_failed_without_its_pods_says_what_its_condition_says() -> None:
    message = "job is terminated because its deadline is exceeded"
    found = failure_of(failed_trainjob("DeadlineExceeded", message), None)
    assert found is not None
    assert (found.reason, found.is_retryable, found.replica) == ("DeadlineExceeded", False, "")
    assert found.message == f"The job failed: {message}."


def test_the_pod_that_failed_explains_more_than_the_job_s_condition() -> None:
    found = failure_of(
        failed_trainjob("FailedJobs", "jobset failed"), TORCH, pod(state=ended(137, "OOMKilled"))
    )
    assert found is not None
    assert found.reason == "OOMKilled"


@pytest.mark.parametrize(
    ("job", "phase"),
    [
        (trainjob(status={"conditions": [condition("Complete")]}), Phase.SUCCEEDED),
        (trainjob(suspend=True), Phase.SUSPENDED),
    ],
)
def test_the_end_of_pods_that_nobody_needs_is_no_failure(job: TrainJob, phase: Phase) -> None:
    """MPI's other pods run sshd until they are deleted, as those of a suspended job are."""
    launcher = pod("launcher", state=ended(0, "Completed"))
    sshd = pod("node", uid="p2", deleting=True, state=ended(143, at="2026-01-23T11:00:02Z"))
    seen = described(job, MPI, [launcher, sshd], None)
    assert seen.phase is phase
    assert seen.failure is None


@pytest.mark.parametrize(
    ("name", "owner", "index", "expected"),
    [
        ("bert-node-0-3-abcde", "uid of bert-node-0", "3", "node-3"),
        ("bert-node-0-3-abcde", "uid of bert-node-0", "2", None),
        ("bert-node-0-3-abcde", "another", "3", None),
        ("my-pod", "uid of bert-node-0", "3", None),
        ("bert-node-0-3-abcde", "uid of bert-node-0", "", None),
        ("bert-node-0-3-abcde", "uid of bert-node-0", "9" * 5000, None),
    ],
)  # fmt: skip
def test_a_pod_is_a_replica_if_its_owner_and_its_name_say_so(
    name: str, owner: str, index: str, expected: str | None
) -> None:
    seen = pod(name=name, owner=reference("Job", "bert-node-0", owner))
    found = all_pods(TORCH).replica(seen, {COMPLETION_INDEX: index})
    assert (found.name if found else None) == expected


def test_an_initializer_is_known_by_its_name_alone() -> None:
    found = all_pods(WITH_DATA).replica(pod("dataset-initializer"), {COMPLETION_INDEX: "0"})
    assert found == Replica(name="dataset-initializer", is_initializer=True)


def test_pods_are_counted_by_their_job() -> None:
    groups = msgspec.json.encode(TORCH)
    fields = msgspec.json.decode(groups)
    fields["spec"]["replicatedJobs"][0]["template"]["spec"] = {"parallelism": 64, "completions": 64}
    js = msgspec.convert(fields, JobSet)
    status = counts(active=1)

    def counted(job_status: dict[str, Any] | None, trainjob_status: dict[str, Any]) -> Sequence[int | None]:
        job = msgspec.to_builtins(batch_job()) | ({"status": job_status} if job_status is not None else {})
        seen = described(
            trainjob(status=trainjob_status), js, [pod()], [msgspec.convert(job, type(batch_job()))]
        )
        (node,) = seen.replicas
        return node.desired, node.ready, node.active, node.succeeded, node.failed

    running = {"active": 64, "ready": 63, "startTime": AT, "terminating": 0, "uncountedTerminatedPods": {}}
    assert counted(running, status) == (64, 63, 64, 0, 0)
    assert counted({"ready": 0, "failed": 1}, status) == (64, 0, 0, 0, 1)
    # Its controller has not seen the Job: what the TrainJob says, of Jobs, shows this much.
    assert counted({}, status) == (64, None, None, None, None)
    assert counted({}, counts(active=1, ready=1)) == (64, 64, None, None, None)
    assert counted({}, counts(succeeded=1)) == (64, 0, 0, 64, None)


# --- what comes after a failure does not explain it


@pytest.mark.parametrize(
    "reason", ["EvictionByEvictionAPI", "DeletionByTaintManager", "PreemptionByScheduler"]
)
def test_a_node_that_is_drained_the_day_after_is_not_why_a_pod_failed(reason: str) -> None:
    later = {**disrupted(reason, "later"), "lastTransitionTime": "2026-01-24T09:00:00Z"}
    seen = pod(phase="Failed", deleting=True, state=ended(137, "OOMKilled"), conditions=[later])
    found = pod_failure(seen, NODE_3)
    assert found is not None
    assert (found.reason, found.is_retryable, found.at) == ("OOMKilled", False, FAILED_AT)


@pytest.mark.parametrize(
    ("reason", "after_s", "shown"),
    [
        ("EvictionByEvictionAPI", 2, "Evicted"),  # of two clocks
        ("EvictionByEvictionAPI", 60, "Error"),
        ("DeletionByTaintManager", 300, "NodeLost"),  # which is noticed late
        ("DeletionByDeviceTaintManager", 0, "Evicted"),
    ],
)
def test_a_disruption_explains_what_it_may_have_caused(reason: str, after_s: int, shown: str) -> None:
    since = (FAILED_AT + timedelta(seconds=after_s)).isoformat()
    told = {**disrupted(reason, "x"), "lastTransitionTime": since}
    found = pod_failure(pod(phase="Failed", deleting=True, state=ended(1), conditions=[told]), NODE_3)
    assert found is not None
    assert found.reason == shown


def test_a_sidecar_that_was_restarted_before_the_training_began_is_no_failure_of_it() -> None:
    proxy = {"name": "istio-proxy", "state": {"running": {}}, "lastState": ended(1), "restartCount": 1}
    assert pod_failure(pod(init=[proxy]), NODE_3) is None
    crashed = ended(2, at="2026-01-23T10:40:00Z")
    loops = pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=crashed, restarts=1, init=[proxy])
    found = pod_failure(loops, NODE_3)
    assert found is not None
    assert found.container_name == "node"
    waits = {"waiting": {"reason": "PodInitializing"}}
    assert pod_failure(pod(state=waits, init=[proxy]), NODE_3) is not None


def test_a_sidecar_that_is_ended_with_the_pod_is_not_what_failed() -> None:
    killed = {"name": "istio-proxy", "state": ended(137)}
    found = pod_failure(pod(phase="Failed", state=ended(1), init=[killed]), NODE_3)
    assert found is not None
    assert (found.container_name, found.exit_code, found.is_retryable) == ("node", 1, False)


def test_of_two_containers_of_one_second_the_one_that_explains_more_counts() -> None:
    statuses = [container_status("node", state=ended(1)), container_status("logger", state=ended(2))]
    for given in (statuses, statuses[::-1]):
        found = pod_failure(pod(phase="Failed", status={"containerStatuses": given}), NODE_3)
        assert found is not None
        assert found.container_name == given[0]["name"]


def failed_job(reason: str, message: str, group: str = "node") -> BatchJob:
    why = {**condition("Failed", reason=reason), "message": message, "lastTransitionTime": AT}
    suspended = {**condition("Suspended", "False"), "lastTransitionTime": AT}
    return batch_job(group, status={"failed": 1, "ready": 0, "conditions": [suspended, why]})


def test_the_deadline_of_a_job_is_named_though_its_pods_are_gone() -> None:
    """The JobSet says only that one of its Jobs has failed."""
    job = failed_trainjob("FailedJobs", "jobset failed due to one or more job failures")
    late = failed_job("DeadlineExceeded", "Job was active longer than specified deadline")
    deleted = pod(deleting=True, state=ended(143, at="2026-01-23T11:00:01Z"))
    for pods in ([], [deleted]):
        found = described(job, TORCH, pods, [late]).failure
        assert found is not None
        assert (found.reason, found.replica, found.is_retryable) == ("DeadlineExceeded", "node", False)
        assert found.message == "node: Job bert-node-0 failed: Job was active longer than specified deadline."


@pytest.mark.parametrize(
    ("reason", "retryable"), [("PodFailurePolicy", False), ("BackoffLimitExceeded", None)]
)
def test_other_reasons_of_a_job_count_where_no_pod_knows_more(reason: str, retryable: bool | None) -> None:
    job, late = failed_trainjob("FailedJobs"), failed_job(reason, "says why")
    found = described(job, TORCH, [], [late]).failure
    assert found is not None
    assert (found.reason, found.is_retryable) == (reason, retryable)
    found = described(job, TORCH, [pod(phase="Failed", state=ended(137, "OOMKilled"))], [late]).failure
    assert found is not None
    assert found.reason == "OOMKilled"


def test_a_job_that_was_made_anew_says_nothing_while_the_whole_goes_on() -> None:
    found = described(trainjob(), TORCH, [pod()], [failed_job("DeadlineExceeded", "x")])
    assert found.failure is None


@pytest.mark.parametrize(
    "at",
    [
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"),
        *("0001-01-01T00:00:00+14:00", "2026-01-23T10:30:00"),
    ],
)
def test_times_that_nothing_can_be_added_to_are_not_known(at: str) -> None:
    """Each change of a job whose pod had ended in the year 9999 was an error of ours."""
    ran = {"startedAt": at, "finishedAt": at}
    container = {"state": {"terminated": ran}, "lastState": {"running": ran}}
    disruption = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at}
    status = msgspec.convert(
        {"startTime": at, "containerStatuses": [container], "conditions": [disruption]}, PodStatus
    )
    (found,), (condition,) = status.container_statuses or (), status.conditions or ()
    assert found.state.terminated is not None
    assert found.last_state.running is not None
    job_condition = msgspec.convert(disruption, ObjectCondition)
    assert {
        found.state.terminated.started_at,
        found.state.terminated.finished_at,
        found.last_state.running.started_at,
        status.start_time,
        condition.since,
        job_condition.last_transition_time,
    } == {None}
