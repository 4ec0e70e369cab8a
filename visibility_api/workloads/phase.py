"""The phase of a TrainJob; the first rule that applies counts.

Conditions are found by type and status, never by position: they are not in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from visibility_api.jobs.job import Phase, Rank0

from .objects import JobSet, ObjectCondition, Pod, TrainJob
from .rank0 import is_initializer, main_container, trainer_groups, waiting_of

OWN_CONTROLLERS = ("", "trainer.kubeflow.org/trainjob-controller")
QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # a label
# Names of replicated jobs; in a status that MultiKueue copied there are no labels to tell them by.
INITIALIZERS = ("dataset-initializer", "model-initializer")


class PhaseDecision(msgspec.Struct, frozen=True, gc=False):
    phase: Phase
    reason: str
    message: str
    since: datetime | None = None  # by the condition that decides it


def trainjob_phase(
    job: TrainJob,
    jobset: JobSet | None,
    rank0: Rank0 | None,
    initializers: Mapping[str, Pod],
    said: Mapping[str, str],
) -> PhaseDecision:
    """The phase, and why: by the condition that decides it, if one does, else by what its pods wait for.

    `initializers`: the pod of each replicated job that prepares data or model, where there is one. `said`:
    what those that run have printed of their progress.
    """
    conditions = (job.status.conditions if job.status else None) or ()
    for type_, phase in (("Failed", Phase.FAILED), ("Complete", Phase.SUCCEEDED)):
        if found := _true(conditions, type_):
            return _by_condition(phase, found, type_)
    suspended = _true(conditions, "Suspended")
    if job.spec.suspend or suspended:
        return _suspended(job, suspended, rank0)
    if jobset is None and is_managed_elsewhere(job):
        return _of_status(job)
    if jobset is None:
        return PhaseDecision(
            Phase.PENDING,
            "NoJobSet",
            "Kubeflow Trainer has not made the JobSet. If that lasts, the TrainJob's events say why.",
        )
    return _of_parts(job, jobset, rank0, initializers, said)


def ended_at(job: TrainJob) -> datetime | None:
    """When the job ended for good; None while it has not, or where that is not known."""
    conditions = (job.status.conditions if job.status else None) or ()
    found = _true(conditions, "Failed") or _true(conditions, "Complete")
    return found.last_transition_time if found is not None else None


def failed_condition(job: TrainJob) -> ObjectCondition | None:
    """The job's own condition Failed, if it is true."""
    return _true((job.status.conditions if job.status else None) or (), "Failed")


def is_managed_elsewhere(job: TrainJob) -> bool:
    """Its JobSet and pods are in another cluster (MultiKueue), of which only the status is copied here."""
    return (job.spec.managed_by or "") not in OWN_CONTROLLERS


def _suspended(job: TrainJob, condition: ObjectCondition | None, rank0: Rank0 | None) -> PhaseDecision:
    """Kueue suspends the jobs of its queues until it admits them: such a job is queued, not paused."""
    decision = _by_condition(Phase.SUSPENDED, condition, "Suspended")
    ending = f" Pod {rank0.pod_name} has not ended yet." if rank0 is not None and rank0.is_running else ""
    if queue := job.metadata.label(QUEUE_NAME):
        message = f"The job waits in queue {queue} until Kueue admits it.{ending}"
        return replace(decision, reason="Queued", message=message)
    if ending:
        return replace(decision, message=(decision.message or "The job is suspended.") + ending)
    return decision


def _of_status(job: TrainJob) -> PhaseDecision:
    """By the status alone, as MultiKueue copies it from the cluster in which the job runs."""
    groups = (job.status.jobs_status if job.status else None) or ()
    busy = [g for g in groups if g.active or g.ready]
    if any(g.name not in INITIALIZERS and g.ready for g in busy):
        return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
    if any(g.name in INITIALIZERS for g in busy):
        names = ", ".join(g.name for g in busy if g.name in INITIALIZERS)
        return PhaseDecision(Phase.INITIALIZING, "InitializerRunning", f"Running: {names}.")
    # `ready` counts groups of which all pods are ready; rank 0 may report before its slowest peer is.
    if job.status is not None and job.status.trainer_status is not None and (busy or not groups):
        return PhaseDecision(Phase.RUNNING, "StatusReported", "The job's status reports progress.")
    manager = job.spec.managed_by
    if groups or (job.status and job.status.conditions):
        return PhaseDecision(Phase.PENDING, "ManagedElsewhere", f"{manager} has not reported a running pod.")
    return PhaseDecision(
        Phase.UNKNOWN,
        "ManagedElsewhere",
        f"The job is managed by {manager}, which has not written a status yet.",
    )


def _of_parts(
    job: TrainJob,
    jobset: JobSet,
    rank0: Rank0 | None,
    initializers: Mapping[str, Pod],
    said: Mapping[str, str],
) -> PhaseDecision:
    if rank0 is not None and rank0.is_running:
        return PhaseDecision(Phase.RUNNING, "Rank0Running", "")
    counts = {s.name: s for s in (job.status.jobs_status if job.status else None) or ()}
    groups = jobset.spec.replicated_jobs or ()
    busy = [
        g.name
        for g in groups
        if is_initializer(g)
        and (((c := counts.get(g.name)) and (c.active or c.ready)) or _has_work(initializers.get(g.name)))
    ]
    if busy:
        return _of_initializers(busy, initializers, said)
    starting = _true((jobset.status.conditions if jobset.status else None) or (), "StartupPolicyInProgress")
    if starting:
        return _by_condition(Phase.INITIALIZING, starting, "StartupPolicyInProgress")
    ready = any((c := counts.get(name)) and c.ready for name in trainer_groups(jobset))
    if rank0 is None:
        if ready:
            return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
        restarts = jobset.status.restarts if jobset.status else 0
        if restarts:
            message = (
                f"The JobSet makes its Jobs anew: restart {restarts}. The rank-0 pod does not exist yet."
            )
            return PhaseDecision(Phase.PENDING, "Restarting", message)
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
    if ready:
        return PhaseDecision(Phase.RUNNING, "TrainerReady", "")
    return PhaseDecision(
        Phase.INITIALIZING,
        rank0.waiting_reason or "ContainerCreating",
        rank0.waiting_message
        or f"Container {rank0.container_name} of pod {rank0.pod_name} is not running yet.",
    )


def _of_initializers(
    busy: Sequence[str], initializers: Mapping[str, Pod], said: Mapping[str, str]
) -> PhaseDecision:
    """What the running initializers do or wait for. One that cannot start explains most."""
    messages, reason = [], ""
    for name in busy:
        pod = initializers.get(name)
        waiting = waiting_of(pod, main_container(pod, name)) if pod is not None else None
        reason = reason or (waiting.reason if waiting is not None else "")
        if waiting is not None and waiting.reason:
            messages.append(f"{name}: {waiting.message}")
        else:
            messages.append(f"{name}: {said[name]}." if name in said else f"{name} is running.")
    return PhaseDecision(Phase.INITIALIZING, reason or "InitializerRunning", " ".join(messages))


def _has_work(pod: Pod | None) -> bool:
    return pod is not None and pod.status.phase in ("Pending", "Running")


def _true(conditions: Iterable[ObjectCondition], type_: str) -> ObjectCondition | None:
    for condition in conditions:
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def _by_condition(phase: Phase, condition: ObjectCondition | None, reason: str) -> PhaseDecision:
    if condition is None:
        return PhaseDecision(phase, reason, "")
    return PhaseDecision(
        phase, condition.reason or reason, condition.message or "", since=condition.last_transition_time
    )
