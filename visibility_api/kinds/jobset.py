"""JobSets that no TrainJob controls.

By github.com/kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go.
"""

from __future__ import annotations

from itertools import islice

from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import AllPods, JobKind, Parts, View

from .replicated_jobs import (
    JOBS,
    JOBSETS,
    PODS,
    Coordinator,
    JobSet,
    JobSetStatus,
    all_pods,
    replica_groups,
    restarting,
    starting,
)


class JobSetKind(JobKind):
    served = progress_of("JobSet", "jobsets", "jsp")
    chains = ((JOBSETS, JOBS, PODS),)
    success = "Completed"
    controllers = ("jobset.sigs.k8s.io/jobset-controller",)

    def view(self, job: JobSet, parts: Parts) -> View:
        status, leaders = job.status or JobSetStatus(), _leaders(job)
        return View(
            groups=replica_groups(job, parts, status.replicated_jobs_status or (), leaders),
            leaders=leaders,
            is_suspended=bool(job.spec.suspend),
            manager=self.manager(job.spec.managed_by),
            starting=starting(job),
            restarting=restarting(job),
        )

    def all_pods(self, job: JobSet, parts: Parts) -> AllPods | None:
        return all_pods(job, parts)


def _leaders(jobset: JobSet) -> tuple[str, ...]:
    """The coordinator, if its first pod is meant: no other is watched. Else the first group that decides
    about success."""
    names = {each.name: each for each in jobset.spec.replicated_jobs or ()}
    coordinator = jobset.spec.coordinator or Coordinator()
    if coordinator.replicated_job in names and not (coordinator.job_index or coordinator.pod_index):
        return (coordinator.replicated_job,)
    return tuple(islice((name for name in (*jobset.spec.targets, *names) if name in names), 1))
