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
from visibility_api.workloads import objects as k8s
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
    group_of,
    makes_pod,
    pods_with,
    state_condition,
)
from visibility_api.workloads.rank0 import Claim, choose, controls, is_generated, job_prefix

API, LABEL = "/apis/ray.io/v1", "ray.io/"
OF_RAYJOBS = f"{LABEL}originated-from-crd=RayJob"


class WorkerGroup(k8s.PodMaker, frozen=True):
    group_name: str = ""
    replicas: k8s.Count | None = None
    num_of_hosts: k8s.Count = 1


class RayClusterSpec(k8s.KubernetesObject, frozen=True):
    head_group_spec: k8s.PodMaker = k8s.PodMaker()
    worker_group_specs: tuple[WorkerGroup, ...] | None = None


class RayJobSpec(k8s.KubernetesObject, frozen=True):
    suspend: bool = False
    managed_by: str | None = None
    ray_cluster_spec: RayClusterSpec | None = None


class RayJobStatus(k8s.KubernetesObject, frozen=True):
    ray_cluster_name: str = ""
    job_status: str = ""
    job_deployment_status: str = ""  # Complete and Failed are final
    reason: str | None = None
    message: str | None = None
    end_time: datetime | None = None


class RayJob(k8s.AnyObject, frozen=True):
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


def _makes(job: LiveObject, made: k8s.Meta) -> bool:
    """The submitter has the job's name, the cluster one that begins with it."""
    return made.name == job.metadata.name or is_generated(made.name, f"{job.metadata.name}-")


def _node_prefix(cluster: k8s.Meta) -> str:
    """Of the names of its pods (`PodName` in ray-operator/controllers/ray/utils/util.go)."""
    return f"{cluster.name[:50]}-".lower()


_JOBS = WatchedObjects(api=API, plural="rayjobs", kind="RayJob", type=RayJob, makes=_makes, is_read=False)
_CLUSTERS = WatchedObjects(
    api=API,
    plural="rayclusters",
    kind="RayCluster",
    type=k8s.MadeObject,
    selector=OF_RAYJOBS,
    makes=lambda cluster, pod: pod.name.startswith(_node_prefix(cluster.metadata)),
)
_HEADS = pods_with(f"{LABEL}node-type=head")
_SUBMITTERS = WatchedObjects(
    api="/apis/batch/v1", plural="jobs", kind="Job", type=k8s.BatchJob, selector=OF_RAYJOBS, makes=makes_pod
)
_UNMADE = {
    "": ("NoRayCluster", "KubeRay has not made the RayCluster yet."),
    "New": ("NoRayCluster", "KubeRay has not made the RayCluster yet."),
    "Retrying": ("Restarting", "KubeRay makes a new RayCluster for the RayJob."),
}
_SUBMITTER_PODS = pods_with(f"{OF_RAYJOBS},batch.kubernetes.io/job-name")


class RayJobKind(JobKind):
    served = progress_of("RayJob", "rayjobs", "rayjp", columns=("Deployment",))
    chains = ((_JOBS, _CLUSTERS, _HEADS), (_JOBS, _SUBMITTERS, _SUBMITTER_PODS))
    success = "Succeeded"
    controllers = ("ray.io/kuberay-operator",)

    def conditions(self, job: RayJob) -> Sequence[k8s.ObjectCondition]:
        status, state = job.status, job.status.job_deployment_status
        if state not in ("Failed", "Complete"):
            return ()
        is_stopped = state == "Complete" and status.job_status == "STOPPED"
        type_ = "Failed" if is_stopped or state == "Failed" else self.success
        reason = status.reason or ("Stopped" if is_stopped else state)
        return state_condition(type_, reason, status.message, status.end_time)

    def view(self, job: RayJob, parts: Parts) -> View:
        spec, status = job.spec.ray_cluster_spec or RayClusterSpec(), job.status
        is_running = status.job_status == "RUNNING"
        head = group_of(spec.head_group_spec, "head", 1, is_ready=is_running, claim=_head(job, parts))
        workers = [
            group_of(each, each.group_name, (each.replicas or 0) * each.num_of_hosts)
            for each in islice(spec.worker_group_specs or (), MAX_GROUPS)
        ]
        return View(
            groups=(head, *workers, _submitter(job, parts)),
            leaders=("head", "submitter"),
            is_suspended=job.spec.suspend or status.job_deployment_status in ("Suspending", "Suspended"),
            manager=self.manager(job.spec.managed_by),
            unmade=_before(status),
            columns=(status.job_deployment_status,),
        )

    def all_pods(self, job: RayJob, parts: Parts) -> AllPods | None:
        if (cluster := _cluster(job, parts)) is None:
            return None

        def replica(pod: k8s.Pod, labels: Mapping[str, str]) -> Replica | None:
            if not controls(cluster, pod.metadata):
                return None
            is_head = labels.get(f"{LABEL}node-type") == "head"
            return Replica(name="head-0" if is_head else pod.metadata.name)

        return AllPods(f"{LABEL}cluster={cluster.name}", replica)


def _cluster(job: RayJob, parts: Parts) -> k8s.Meta | None:
    found: k8s.MadeObject | None = parts.get(_CLUSTERS, job.status.ray_cluster_name, job.metadata)
    return None if found is None else found.metadata


def _head(job: RayJob, parts: Parts) -> Claim | None:
    if (cluster := _cluster(job, parts)) is None:
        return None
    name, pods = f"{_node_prefix(cluster)}head", parts.pods(_HEADS, cluster)
    return choose(
        [pod for pod in pods if pod.metadata.name == name or is_generated(pod.metadata.name, f"{name}-")]
    )


def _submitter(job: RayJob, parts: Parts) -> Group:
    made: k8s.BatchJob | None = parts.get(_SUBMITTERS, job.metadata.name, job.metadata)
    if made is None:
        return Group(counts=ReplicaCounts(name="submitter"))
    pods, prefix = parts.pods(_SUBMITTER_PODS, made.metadata), job_prefix(job.metadata.name)
    failure = replica_job_failure(made, "submitter")
    return Group(
        counts=ReplicaCounts(name="submitter", desired=1),
        claim=choose([pod for pod in pods if is_generated(pod.metadata.name, prefix)]),
        failures=(failure,) if failure is not None else (),
    )


def _before(status: RayJobStatus) -> PhaseDecision | None:
    """What the job waits for before Ray runs it; None once it does. Its head runs before that."""
    state = status.job_deployment_status
    if state == "ValidationFailed":
        return PhaseDecision(Phase.PENDING, state, status.message or "KubeRay refuses the RayJob.")
    if state in _UNMADE:
        return PhaseDecision(Phase.PENDING, *_UNMADE[state])
    if state in ("Initializing", "Waiting") or status.job_status in ("", "PENDING"):
        return PhaseDecision(Phase.INITIALIZING, state, "The RayCluster has not begun to run the job yet.")
    return None
