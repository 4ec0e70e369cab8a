"""What JobSets and TrainJobs have in common: replicated jobs, each of which is a Job.

By the fields and labels of github.com/kubernetes-sigs/jobset (api/jobset/v1alpha2/jobset_types.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts
from visibility_api.reports.fields import MAX_INTEGER
from visibility_api.workloads.failures import Replica, job_failures
from visibility_api.workloads.kind import (
    MAX_GROUPS,
    AllPods,
    Group,
    LiveObject,
    Makers,
    Parts,
    PhaseDecision,
    WatchedObjects,
    is_index,
    jobs_with,
    pods_with,
)
from visibility_api.workloads.objects import (
    AnyObject,
    BatchJob,
    Count,
    JobTemplateSpec,
    KubernetesObject,
    Labels,
    Meta,
    ObjectCondition,
    Pod,
)
from visibility_api.workloads.phase import by_condition, true_condition
from visibility_api.workloads.rank0 import (
    COMPLETION_INDEX,
    controls,
    rank0_pod,
    replica_index,
    restart_attempt,
)

PREFIX = "jobset.sigs.k8s.io/"
MAX_INITIALIZERS = 8  # whose pods are read; Trainer's runtimes have two
# Of each replicated job the first Job, and its first pod.
JOB_SELECTOR = f"{PREFIX}jobset-name,{PREFIX}job-index=0"
POD_SELECTOR = f"{JOB_SELECTOR},{COMPLETION_INDEX}=0"


class TemplateMeta(KubernetesObject, frozen=True):
    labels: Labels | None = None


_ONE_POD = JobTemplateSpec()


class JobTemplate(KubernetesObject, frozen=True):
    metadata: TemplateMeta | None = None
    spec: JobTemplateSpec | None = None

    def __post_init__(self) -> None:
        if self.spec == _ONE_POD:
            msgspec.structs.force_setattr(self, "spec", None)


class ReplicatedJob(KubernetesObject, frozen=True):
    name: str = ""
    replicas: Count = 1
    template: JobTemplate | None = None

    @property
    def spec(self) -> JobTemplateSpec:
        return (self.template.spec if self.template else None) or _ONE_POD

    @property
    def pods(self) -> int:
        """How many it should have."""
        return min(self.replicas * self.spec.parallelism, MAX_INTEGER)

    def label(self, key: str) -> str:
        metadata = self.template.metadata if self.template else None
        return ((metadata.labels if metadata else None) or {}).get(key, "")


class SuccessPolicy(KubernetesObject, frozen=True):
    target_replicated_jobs: tuple[str, ...] | None = None


class Coordinator(KubernetesObject, frozen=True):
    replicated_job: str = ""
    job_index: int = 0
    pod_index: int = 0


class JobSetSpec(KubernetesObject, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] | None = None
    success_policy: SuccessPolicy | None = None
    coordinator: Coordinator | None = None
    suspend: bool | None = None
    managed_by: str | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The replicated jobs that decide about success, as far as it names them."""
        return (self.success_policy.target_replicated_jobs if self.success_policy else None) or ()


class JobsStatus(KubernetesObject, frozen=True):
    """Counts of the Jobs of one replicated job."""

    name: str = ""
    ready: Count | None = None
    succeeded: Count | None = None
    failed: Count | None = None
    active: Count | None = None


