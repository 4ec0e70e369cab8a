"""How a job failed, by its containers, its pods and its own condition.

Messages of the kubelet, the scheduler and controllers are quoted, up to a length. Text that a container wrote
is never quoted, such as its termination message.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import DEADLINE_EXCEEDED, LOST_BEFORE, NODE_LOST, Failure, first_of
from visibility_api.jobs.job import exit_signal, is_worth_retrying

from .objects import BatchJob, ContainerStatus, ObjectCondition, Pod, PodCondition, StateTerminated

MAX_QUOTED_CHARACTERS = 300
NODE_SHUTDOWN = "NodeShutdown"
KUBELET_ENDS_WITHIN = timedelta(seconds=1)  # of two clocks, in whole seconds
CLOCKS_DIFFER = timedelta(seconds=5)  # a node's and the control plane's, at most
# Reasons of the condition DisruptionTarget, and a kubelet's, in shorter words
# (https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions).
REASONS = {
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
    "DeletionByDeviceTaintManager": "Evicted",
    "EvictionByEvictionAPI": "Evicted",
    "TerminationByKubelet": "Evicted",
    "Preempting": "Preempted",
    "Terminated": NODE_SHUTDOWN,
    "Shutdown": NODE_SHUTDOWN,
}
_BY_NODE = {
    "Evicted": "was evicted",
    "Preempted": "was preempted by a pod of higher priority",
    NODE_LOST: "was lost with its node",
    NODE_SHUTDOWN: "was ended because its node shut down",
    DEADLINE_EXCEEDED: "ran for longer than its activeDeadlineSeconds",
}
_RETRYABLE = ("Evicted", "Preempted", NODE_LOST, NODE_SHUTDOWN)
INITIALIZER_FAILED = "InitializerFailed"
POD_FAILURE_POLICY = "PodFailurePolicy"


class Replica(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which of a job's replicas a pod is."""

    name: str  # such as node-3
    is_initializer: bool = False


def pod_failure(pod: Pod, replica: Replica) -> Failure | None:
    """The last failure that this pod shows, or None.

    What a deletion ends has not failed. Suspension, a restart of the JobSet and the end of the job delete
    pods. Their containers end by SIGTERM, or with the exit code that they answer it with.
    """
    disruption = pod.status.condition("DisruptionTarget")
    if disruption is not None and _had_failed_before(pod, disruption):
        disruption = None
    if (found := _of_pod(pod, replica, disruption)) is not None:
        return found
    held: Failure | None = None
    for status, is_init in _statuses(pod):
        for ended in (status.last_state.terminated, status.state.terminated):
            if ended is not None and ended.exit_code != 0 and not _is_deleted(pod, ended, disruption):
                found = _of_container(pod, replica, status.name, ended, is_init=is_init)
                held = first_of(held, found) if found is not None else held
    return held


def job_failure(condition: ObjectCondition) -> Failure | None:
    """By the job's own condition Failed. None where that has no time: then nothing can be compared."""
    if condition.last_transition_time is None:
        return None
    reason = condition.reason or "Failed"
    return Failure(
        at=condition.last_transition_time,
        reason=harmless(reason[:MAX_QUOTED_CHARACTERS]),
        message=harmless(f"The job failed: {quoted(condition.message or reason)}"),
        is_retryable=False if reason in (DEADLINE_EXCEEDED, "TrainingRuntimeNotSupported") else None,
        is_of_job=True,
    )


def job_failures(job: BatchJob | None, group: str) -> tuple[Failure, ...]:
    """By the condition Failed of the Job of a group; none if it has no time.

    It has the cause also when the pods are gone. The JobSet says only that a Job has failed.
    """
    condition = job.status.failed_condition if job is not None else None
    if job is None or condition is None or condition.last_transition_time is None:
        return ()
    reason = condition.reason or "Failed"
    says = quoted(condition.message or reason)
    failure = Failure(
        at=condition.last_transition_time,
        replica=group,
        reason=harmless(reason[:MAX_QUOTED_CHARACTERS]),
        message=harmless(f"{group}: Job {job.metadata.name} failed: {says}"),
        is_retryable=False if reason in (DEADLINE_EXCEEDED, POD_FAILURE_POLICY) else None,
        is_of_job=True,
    )
    return (failure,)


def quoted(text: str) -> str:
    """Text of another component for our message: shortened, and with a full stop at its end."""
    text = text.strip()
    text = text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[: MAX_QUOTED_CHARACTERS - 1]}…"
    return text if text.endswith((".", "…")) else f"{text}."


def _statuses(pod: Pod) -> Iterator[tuple[ContainerStatus, bool]]:
    if pod.status.phase == "Succeeded":
        return
    containers = pod.status.container_statuses or ()
    # Once these have begun, the others are done; or they are sidecars: restarted, and ended with them.
    if not any(c.state.running or c.state.terminated or c.last_state.terminated for c in containers):
        for status in pod.status.init_container_statuses or ():
            yield status, True
    for status in containers:
        yield status, False


