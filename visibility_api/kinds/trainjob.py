"""TrainJobs of Kubeflow Trainer: each has a JobSet of its own name.

By github.com/kubeflow/trainer (pkg/apis/trainer/v1alpha1/trainjob_types.go, pkg/constants/constants.go).
Trainer's ancestor label is on the replicated jobs, not on their pods.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts
from visibility_api.models.served import progress_of
from visibility_api.reports.trainer_status import TrainerStatus
from visibility_api.workloads.kind import (
    MAX_GROUPS,
    AllPods,
    Group,
    JobKind,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
)
from visibility_api.workloads.objects import AnyObject, KubernetesObject, ObjectCondition

from .replicated_jobs import (
    JOBS,
    JOBSETS,
    PODS,
    JobSet,
    JobsStatus,
    ReplicatedJob,
    all_pods,
    replica_groups,
    restarting,
    starting,
    unread,
)

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER = "node"
# In a status that MultiKueue copied there are no labels to tell initializers by.
INITIALIZERS = ("dataset-initializer", "model-initializer")


class TrainJobSpec(KubernetesObject, frozen=True):
    suspend: bool | None = None
    managed_by: str | None = None


class TrainJobStatus(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None
    jobs_status: tuple[JobsStatus, ...] | None = None  # copied from the JobSet
    trainer_status: TrainerStatus | None = None  # the last push to Kubeflow Trainer


class TrainJob(AnyObject, frozen=True):
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus | None = None


TRAINJOBS = WatchedObjects(
    api="/apis/trainer.kubeflow.org/v1alpha1",
    plural="trainjobs",
    kind="TrainJob",
    type=TrainJob,
    makes=lambda trainjob, jobset: trainjob.metadata.name == jobset.name,
    is_read=False,
)

_UNMADE = PhaseDecision(
    Phase.PENDING,
    "NoJobSet",
    "There is no JobSet: Trainer has not made it, or its CRD is missing. The TrainJob's events may say why.",
)


class TrainJobKind(JobKind):
    served = progress_of("TrainJob", "trainjobs", "tjp")
    chains = ((TRAINJOBS, JOBSETS, JOBS, PODS),)
    success = "Complete"
    controllers = ("trainer.kubeflow.org/trainjob-controller",)
    has_trainer_status = True
    is_assumed = True

    def view(self, job: TrainJob, parts: Parts) -> View:
        status = job.status or TrainJobStatus()
        counts = status.jobs_status or ()
        jobset: JobSet | None = parts.get(JOBSETS, job.metadata.name, job.metadata)
        common = View(
            is_suspended=bool(job.spec.suspend),
            manager=self.manager(job.spec.managed_by),
            trainer_status=status.trainer_status,
        )
        if jobset is None:
            groups = tuple(map(_of_status, islice({each.name: each for each in counts}.values(), MAX_GROUPS)))
            return msgspec.structs.replace(common, groups=groups, unmade=_UNMADE)
        return msgspec.structs.replace(
            common,
            leaders=tuple(leaders := trainer_groups(jobset)),
            groups=replica_groups(jobset, parts, counts, leaders, initializers(jobset), CONTAINER),
            starting=starting(jobset),
            restarting=restarting(jobset),
            unread=unread("JobSet", jobset),
        )

    def all_pods(self, job: TrainJob, parts: Parts) -> AllPods | None:
        jobset: JobSet | None = parts.get(JOBSETS, job.metadata.name, job.metadata)
        return None if jobset is None else all_pods(jobset, parts, initializers(jobset))


def _of_status(counts: JobsStatus) -> Group:
    return Group(
        counts=ReplicaCounts(name=counts.name),
        is_initializer=counts.name in INITIALIZERS,
        is_ready=bool(counts.ready),
        is_active=bool(counts.active),
    )


def trainer_groups(jobset: JobSet) -> list[str]:
    """Names of the replicated jobs that may hold rank 0, the most likely one first.

    More than one only under MPI: the launcher, then the group that runs sshd (its index 0 may be MPI's
    rank 0, because the hostfile follows the order of replicated jobs).
    """
    groups = jobset.spec.replicated_jobs or ()
    by_name = {g.name: g for g in groups}
    first = (
        next((g.name for g in groups if g.label(ANCESTOR) == "trainer"), None)
        or next((name for name in jobset.spec.targets if name in by_name), None)
        or next((name for name in ("node", "launcher") if name in by_name), None)
        or (groups[0].name if len(groups) == 1 else None)
    )
    if first is None:
        return []
    if first == "launcher" and "node" in by_name and not is_initializer(by_name["node"]):
        return [first, "node"]
    return [first]


def is_initializer(group: ReplicatedJob) -> bool:
    return group.label(ANCESTOR) in INITIALIZERS


def initializers(jobset: JobSet) -> list[str]:
    """Names of the replicated jobs that prepare data or model."""
    return [group.name for group in jobset.spec.replicated_jobs or () if is_initializer(group)]
