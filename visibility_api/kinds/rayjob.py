"""RayJobs: the head of the job's RayCluster runs the entrypoint, a Job submits it and follows its log.

By github.com/ray-project/kuberay: ray-operator/apis/ray/v1/rayjob_types.go and raycluster_types.go (fields,
states), ray-operator/controllers/ray/rayjob_controller.go (`constructRayClusterForRayJob`, `createNewK8sJob`,
`getSubmitterTemplate`: names, labels, owners) and raycluster_controller.go (`buildHeadPod`). A RayJob has no
conditions: they are made of its deployment status here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts
from visibility_api.models.served import progress_of
from visibility_api.workloads.failures import Replica, replica_job_failure
from visibility_api.workloads.kind import (
    MAX_GROUPS,
    AllPods,
    Group,
    JobKind,
    LiveObject,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
    makes_pod,
)
from visibility_api.workloads.objects import (
    AnyObject,
    BatchJob,
    Count,
    KubernetesObject,
    Meta,
    ObjectCondition,
    PartMeta,
    Pod,
    PodMaker,
)
from visibility_api.workloads.rank0 import choose, controls, is_generated, job_prefix

LABEL = "ray.io/"
OF_RAYJOBS = f"{LABEL}originated-from-crd=RayJob"
_FAILED, _DONE = "Failed", "Complete"  # of jobDeploymentStatus; no other is final


class WorkerGroup(PodMaker, frozen=True):
    group_name: str = ""
    replicas: Count | None = None
    num_of_hosts: Count = 1


class RayClusterSpec(KubernetesObject, frozen=True):
    head_group_spec: PodMaker = PodMaker()
    worker_group_specs: tuple[WorkerGroup, ...] | None = None


class RayJobSpec(KubernetesObject, frozen=True):
    suspend: bool = False
    managed_by: str | None = None
    ray_cluster_spec: RayClusterSpec | None = None


class RayJobStatus(KubernetesObject, frozen=True):
    ray_cluster_name: str = ""
    job_status: str = ""
    job_deployment_status: str = ""
    reason: str | None = None
    message: str | None = None
    end_time: datetime | None = None


class RayJob(AnyObject, frozen=True):
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


class RayCluster(AnyObject, frozen=True):
    metadata: PartMeta


def _makes(job: LiveObject, made: Meta) -> bool:
    """The submitter has the job's name, the cluster one that begins with it."""
    return made.name == job.metadata.name or is_generated(made.name, f"{job.metadata.name}-")


def _node_prefix(cluster: Meta) -> str:
    """Of the names of its pods (`PodName` in ray-operator/controllers/ray/utils/util.go)."""
    return f"{cluster.name[:50]}-".lower()


def _is_head(pod: Pod, cluster: RayCluster | None) -> bool:
    if cluster is None:
        return False
    name = f"{_node_prefix(cluster.metadata)}head"
    return pod.metadata.name == name or is_generated(pod.metadata.name, f"{name}-")


_JOBS = WatchedObjects(
    api="/apis/ray.io/v1",
    plural="rayjobs",
    kind="RayJob",
    type=RayJob,
    makes=_makes,
    is_read=False,
)
_CLUSTERS = WatchedObjects(
    api="/apis/ray.io/v1",
    plural="rayclusters",
    kind="RayCluster",
    type=RayCluster,
    selector=OF_RAYJOBS,
    makes=lambda cluster, pod: pod.name.startswith(_node_prefix(cluster.metadata)),
)
_HEADS = WatchedObjects(api="/api/v1", plural="pods", kind="Pod", type=Pod, selector=f"{LABEL}node-type=head")
_SUBMITTERS = WatchedObjects(
    api="/apis/batch/v1", plural="jobs", kind="Job", type=BatchJob, selector=OF_RAYJOBS, makes=makes_pod
)
_SUBMITTER_PODS = WatchedObjects(
    api="/api/v1", plural="pods", kind="Pod", type=Pod, selector=f"{OF_RAYJOBS},batch.kubernetes.io/job-name"
)


