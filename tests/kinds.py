"""One job of each kind that is not a TrainJob, with its objects as its controllers write them.

Names, owners, labels and conditions are from the controllers' sources, which the files in
visibility_api/kinds/ name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
SINCE = "2026-01-23T10:00:00Z"
GENERATED = "x7k2p"  # what a controller has appended to a name
_CLUSTER = "bert-x7k2p"


@dataclass(frozen=True, kw_only=True)
class Part:
    """An object that the job controls, or another part."""

    api: str
    plural: str
    kind: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Object = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sample:
    resource: str  # ours
    short_name: str
    api: str
    plural: str
    kind: str
    spec: Object
    suspension: Object = field(default_factory=dict)  # what is patched into the spec; {}: it has none
    parts: tuple[Part, ...] = ()  # from the job down, the last one controls the pod
    pod: str
    pod_labels: Mapping[str, str]
    container: str
    group: str  # of rank 0
    states: Mapping[str, Object]  # the status by phase
    restarting: Object = field(
        default_factory=dict
    )  # the status while its pods are made anew; {}: it shows nothing
    labels: Mapping[str, str] = field(default_factory=dict)  # that it needs
    served: str = ""  # its kind here without `Progress`; "": its own
    column: tuple[str, str] | None = None  # of its own: name and cell while it runs
    is_controlled: bool = False  # by the controllers of the tests' clusters, which make the parts and pods
    name: str = "bert"

    @property
    def served_kind(self) -> str:
        return self.served or self.kind

    @property
    def id(self) -> str:
        return f"{self.served_kind} {self.api.rpartition('/')[2]}"


def condition(type_: str, reason: str, status: str = "True") -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": f"{type_} it is.",
        "lastTransitionTime": SINCE,
    }


def template(container: str) -> Object:
    gpu = {"limits": {"nvidia.com/gpu": 2}}
    return {"spec": {"containers": [{"name": container, "image": "python:3", "resources": gpu}]}}


KUBEFLOW = "training.kubeflow.org/"


def of_operator(
    kind: str, specs: str, container: str, *types: str, short_name: str, operator: str, **changes: Any
) -> Sample:
    """`types`: of its replicas, the one that leads first."""
    plural, leader = f"{kind.lower()}s", types[0].lower()
    labels = {
        f"{KUBEFLOW}job-name": "bert",
        f"{KUBEFLOW}operator-name": operator,
        f"{KUBEFLOW}replica-type": leader,
        f"{KUBEFLOW}replica-index": "0",
        f"{KUBEFLOW}job-role": "master",
    }
    fields: dict[str, Any] = {
        "resource": plural,
        "short_name": short_name,
        "api": "/apis/kubeflow.org/v1",
        "plural": plural,
        "kind": kind,
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            specs: {
                each: {"replicas": 1 + n, "template": template(container)} for n, each in enumerate(types)
            },
        },
        "suspension": {"runPolicy": {"suspend": True}},
        "pod": f"bert-{leader}-0",
        "pod_labels": labels,
        "container": container,
        "group": leader,
        "restarting": {
            "conditions": [
                condition("Created", f"{kind}Created"),
                condition("Restarting", f"{kind}Restarting"),
            ],
        },
        "states": {
            "Running": {
                "conditions": [
                    condition("Created", f"{kind}Created"),
                    condition("Running", f"{kind}Running"),
                ],
                "replicaStatuses": {types[0]: {"active": 1}},
            },
            "Failed": {
                "conditions": [
                    condition("Running", f"{kind}Running", "False"),
                    condition("Failed", f"{kind}Failed"),
                ],
                "replicaStatuses": {types[0]: {"failed": 1}},
            },
            "Succeeded": {
                "conditions": [
                    condition("Running", f"{kind}Running", "False"),
                    condition("Succeeded", f"{kind}Succeeded"),
                ],
                "replicaStatuses": {types[0]: {"succeeded": 1}},
            },
        },
    }
    return Sample(**fields | changes)


_LAUNCHER = {
    f"{KUBEFLOW}job-name": "bert",
    f"{KUBEFLOW}operator-name": "mpi-operator",
    f"{KUBEFLOW}job-role": "launcher",
}
_OF_RAY = {"ray.io/originated-from-cr-name": "bert", "ray.io/originated-from-crd": "RayJob"}
_RAY_CLUSTER = {
    "headGroupSpec": {"template": template("ray-head")},
    "workerGroupSpecs": [
        {
            "groupName": "gpu",
            "replicas": 3,
            "minReplicas": 3,
            "maxReplicas": 3,
            "template": template("ray-worker"),
        }
    ],
}
_OF_LWS = {"leaderworkerset.sigs.k8s.io/name": "bert"}
_NEVER = {
    "parallelism": 0,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "mpi", "image": "python:3"}]}},
}

_OF_JOBSET = {
    "jobset.sigs.k8s.io/jobset-name": "bert",
    "jobset.sigs.k8s.io/replicatedjob-name": "node",
    "jobset.sigs.k8s.io/job-index": "0",
}
_INDEX = {"batch.kubernetes.io/job-completion-index": "0"}
TRAINING = {"visibility.trainer.kubeflow.org/training": "true"}


def indexed(container: str) -> Object:
    return {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "template": {"metadata": {"labels": TRAINING}, **template(container)},
    }


SAMPLES = (
    Sample(
        resource="jobsets", short_name="jsp",
        api="/apis/jobset.x-k8s.io/v1alpha2", plural="jobsets", kind="JobSet",
        spec={"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": indexed("trainer")}}]},
        suspension={"suspend": True},
        parts=(
            Part(
                api="/apis/batch/v1", plural="jobs", kind="Job", name="bert-node-0",
                labels=_OF_JOBSET, spec=indexed("trainer"),
            ),
        ),
        pod="bert-node-0-0-abcde", pod_labels=_OF_JOBSET | _INDEX | TRAINING,
        container="trainer", group="node", is_controlled=True,
        states={
            "Running": {
                "replicatedJobsStatus": [
                    {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}
                ]
            },
            "Failed": {"conditions": [condition("Failed", "FailedJobs")]},
            "Succeeded": {"conditions": [condition("Completed", "AllJobsCompleted")]},
        },
    ),
    Sample(
        resource="jobs", short_name="jobp", api="/apis/batch/v1", plural="jobs", kind="Job",
        spec=indexed("trainer"), suspension={"suspend": True}, labels=TRAINING,
        pod="bert-0-abcde", pod_labels=_INDEX | TRAINING,
        container="trainer", group="worker", is_controlled=True,
        states={
            "Running": {"active": 2, "ready": 2},
            "Failed": {"failed": 1, "conditions": [condition("Failed", "PodFailurePolicy")]},
            "Succeeded": {"succeeded": 2, "conditions": [condition("Complete", "SuccessPolicy")]},
        },
    ),
    of_operator(
        "PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master", "Worker",
        short_name="ptjp", operator="pytorchjob-controller",
    ),
    of_operator(
        "TFJob", "tfReplicaSpecs", "tensorflow", "Chief", "Worker", "PS",
        short_name="tfjp", operator="tfjob-controller",
    ),
    of_operator(
        "MPIJob", "mpiReplicaSpecs", "mpi", "Launcher", "Worker",
        short_name="mpijp", operator="mpijob-controller", pod="bert-launcher",
        pod_labels=_LAUNCHER
        | {f"{KUBEFLOW}job-role": "master", f"{KUBEFLOW}operator-name": "mpijob-controller"},
    ),
    of_operator(
        "MPIJob", "mpiReplicaSpecs", "mpi-launcher", "Launcher", "Worker",
        short_name="mpijp", operator="mpi-operator", api="/apis/kubeflow.org/v2beta1",
        parts=(
            Part(api="/apis/batch/v1", plural="jobs", kind="Job", name="bert-launcher",
                 labels={"app": "bert"}, spec=_NEVER),
        ),
        pod="bert-launcher-abcde", pod_labels=_LAUNCHER,
    ),
    of_operator(
        "XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master", "Worker",
        short_name="xgbp", operator="xgboostjob-controller",
    ),
    of_operator(
        "PaddleJob", "paddleReplicaSpecs", "paddle", "Worker",
        short_name="pdjp", operator="paddlejob-controller",
        pod_labels={
            f"{KUBEFLOW}job-name": "bert", f"{KUBEFLOW}operator-name": "paddlejob-controller",
            f"{KUBEFLOW}replica-type": "worker", f"{KUBEFLOW}replica-index": "0",
        },
    ),
    of_operator(
        "JAXJob", "jaxReplicaSpecs", "jax", "Worker", short_name="jaxp", operator="jaxjob-controller"
    ),
    Sample(
        resource="rayjobs", short_name="rayjp", api="/apis/ray.io/v1", plural="rayjobs", kind="RayJob",
        spec={
            "entrypoint": "python train.py",
            "rayClusterSpec": _RAY_CLUSTER,
        },
        suspension={"suspend": True},
        parts=(
            Part(
                api="/apis/ray.io/v1", plural="rayclusters", kind="RayCluster", name=_CLUSTER,
                labels=_OF_RAY, spec=_RAY_CLUSTER,
            ),
        ),
        pod=f"{_CLUSTER}-head-abcde",
        pod_labels={"ray.io/node-type": "head", "ray.io/cluster": _CLUSTER, "ray.io/group": "headgroup"},
        container="ray-head",
        group="head",
        column=("DEPLOYMENT", "Running"),
        restarting={"jobStatus": "", "jobDeploymentStatus": "Retrying", "rayClusterName": ""},
        states={
            "Running": {
                "jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "rayClusterName": _CLUSTER,
            },
            "Failed": {
                "jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "rayClusterName": _CLUSTER,
                "reason": "AppFailed", "message": "Job entrypoint command failed with exit code 1",
                "endTime": SINCE,
            },
            "Succeeded": {
                "jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "rayClusterName": _CLUSTER,
                "endTime": SINCE,
            },
        },
    ),
    Sample(
        resource="volcanojobs", short_name="vcjp", served="VolcanoJob",
        api="/apis/batch.volcano.sh/v1alpha1", plural="jobs", kind="Job",
        spec={
            "tasks": [
                {"name": "worker", "replicas": 2, "template": template("trainer")},
                {"name": "master", "replicas": 1, "template": template("trainer")},
            ]
        },
        pod="bert-master-0",
        pod_labels={
            "volcano.sh/job-name": "bert", "volcano.sh/task-spec": "master", "volcano.sh/task-index": "0",
        },
        container="trainer", group="master",
        restarting={"state": {"phase": "Restarting"}, "retryCount": 1},
        states={
            "Running": {
                "state": {"phase": "Running"}, "taskStatusCount": {"master": {"phase": {"Running": 1}}},
            },
            "Failed": {"state": {"phase": "Failed", "lastTransitionTime": SINCE}},
            "Suspended": {"state": {"phase": "Aborted", "lastTransitionTime": SINCE}},
            "Succeeded": {"state": {"phase": "Completed", "lastTransitionTime": SINCE}},
        },
    ),
    Sample(
        resource="leaderworkersets", short_name="lwsp",
        api="/apis/leaderworkerset.x-k8s.io/v1", plural="leaderworkersets", kind="LeaderWorkerSet",
        spec={"replicas": 1, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template("trainer")}},
        parts=(
            Part(
                api="/apis/apps/v1", plural="statefulsets", kind="StatefulSet", name="bert", labels=_OF_LWS,
                spec={
                    "replicas": 0, "serviceName": "bert",
                    "selector": {"matchLabels": _OF_LWS},
                    "template": {"metadata": {"labels": _OF_LWS}, **template("trainer")},
                },
            ),
        ),
        pod="bert-0",
        pod_labels=_OF_LWS
        | {"leaderworkerset.sigs.k8s.io/worker-index": "0", "leaderworkerset.sigs.k8s.io/group-index": "0"},
        container="trainer",
        group="leader", restarting={"readyReplicas": 0},
        states={"Running": {"readyReplicas": 1, "conditions": [condition("Available", "AllGroupsReady")]}},
    ),
    Sample(
        resource="statefulsets", short_name="stsp", api="/apis/apps/v1", plural="statefulsets",
        kind="StatefulSet", labels=TRAINING,
        spec={
            "replicas": 2, "serviceName": "bert", "selector": {"matchLabels": TRAINING},
            "template": {"metadata": {"labels": TRAINING}, **template("trainer")},
        },
        pod="bert-0", pod_labels=TRAINING | {"apps.kubernetes.io/pod-index": "0"},
        container="trainer", group="worker",
        states={"Running": {"replicas": 2, "readyReplicas": 2}},
    ),
    Sample(
        resource="pods", short_name="podp", api="/api/v1", plural="pods", kind="Pod", labels=TRAINING,
        spec=template("trainer")["spec"], pod="bert", pod_labels=TRAINING,
        container="trainer", group="pod", is_controlled=True,
        states={
            "Running": {"phase": "Running"},
            "Failed": {"phase": "Failed"},
            "Succeeded": {"phase": "Succeeded"},
        },
    ),
)  # fmt: skip

# Of the kind that deploy/components/kinds describes.
DESCRIBED = Sample(
    resource="slurmjobs", short_name="slurmp",
    api="/apis/slurm.example.com/v1", plural="slurmjobs", kind="SlurmJob",
    spec={"nodes": 4, "partition": "a100", "template": template("main")}, column=("PARTITION", "a100"),
    pod="bert-0", pod_labels={"slurm.example.com/rank": "0", "slurm.example.com/job": "bert"},
    container="main", group="node",
    states={
        "Running": {"state": "RUNNING"},
        "Pending": {"state": "QUEUED", "reason": "Priority", "message": "Three jobs are before it."},
        "Suspended": {"state": "HELD"},
        "Failed": {"state": "ENDED", "conditions": [condition("Failed", "NodeFailed")]},
        "Succeeded": {"state": "ENDED", "conditions": [condition("Complete", "Done")]},
    },
)  # fmt: skip
