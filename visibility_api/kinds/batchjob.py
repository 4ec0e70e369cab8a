"""Jobs of batch/v1, Indexed or not, that carry a label of ours.

A cluster's cron jobs and one-off scripts are Jobs too. So a Job counts only with the label `TRAINING`, on the
Job and on its pod template, because pods are watched by labels. A Job's success policy, pod failure policy
and limits per index show as reasons of its conditions Complete and Failed
(https://github.com/kubernetes/kubernetes/blob/v1.36.2/staging/src/k8s.io/api/batch/v1/types.go).
"""

from __future__ import annotations

from collections.abc import Mapping

from visibility_api.models.served import progress_of
from visibility_api.workloads.annotations import PREFIX
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.kind import (
    AllPods,
    Group,
    JobKind,
    Parts,
    View,
    WatchedObjects,
    makes_pod,
    pods_with,
)
from visibility_api.workloads.objects import (
    AnyObject,
    BatchJobStatus,
    Count,
    JobTemplateSpec,
    Pod,
)
from visibility_api.workloads.rank0 import (
    COMPLETION_INDEX,
    controls,
    job_pod,
    rank0_pod,
    replica_index,
)

TRAINING = f"{PREFIX}training"
JOB_NAME = "batch.kubernetes.io/job-name"
GROUP = "worker"  # what its pods are called in the document
_SELECTOR = f"{TRAINING}=true,!jobset.sigs.k8s.io/jobset-name"


class TrainingSpec(JobTemplateSpec, frozen=True):
    completions: Count | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"


class TrainingStatus(BatchJobStatus, frozen=True):
    def __post_init__(self) -> None:
        """All conditions count."""


class TrainingJob(AnyObject, frozen=True):
    spec: TrainingSpec = TrainingSpec()
    status: TrainingStatus = TrainingStatus()


JOBS = WatchedObjects(
    api="/apis/batch/v1",
    plural="jobs",
    kind="Job",
    type=TrainingJob,
    selector=_SELECTOR,
    makes=makes_pod,
)


def _pods(selector: str) -> WatchedObjects:
    return pods_with(f"{_SELECTOR},{selector}")


_FIRST, _ANY = _pods(f"{COMPLETION_INDEX}=0"), _pods(f"!{COMPLETION_INDEX}")


class BatchJobKind(JobKind):
    served = progress_of("Job", "jobs", "jobp")
    chains = ((JOBS, _FIRST), (JOBS, _ANY))
    success = "Complete"
    controllers = ("kubernetes.io/job-controller",)
    is_assumed = True  # every cluster serves them

    def view(self, job: TrainingJob, parts: Parts) -> View:
        spec, meta = job.spec, job.metadata
        faults: tuple[str, ...] = ()
        if spec.is_indexed:
            claim, desired = rank0_pod(parts.pods(_FIRST, meta), meta), spec.completions or spec.parallelism
        else:
            claim = job_pod(parts.pods(_ANY, meta), meta, are_equal=True)
            desired = spec.parallelism
            if spec.parallelism > 1:
                faults = (f"The Job is not Indexed and has {desired} pods at a time: the oldest is read.",)
        return View(
            groups=(
                Group(
                    counts=job.status.counts(GROUP, desired), held=spec.held, shared=spec.shared, claim=claim
                ),
            ),
            leaders=(GROUP,),
            is_suspended=bool(spec.suspend),
            manager=self.manager(spec.managed_by),
            faults=faults,
        )

    def all_pods(self, job: TrainingJob, parts: Parts) -> AllPods | None:  # noqa: ARG002
        def replica(pod: Pod, labels: Mapping[str, str]) -> Replica | None:
            if not job.spec.is_indexed:
                return Replica(name=pod.metadata.name) if controls(job.metadata, pod.metadata) else None
            number = replica_index(pod, job.metadata, labels.get(COMPLETION_INDEX, ""))
            return None if number is None else Replica(name=f"{GROUP}-{number}")

        return AllPods(f"{JOB_NAME}={job.metadata.name}", replica)