class RayJobKind(JobKind):
    served = progress_of("RayJob", "rayjobs", "rayjp")
    chains = ((_JOBS, _CLUSTERS, _HEADS), (_JOBS, _SUBMITTERS, _SUBMITTER_PODS))
    success = "Succeeded"
    controllers = ("ray.io/kuberay-operator",)

    def conditions(self, job: RayJob) -> Sequence[ObjectCondition]:
        status = job.status
        state = status.job_deployment_status
        if state not in (_FAILED, _DONE):
            return ()
        is_stopped = state == _DONE and status.job_status == "STOPPED"
        reason = status.reason or ("Stopped" if is_stopped else state)
        type_ = self.success if state == _DONE and not is_stopped else "Failed"
        return (
            ObjectCondition(
                type=type_,
                status="True",
                reason=reason,
                message=status.message,
                last_transition_time=status.end_time,
            ),
        )

    def view(self, job: RayJob, parts: Parts) -> View:
        spec, status = job.spec.ray_cluster_spec or RayClusterSpec(), job.status
        cluster: RayCluster | None = parts.get(_CLUSTERS, status.ray_cluster_name, job.metadata)
        submitter: BatchJob | None = parts.get(_SUBMITTERS, job.metadata.name, job.metadata)
        heads = parts.pods(_HEADS, cluster.metadata) if cluster is not None else ()
        prefix = job_prefix(job.metadata.name)
        submitted = [
            pod
            for pod in (parts.pods(_SUBMITTER_PODS, submitter.metadata) if submitter is not None else ())
            if is_generated(pod.metadata.name, prefix)
        ]
        failure = replica_job_failure(submitter, "submitter") if submitter is not None else None
        return View(
            groups=(
                Group(
                    counts=ReplicaCounts(name="head", desired=1),
                    held=spec.head_group_spec.held,
                    shared=spec.head_group_spec.shared,
                    is_ready=status.job_status == "RUNNING",
                    claim=choose([pod for pod in heads if _is_head(pod, cluster)]),
                ),
                *(
                    Group(
                        counts=ReplicaCounts(
                            name=each.group_name, desired=(each.replicas or 0) * each.num_of_hosts
                        ),
                        held=each.held,
                        shared=each.shared,
                    )
                    for each in islice(spec.worker_group_specs or (), MAX_GROUPS)
                ),
                Group(
                    counts=ReplicaCounts(name="submitter", desired=1 if submitter is not None else None),
                    claim=choose(submitted),
                    failures=(failure,) if failure is not None else (),
                ),
            ),
            leaders=("head", "submitter"),
            is_suspended=job.spec.suspend or status.job_deployment_status in ("Suspending", "Suspended"),
            manager=self.manager(job.spec.managed_by),
            unmade=_before(status),
        )

    def all_pods(self, job: RayJob, parts: Parts) -> AllPods | None:
        cluster: RayCluster | None = parts.get(_CLUSTERS, job.status.ray_cluster_name, job.metadata)
        if cluster is None:
            return None

        def replica(pod: Pod, labels: Mapping[str, str]) -> Replica | None:
            if not controls(cluster.metadata, pod.metadata):
                return None
            is_head = labels.get(f"{LABEL}node-type") == "head"
            return Replica(name="head-0" if is_head else pod.metadata.name)

        return AllPods(f"{LABEL}cluster={cluster.metadata.name}", replica)


def _before(status: RayJobStatus) -> PhaseDecision | None:
    """What the job waits for before Ray runs it; None once it does. Its head runs before that."""
    state = status.job_deployment_status
    if state == "ValidationFailed":
        return PhaseDecision(Phase.PENDING, state, status.message or "KubeRay refuses the RayJob.")
    if state == "Retrying":
        return PhaseDecision(Phase.PENDING, "Restarting", "KubeRay makes a new RayCluster for the RayJob.")
    if state in ("", "New"):
        return PhaseDecision(Phase.PENDING, "NoRayCluster", "KubeRay has not made the RayCluster yet.")
    if state in ("Initializing", "Waiting") or status.job_status in ("", "PENDING"):
        return PhaseDecision(Phase.INITIALIZING, state, "The RayCluster has not begun to run the job yet.")
    return None
