"""RayJobs: the head of the job's RayCluster runs the entrypoint, a Job submits it and follows its log.

By github.com/ray-project/kuberay: ray-operator/apis/ray/v1/rayjob_types.go and raycluster_types.go (fields,
states), ray-operator/controllers/ray/rayjob_controller.go (`constructRayClusterForRayJob`, `createNewK8sJob`,
`getSubmitterTemplate`: names, labels, owners) and raycluster_controller.go (`buildHeadPod`). A RayJob has no
conditions: they are made of its deployment status here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from visibility_api.jobs.job import Phase
from visibility_api.models.served import progress_of
from visibility_api.workloads import kind, objects as k8s
from visibility_api.workloads.failures import job_failures
from visibility_api.workloads.rank0 import is_generated, job_pod, named_pod

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


def _makes(job: kind.LiveObject, made: k8s.Meta) -> bool:
    """The submitter has the job's name, the cluster one that begins with it."""
    return made.name == job.metadata.name or is_generated(made.name, f"{job.metadata.name}-")


def _makes_node(cluster: kind.LiveObject, pod: k8s.Meta) -> bool:
    return pod.name.startswith(_node_prefix(cluster.metadata))


def _node_prefix(cluster: k8s.Meta) -> str:
    """Of the names of its pods (`PodName` in ray-operator/controllers/ray/utils/util.go)."""
    return f"{cluster.name[:50]}-".lower()


_JOBS = kind.WatchedObjects(
    api=API, plural="rayjobs", kind="RayJob", type=RayJob, makes=_makes, is_read=False
)
_CLUSTERS = kind.made_with(API, "rayclusters", "RayCluster", OF_RAYJOBS, _makes_node)
_HEADS = kind.pods_with(f"{LABEL}node-type=head")
_SUBMITTERS = kind.jobs_with(OF_RAYJOBS)
_UNMADE = {
    "New": ("NoRayCluster", "KubeRay has not made the RayCluster yet."),
    "Retrying": ("Restarting", "KubeRay makes a new RayCluster for the RayJob."),
}
_SUBMITTER_PODS = kind.pods_with(f"{OF_RAYJOBS},batch.kubernetes.io/job-name")


class RayJobKind(kind.JobKind):
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
        return kind.state_condition(type_, reason, status.message, status.end_time)

    def view(self, job: RayJob, parts: kind.Parts) -> kind.View:
        spec, status = job.spec.ray_cluster_spec or RayClusterSpec(), job.status
        cluster, claim = parts.get(_CLUSTERS, status.ray_cluster_name, job.metadata), None
        if cluster is not None:
            head_name = f"{_node_prefix(cluster.metadata)}head"
            claim = named_pod(parts.pods(_HEADS, cluster.metadata), head_name, has_suffix=True)
        head = kind.group_of(
            spec.head_group_spec, "head", 1, is_ready=status.job_status == "RUNNING", claim=claim
        )
        workers = [
            kind.group_of(each, each.group_name, (each.replicas or 0) * each.num_of_hosts)
            for each in islice(spec.worker_group_specs or (), kind.MAX_GROUPS)
        ]
        return kind.View(
            groups=(head, *workers, _submitter(job, parts)),
            leaders=("head", "submitter"),
            is_suspended=job.spec.suspend or status.job_deployment_status in ("Suspending", "Suspended"),
            manager=self.manager(job.spec.managed_by),
            unmade=_before(status),
            columns=(status.job_deployment_status,),
        )

    def all_pods(self, job: RayJob, parts: kind.Parts) -> kind.AllPods | None:
        cluster = parts.get(_CLUSTERS, job.status.ray_cluster_name, job.metadata)
        if cluster is None:
            return None
        return kind.pods_of(
            cluster.metadata,
            f"{LABEL}cluster={cluster.metadata.name}",
            lambda pod, labels: "head-0" if labels.get(f"{LABEL}node-type") == "head" else pod.metadata.name,
        )


def _submitter(job: RayJob, parts: kind.Parts) -> kind.Group:
    made: k8s.BatchJob | None = parts.get(_SUBMITTERS, job.metadata.name, job.metadata)
    claim = job_pod(parts.pods(_SUBMITTER_PODS, made.metadata), made.metadata) if made is not None else None
    failures, desired = job_failures(made, "submitter"), None if made is None else 1
    return kind.group_of(k8s.PodMaker(), "submitter", desired, claim=claim, failures=failures)


def _before(status: RayJobStatus) -> kind.PhaseDecision | None:
    """What the job waits for before Ray runs it; None once it does. Its head runs before that."""
    state = status.job_deployment_status
    if state == "ValidationFailed":
        return kind.PhaseDecision(Phase.PENDING, state, status.message or "KubeRay refuses the RayJob.")
    if (state or "New") in _UNMADE:
        return kind.PhaseDecision(Phase.PENDING, *_UNMADE[state or "New"])
    if state in ("Initializing", "Waiting") or status.job_status in ("", "PENDING"):
        return kind.PhaseDecision(
            Phase.INITIALIZING, state, "The RayCluster has not begun to run the job yet."
        )
    return None
