"""The phase of a TrainJob: workloads-and-protocols.md 3.2, first match wins.

Conditions are looked up by type and status, never by position: their order is not their time order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from visibility_api.progress.job import Phase, Rank0

from .objects import JobSet, ObjectCondition, TrainJob
from .rank0 import is_initializer, trainer_groups

OWN_CONTROLLERS = ("", "trainer.kubeflow.org/trainjob-controller")
INITIALIZERS = ("dataset-initializer", "model-initializer")  # the groups' usual names, without their labels


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseVerdict:
    phase: Phase
    reason: str
    message: str


def trainjob_phase(job: TrainJob, jobset: JobSet | None, rank0: Rank0 | None) -> PhaseVerdict:
    """Where the job stands, with the controller's reason where it gives one."""
    conditions = (job.status.conditions if job.status else None) or ()
    for type_, phase in (("Failed", Phase.FAILED), ("Complete", Phase.SUCCEEDED)):
        if found := _true(conditions, type_):
            return _verdict(phase, found, type_)
    suspended = _true(conditions, "Suspended")
    if job.spec.suspend or suspended:
        return _verdict(Phase.SUSPENDED, suspended, "Suspended")
    if jobset is None and is_managed_elsewhere(job):
        return _of_status(job)
    if jobset is None:
        return PhaseVerdict(phase=Phase.PENDING, reason="NoJobSet", message="its JobSet does not exist yet")
    return _of_parts(job, jobset, rank0)


def is_managed_elsewhere(job: TrainJob) -> bool:
    """Its JobSet and pods are in another cluster; of them only the status comes back (3.3)."""
    return (job.spec.managed_by or "") not in OWN_CONTROLLERS


def _of_status(job: TrainJob) -> PhaseVerdict:
    """By the status that MultiKueue copies from the cluster where the job runs."""
    groups = (job.status.jobs_status if job.status else None) or ()
    busy = [g for g in groups if g.active or g.ready]
    if any(g.name not in INITIALIZERS and g.ready for g in busy):
        return PhaseVerdict(phase=Phase.RUNNING, reason="TrainerReady", message="")
    if any(g.name in INITIALIZERS for g in busy):
        names = ", ".join(g.name for g in busy if g.name in INITIALIZERS)
        return PhaseVerdict(phase=Phase.INITIALIZING, reason="InitializerRunning", message=f"{names} runs")
    # `ready` wants every pod of a group: a trainer of which one pod is late reports all the same.
    if job.status is not None and job.status.trainer_status is not None and (busy or not groups):
        return PhaseVerdict(
            phase=Phase.RUNNING, reason="StatusReported", message="the job's status tells of progress"
        )
    manager = job.spec.managed_by
    if groups or (job.status and job.status.conditions):
        return PhaseVerdict(
            phase=Phase.PENDING,
            reason="ManagedElsewhere",
            message=f"{manager} has not reported a running pod",
        )
    return PhaseVerdict(
        phase=Phase.UNKNOWN,
        reason="ManagedElsewhere",
        message=f"the job is managed by {manager}, which has not written a status yet",
    )


def _of_parts(job: TrainJob, jobset: JobSet, rank0: Rank0 | None) -> PhaseVerdict:
    if rank0 is not None and rank0.is_running:
        return PhaseVerdict(phase=Phase.RUNNING, reason="Rank0Running", message="")
    counts = {s.name: s for s in (job.status.jobs_status if job.status else None) or ()}
    groups = jobset.spec.replicated_jobs or ()
    busy = [
        g.name for g in groups if is_initializer(g) and (c := counts.get(g.name)) and (c.active or c.ready)
    ]
    if busy:
        return PhaseVerdict(
            phase=Phase.INITIALIZING, reason="InitializerRunning", message=f"{', '.join(busy)} runs"
        )
    starting = _true((jobset.status.conditions if jobset.status else None) or (), "StartupPolicyInProgress")
    if starting:
        return _verdict(Phase.INITIALIZING, starting, "StartupPolicyInProgress")
    ready = any((c := counts.get(name)) and c.ready for name in trainer_groups(jobset))
    if rank0 is None:
        if ready:
            return PhaseVerdict(phase=Phase.RUNNING, reason="TrainerReady", message="")
        return PhaseVerdict(phase=Phase.PENDING, reason="NoPod", message="its rank-0 pod does not exist yet")
    if rank0.waiting_reason == "Unscheduled":
        return PhaseVerdict(
            phase=Phase.PENDING, reason="Unscheduled", message=f"pod {rank0.pod_name} is not scheduled yet"
        )
    if rank0.last_termination is not None:  # ended or between two tries, and the job goes on
        return PhaseVerdict(
            phase=Phase.RUNNING,
            reason=rank0.waiting_reason or "Rank0Terminated",
            message=f"container {rank0.container_name} of pod {rank0.pod_name} ended with exit code "
            f"{rank0.last_termination.exit_code}; the job goes on",
        )
    if ready:
        return PhaseVerdict(phase=Phase.RUNNING, reason="TrainerReady", message="")
    return PhaseVerdict(
        phase=Phase.INITIALIZING,
        reason=rank0.waiting_reason or "ContainerCreating",
        message=f"container {rank0.container_name} of pod {rank0.pod_name} does not run yet",
    )


def _true(conditions: Iterable[ObjectCondition], type_: str) -> ObjectCondition | None:
    return next((c for c in conditions if c.type == type_ and c.status == "True"), None)


def _verdict(phase: Phase, condition: ObjectCondition | None, reason: str) -> PhaseVerdict:
    if condition is None:
        return PhaseVerdict(phase=phase, reason=reason, message="")
    return PhaseVerdict(
        phase=phase,
        reason=condition.reason or reason,
        message=condition.message or "",
    )
