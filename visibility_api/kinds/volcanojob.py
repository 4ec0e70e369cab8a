"""Jobs of Volcano (batch.volcano.sh), whose tasks are groups of pods that the job itself controls.

By github.com/volcano-sh/volcano: staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go and labels.go
(fields, states, labels), pkg/controllers/job/job_controller_util.go (`createJobPod`: names, labels and owner
of a pod). Such a Job has a state instead of conditions: they are made of it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts, TrainingJob
from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import (
    MAX_GROUPS,
    AllPods,
    Group,
    JobKind,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
    is_within_groups,
    makes_indexed_pod,
    pods_by_index,
    pods_with,
    state_condition,
)
from visibility_api.workloads.objects import (
    AnyObject,
    Count,
    KubernetesObject,
    ObjectCondition,
    PodMaker,
)
from visibility_api.workloads.rank0 import named_pod

LABEL = "volcano.sh/"
MASTER, DEFAULT = "master", "default"  # names of tasks
# Which of our conditions a state is; an aborted job can be resumed.
_CONDITIONS = {
    "Completed": "Succeeded",
    "Failed": "Failed",
    "Terminated": "Failed",
    "Aborting": "Suspended",
    "Aborted": "Suspended",
}


class Task(PodMaker, frozen=True):
    name: str = DEFAULT
    replicas: Count = 1


class VolcanoSpec(KubernetesObject, frozen=True):
    tasks: tuple[Task, ...] | None = None


class State(KubernetesObject, frozen=True):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class TaskState(KubernetesObject, frozen=True):
    phase: dict[str, Count] | None = None  # pods by their phase


class VolcanoStatus(KubernetesObject, frozen=True):
    state: State = State()
    task_status_count: dict[str, TaskState] | None = None
    retry_count: Count = 0


class VolcanoJob(AnyObject, frozen=True):
    spec: VolcanoSpec = VolcanoSpec()
    status: VolcanoStatus = VolcanoStatus()


_JOBS = WatchedObjects(
    api="/apis/batch.volcano.sh/v1alpha1",
    plural="jobs",
    kind="Job",
    name="volcanojobs",
    type=VolcanoJob,
    makes=makes_indexed_pod,
    is_read=False,
)
_PODS = pods_with(f"{LABEL}job-name,{LABEL}task-index=0")


class VolcanoJobKind(JobKind):
    served = progress_of("VolcanoJob", "volcanojobs", "vcjp")
    chains = ((_JOBS, _PODS),)
    success = "Succeeded"

    def has_replica(self, job: TrainingJob, pod_name: str) -> bool:
        return is_within_groups(job, pod_name)

    def conditions(self, job: VolcanoJob) -> Sequence[ObjectCondition]:
        state = job.status.state
        type_ = _CONDITIONS.get(state.phase)
        if type_ is None:
            return ()
        reason = state.reason or state.phase
        return state_condition(type_, reason, state.message, state.last_transition_time)

    def view(self, job: VolcanoJob, parts: Parts) -> View:
        tasks = tuple(islice(job.spec.tasks or (), MAX_GROUPS))
        names = [task.name for task in tasks]
        leaders = [MASTER] if MASTER in names else names[:1]
        pods, state = parts.pods(_PODS, job.metadata), job.status.state
        counts = job.status.task_status_count or {}
        restarting = PhaseDecision(Phase.PENDING, "Restarting", f"Retry {job.status.retry_count} of the job.")
        return View(
            groups=tuple(
                Group(
                    counts=_counts(task, counts.get(task.name)),
                    held=task.held,
                    shared=task.shared,
                    is_ready=task.name in leaders and state.phase == "Running",
                    claim=named_pod(pods, f"{job.metadata.name}-{task.name}-0")
                    if task.name in leaders
                    else None,
                )
                for task in tasks
            ),
            leaders=tuple(leaders),
            restarting=restarting if state.phase == "Restarting" else None,
        )

    def all_pods(self, job: VolcanoJob, parts: Parts) -> AllPods | None:  # noqa: ARG002
        return pods_by_index(job.metadata, f"{LABEL}job-name", f"{LABEL}task-spec", f"{LABEL}task-index")


def _counts(task: Task, state: TaskState | None) -> ReplicaCounts:
    """What its controller has counted; a phase without pods is left out of the status."""
    found = state.phase if state is not None else None
    if not found:
        return ReplicaCounts(name=task.name, desired=task.replicas)
    active = found.get("Pending", 0) + found.get("Running", 0)
    succeeded, failed = found.get("Succeeded", 0), found.get("Failed", 0)
    return ReplicaCounts(
        name=task.name, desired=task.replicas, active=active, succeeded=succeeded, failed=failed
    )