def _had_failed_before(pod: Pod, disruption: PodCondition) -> bool:
    """Whether the pod had failed before it was evicted. A drain or taint evicts failed pods too."""
    ended = [status.state.terminated for status in pod.status.container_statuses or ()]
    times = [last.finished_at for last in ended if last is not None and last.finished_at is not None]
    if pod.status.phase != "Failed" or pod.status.reason or disruption.since is None or not times:
        return False
    is_lost = REASONS.get(disruption.reason or "") == NODE_LOST  # which is noticed late
    return max(times) + (LOST_BEFORE if is_lost else CLOCKS_DIFFER) < disruption.since


def _is_deleted(pod: Pod, ended: StateTerminated, disruption: PodCondition | None) -> bool:
    """Whether a container ended because its pod was deleted, and by nothing worth a name."""
    if pod.metadata.deletion_timestamp is None or disruption is not None or ended.reason == "OOMKilled":
        return False
    if ended.finished_at is None:
        return True
    # `deletionTimestamp` is when it must be gone: the request came by the grace period before.
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return ended.finished_at + KUBELET_ENDS_WITHIN >= pod.metadata.deletion_timestamp - grace


def _of_pod(pod: Pod, replica: Replica, disruption: PodCondition | None) -> Failure | None:
    """The pod failed as a whole: its node, the scheduler or the kubelet ended it."""
    reason = pod.status.reason or ""
    if pod.status.phase != "Failed" or not reason:
        if disruption is None or pod.status.phase == "Succeeded":
            return None
        reason = disruption.reason or "Disrupted"
    reason = REASONS.get(reason, reason)
    ended = [
        (status.name, last)
        for status in pod.status.container_statuses or ()
        if (last := status.state.terminated) is not None and last.exit_code != 0
    ]
    times = [last.finished_at for _, last in ended if last.finished_at is not None]
    if disruption is not None and disruption.since is not None:
        times.append(disruption.since)
    # A pod that the kubelet has refused never ran.
    at = min(times, default=None) or pod.status.start_time or pod.metadata.creation_timestamp
    if at is None:
        return None
    name, last = ended[0] if ended else ("", None)
    says = pod.status.message or (disruption.message if disruption is not None else "") or ""
    what = _BY_NODE.get(reason, f"failed ({reason})")
    on = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    why = f": {quoted(says)}" if says else "."
    return Failure(
        at=at,
        since=pod.status.start_time or pod.metadata.creation_timestamp,
        replica=replica.name,
        pod_name=pod.metadata.name,
        node_name=pod.spec.node_name or "",
        container_name=name,
        exit_code=last.exit_code if last is not None else None,
        signal=exit_signal(last.exit_code, last.signal) if last is not None else None,
        reason=harmless(reason[:MAX_QUOTED_CHARACTERS]),
        message=harmless(f"{replica.name}: pod {pod.metadata.name}{on} {what}{why}"),
        is_retryable=True if reason in _RETRYABLE else False if reason == DEADLINE_EXCEEDED else None,
    )


def _of_container(
    pod: Pod, replica: Replica, name: str, ended: StateTerminated, *, is_init: bool
) -> Failure | None:
    at = ended.finished_at or ended.started_at or pod.status.start_time
    if at is None:
        return None
    code, number = ended.exit_code, exit_signal(ended.exit_code, ended.signal)
    reason = ended.reason or "Error"
    if replica.is_initializer and reason == "Error":
        reason = INITIALIZER_FAILED
    if reason == "OOMKilled":
        what = f"was killed for lack of memory (exit code {code}). Raise its limit, or let it need less"
    elif number is not None:
        what = f"was ended by signal {number}{_signal_name(number)} (exit code {code})"
    else:
        what = f"ended with exit code {code}"
        what += f" ({reason})" if reason not in ("Error", INITIALIZER_FAILED) else ""
    kind = "init container" if is_init else "container"
    on = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    return Failure(
        at=at,
        since=ended.started_at,
        replica=replica.name,
        pod_name=pod.metadata.name,
        node_name=pod.spec.node_name or "",
        container_name=name,
        exit_code=code,
        signal=number,
        reason=harmless(reason[:MAX_QUOTED_CHARACTERS]),
        message=harmless(f"{replica.name}: {kind} {name} of pod {pod.metadata.name}{on} {what}."),
        is_retryable=is_worth_retrying(code, ended.reason or ""),
    )


def _signal_name(number: int) -> str:
    try:
        return f", {signal.Signals(number).name},"
    except ValueError:
        return ""


def latest(failures: list[Failure], *, started_at: datetime | None) -> Failure | None:
    """The first failure of the last attempt, among all that the pods of a job show."""
    held: Failure | None = None
    for found in sorted(failures, key=lambda each: each.at):
        held = first_of(held, found, started_at=started_at)
    return held
