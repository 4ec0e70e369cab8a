"""The phase of a job; the first rule that applies counts.

Conditions are found by type and status, never by position: they are not in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from visibility_api.jobs.job import Phase, Rank0

from .kind import Group, PhaseDecision, View
from .objects import Meta, ObjectCondition, Pod
from .rank0 import main_container, waiting_of

QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # a label


def job_phase(
    meta: Meta,
    conditions: Sequence[ObjectCondition],
    view: View,
    success: str,
    rank0: Rank0 | None,
    said: Mapping[str, str],
) -> PhaseDecision:
    """The phase, and why: by the condition that decides it, if one does, else by what its pods wait for.

    `success`: the condition that says that it has succeeded. `said`: what the initializers that run have
    printed of their progress, by group.
    """
    for type_, phase in (("Failed", Phase.FAILED), (success, Phase.SUCCEEDED)):
        if found := true_condition(conditions, type_):
            return by_condition(phase, found, type_)
    suspended = true_condition(conditions, "Suspended")
    if view.is_suspended or suspended:
        return _suspended(meta, suspended, rank0)
    if view.unmade is not None:
        return _of_status(view, conditions) if view.manager else view.unmade
    return _of_parts(view, rank0, said)


def _suspended(meta: Meta, condition: ObjectCondition | None, rank0: Rank0 | None) -> PhaseDecision:
    """Kueue suspends the jobs of its queues until it admits them: such a job is queued, not paused."""
    decision = by_condition(Phase.SUSPENDED, condition, "Suspended")
    ending = f" Pod {rank0.pod_name} has not ended yet." if rank0 is not None and rank0.is_running else ""
    if queue := meta.label(QUEUE_NAME):
        message = f"The job waits in queue {queue} until Kueue admits it.{ending}"
        return replace(decision, reason="Queued", message=message)
    if ending:
        return replace(decision, message=(decision.message or "The job is suspended.") + ending)
    return decision


def _of_status(view: View, conditions: Sequence[ObjectCondition]) -> PhaseDecision:
    """By the status alone, as MultiKueue copies it from the cluster in which the job runs."""
    groups = view.groups
    busy = [g for g in groups if g.is_active or g.is_ready]
    if any(g.is_ready and not g.is_initializer for g in busy):
        return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
    if any(g.is_initializer for g in busy):
        names = ", ".join(g.name for g in busy if g.is_initializer)
        return PhaseDecision(Phase.INITIALIZING, "InitializerRunning", f"Running: {names}.")
    # `ready` counts groups of which all pods are ready; rank 0 may report before its slowest peer is.
    if view.trainer_status is not None and (busy or not groups):
        return PhaseDecision(Phase.RUNNING, "StatusReported", "The job's status reports progress.")
    manager = view.manager
    if groups or conditions:
        return PhaseDecision(Phase.PENDING, "ManagedElsewhere", f"{manager} has not reported a running pod.")
    return PhaseDecision(
        Phase.UNKNOWN,
        "ManagedElsewhere",
        f"The job is managed by {manager}, which has not written a status yet.",
    )


def _of_parts(view: View, rank0: Rank0 | None, said: Mapping[str, str]) -> PhaseDecision:
    if rank0 is not None and rank0.is_running:
        return PhaseDecision(Phase.RUNNING, "Rank0Running", "")
    preparing = [g for g in view.groups if g.is_initializer]
    busy = [g for g in preparing if g.is_active or g.is_ready or _has_work(g)]
    if busy:
        return _of_initializers(busy, said)
    if view.starting is not None:
        return view.starting
    is_ready = any(g.is_ready for g in view.groups if g.name in view.leaders)
    if rank0 is None:
        if is_ready:
            return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
        if view.restarting is not None:
            return view.restarting
        return PhaseDecision(Phase.PENDING, "NoPod", "The rank-0 pod does not exist yet.")
    if rank0.node_name is None:
        return PhaseDecision(
            Phase.PENDING,
            rank0.waiting_reason or "Unscheduled",
            rank0.waiting_message or f"Pod {rank0.pod_name} is not scheduled yet.",
        )
    if (
        rank0.last_termination is not None
    ):  # the container ended, or waits for its restart, and the job continues
        return PhaseDecision(
            Phase.RUNNING,
            rank0.waiting_reason or "Rank0Terminated",
            f"Container {rank0.container_name} of pod {rank0.pod_name} ended with exit code "
            f"{rank0.last_termination.exit_code}. The job continues.",
        )
    if is_ready:
        return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
    return PhaseDecision(
        Phase.INITIALIZING,
        rank0.waiting_reason or "ContainerCreating",
        rank0.waiting_message
        or f"Container {rank0.container_name} of pod {rank0.pod_name} is not running yet.",
    )


def _of_initializers(busy: Sequence[Group], said: Mapping[str, str]) -> PhaseDecision:
    """What the running initializers do or wait for. One that cannot start explains most."""
    messages, reason = [], ""
    for group in busy:
        name, pod = group.name, _pod_of(group)
        waiting = waiting_of(pod, main_container(pod, name)) if pod is not None else None
        reason = reason or (waiting.reason if waiting is not None else "")
        if waiting is not None and waiting.reason:
            messages.append(f"{name}: {waiting.message}")
        else:
            messages.append(f"{name}: {said[name]}." if name in said else f"{name} is running.")
    return PhaseDecision(Phase.INITIALIZING, reason or "InitializerRunning", " ".join(messages))


def _has_work(group: Group) -> bool:
    pod = _pod_of(group)
    return pod is not None and pod.status.phase in ("Pending", "Running")


def _pod_of(group: Group) -> Pod | None:
    return group.claim.pod if group.claim is not None else None


def true_condition(conditions: Iterable[ObjectCondition] | None, type_: str) -> ObjectCondition | None:
    """The condition of this type, if it is true."""
    for condition in conditions or ():
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def by_condition(phase: Phase, condition: ObjectCondition | None, reason: str) -> PhaseDecision:
    """With the condition's reason and message, if there is one."""
    if condition is None:
        return PhaseDecision(phase, reason, "")
    return PhaseDecision(
        phase, condition.reason or reason, condition.message or "", since=condition.last_transition_time
    )