class JobSetStatus(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None
    restarts: Count = 0
    replicated_jobs_status: tuple[JobsStatus, ...] | None = None


class JobSetMeta(Meta, frozen=True):
    """A TrainJob's labels are served, not those of its JobSet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None and _is_made(self):
            msgspec.structs.force_setattr(self, "labels", None)


class JobSet(AnyObject, frozen=True):
    metadata: JobSetMeta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus | None = None

    def __post_init__(self) -> None:
        # A TrainJob has a copy of these.
        status = self.status
        if status is not None and status.replicated_jobs_status and _is_made(self.metadata):
            bare = msgspec.structs.replace(status, replicated_jobs_status=None)
            msgspec.structs.force_setattr(self, "status", bare)


def _is_made(jobset: Meta) -> bool:
    controller = jobset.controller
    return controller is not None and controller.kind == "TrainJob"


def _place(jobset: LiveObject | JobSet, job: str) -> tuple[str, int] | None:
    """The replicated job whose Job has this name, and its index there."""
    prefix = f"{jobset.metadata.name}-"
    name, _, index = job.removeprefix(prefix).rpartition("-")
    if job.startswith(prefix) and is_index(index):
        for group in jobset.spec.replicated_jobs or ():
            if group.name == name and int(index) < group.replicas:
                return name, int(index)
    return None


def _makes_job(jobset: LiveObject, job: Meta) -> bool:
    return _place(jobset, job.name) is not None


JOBSETS = WatchedObjects(
    api="/apis/jobset.x-k8s.io/v1alpha2", plural="jobsets", kind="JobSet", type=JobSet, makes=_makes_job
)
JOBS = jobs_with(JOB_SELECTOR)
PODS = pods_with(POD_SELECTOR)


def unread(kind: str, object_: AnyObject | None) -> tuple[str, str] | None:
    """Which object could not be read, and why."""
    if object_ is None or not object_.metadata.unread:
        return None
    return f"{kind} {object_.metadata.name}", object_.metadata.unread


def first_job_name(jobset: JobSet, group: str) -> str:
    """Of the Job that holds index 0 of `group`, as the JobSet controller names it."""
    return f"{jobset.metadata.name}-{group}-0"


def replica_groups(
    jobset: JobSet,
    parts: Parts,
    counts: Sequence[JobsStatus],
    leaders: Sequence[str],
    initializers: Sequence[str] = (),
    container: str = "",
) -> tuple[Group, ...]:
    """Every replicated job. `initializers`: those that end before training begins. `counts`: of Jobs, by the
    status of the JobSet or TrainJob. `container`: that trains, by convention.

    Pods are read of `leaders` and of the first initializers alone: those of others say nothing of the job.
    """
    by_name = {each.name: each for each in counts}
    read = {*leaders, *initializers[:MAX_INITIALIZERS]}
    return tuple(
        _group(
            jobset,
            each,
            parts,
            by_name.get(each.name),
            is_initializer=each.name in initializers,
            is_read=each.name in read,
            container=container,
        )
        for each in islice(jobset.spec.replicated_jobs or (), MAX_GROUPS)
    )


def _group(
    jobset: JobSet,
    replicated: ReplicatedJob,
    parts: Parts,
    counts: JobsStatus | None,
    *,
    is_initializer: bool,
    is_read: bool,
    container: str,
) -> Group:
    name = replicated.name
    job: BatchJob | None = parts.get(JOBS, first_job_name(jobset, name), jobset.metadata)
    claim = rank0_pod(parts.pods(PODS, job.metadata), job.metadata) if job is not None and is_read else None
    spec = replicated.spec
    return Group(
        counts=_pod_counts(replicated, counts, job),
        held=spec.held,
        shared=spec.shared,
        is_initializer=is_initializer,
        is_ready=counts is not None and bool(counts.ready),
        is_active=counts is not None and bool(counts.active),
        claim=claim,
        container=name if is_initializer else container,
        restart_attempt=restart_attempt(job.metadata) if job is not None else 0,
        failures=job_failures(job, name),
        unread=unread("Job", job),
    )


def _pod_counts(replicated: ReplicatedJob, jobs: JobsStatus | None, first: BatchJob | None) -> ReplicaCounts:
    """The pods, as the Job counts them.

    The TrainJob's own status counts Jobs: one of 64 pods, of which 63 are ready, is one that is not. Where
    the Job is not known, it is used as far as it shows how many pods there are.
    """
    name, desired = replicated.name, replicated.pods
    if replicated.replicas == 1 and first is not None and first.status.ready is not None:
        return first.status.counts(name, desired)
    if jobs is not None and replicated.replicas and jobs.succeeded == replicated.replicas:
        return ReplicaCounts(name=name, desired=desired, ready=0, active=0, succeeded=desired)
    is_ready = jobs is not None and replicated.replicas and jobs.ready == replicated.replicas
    return ReplicaCounts(name=name, desired=desired, ready=desired if is_ready else None)


def starting(jobset: JobSet) -> PhaseDecision | None:
    """The JobSet starts its replicated jobs one after the other."""
    condition = true_condition(jobset.status.conditions if jobset.status else None, "StartupPolicyInProgress")
    if condition is None:
        return None
    return by_condition(Phase.INITIALIZING, condition, "StartupPolicyInProgress")


def restarting(jobset: JobSet) -> PhaseDecision | None:
    """The JobSet has restarted."""
    restarts = jobset.status.restarts if jobset.status else 0
    message = f"The JobSet makes its Jobs anew: restart {restarts}. The rank-0 pod does not exist yet."
    return PhaseDecision(Phase.PENDING, "Restarting", message) if restarts else None


def all_pods(jobset: JobSet, parts: Parts, initializers: Sequence[str] = ()) -> AllPods | None:
    """Of all its Jobs, as far as there are any. Only the first one of each replicated job is watched."""
    groups = tuple(islice(jobset.spec.replicated_jobs or (), MAX_GROUPS))
    several = {group.name for group in groups if group.replicas > 1}
    jobs: dict[str, tuple[Meta, str, int]] = {}  # by uid: with replicated job and index

    def note(job: Meta) -> None:
        if controls(jobset.metadata, job) and (place := _place(jobset, job.name)) is not None:
            jobs[job.uid] = (job, *place)

    for group in groups:
        job = parts.get(JOBS, first_job_name(jobset, group.name), jobset.metadata)
        if job is not None:
            note(job.metadata)

    def replica(pod: Pod, labels: Mapping[str, str]) -> Replica | None:
        controller = pod.metadata.controller
        found = jobs.get(controller.uid if controller is not None else "")
        if found is None:
            return None
        job, group, index = found
        number = replica_index(pod, job, labels.get(COMPLETION_INDEX, ""))
        if number is None:
            return None
        if group in initializers:
            return Replica(name=group, is_initializer=True)
        return Replica(name=f"{group}-{index}-{number}" if group in several else f"{group}-{number}")

    selector = f"{PREFIX}jobset-name={jobset.metadata.name}"
    makers = Makers(JOBS, selector, note) if several else None
    return AllPods(selector, replica, makers) if jobs else None
