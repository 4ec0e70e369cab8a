"""A PyTorchJob and a Job beside the demo's TrainJobs, and as much of the training-operator as that one needs.

The operator makes a pod and conditions (kubeflow/training-operator, pkg/controller.v1/common/pod.go). Jobs
have a controller here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from localcluster.machinery.client import MERGE, ApiClient
from localcluster.machinery.metadata import Object, controller_reference, with_condition
from localcluster.machinery.resources import Resource

LABEL = "training.kubeflow.org/"
TRAINING = {"visibility.trainer.kubeflow.org/training": "true"}  # that a plain Job and its pods need
PYTORCH_JOBS = Resource(
    group="kubeflow.org", plural="pytorchjobs", kind="PyTorchJob", subresources=("status",)
)
_LOOK_S = 0.5
# By the phase of its master's pod: condition and reason of the job.
_CONDITIONS = {
    "Running": ("Running", "PyTorchJobRunning"),
    "Succeeded": ("Succeeded", "PyTorchJobSucceeded"),
    "Failed": ("Failed", "PyTorchJobFailed"),
}


async def install_pytorch_jobs(admin: ApiClient) -> None:
    """The CustomResourceDefinition: names and version; any content is kept."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kind = PYTORCH_JOBS.kind
    version = {"name": PYTORCH_JOBS.version, "served": True, "storage": True, "schema": schema}
    spec = {
        "group": PYTORCH_JOBS.group,
        "scope": "Namespaced",
        "names": {
            "plural": PYTORCH_JOBS.plural,
            "singular": kind.lower(),
            "kind": kind,
            "listKind": f"{kind}List",
        },
        "versions": [version | {"subresources": {"status": {}}}],
    }
    await admin.create(
        "customresourcedefinitions", {"metadata": {"name": PYTORCH_JOBS.qualified}, "spec": spec}
    )


@contextlib.asynccontextmanager
async def pytorch_job(
    admin: ApiClient, namespace: str, name: str, command: Sequence[str]
) -> AsyncIterator[None]:
    """A job that an operator looks after in the meantime."""
    template = {"spec": _pod_spec("pytorch", command)}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    named = {"apiVersion": PYTORCH_JOBS.api_version, "kind": PYTORCH_JOBS.kind}
    job = await admin.request("POST", PYTORCH_JOBS.path(namespace), named | body)
    operator = asyncio.create_task(_operate(admin, named | job), name=f"operator of {name}")
    try:
        yield
    finally:
        operator.cancel()


async def _operate(admin: ApiClient, job: Object) -> None:
    """Its master's pod, and its conditions until it has ended."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    labels = {
        "job-name": name,
        "operator-name": "pytorchjob-controller",
        "replica-type": "master",
        "replica-index": "0",
        "job-role": "master",
    }
    meta: Object = {
        "name": f"{name}-master-0",
        "namespace": namespace,
        "labels": {LABEL + key: value for key, value in labels.items()},
        "ownerReferences": [controller_reference(job)],
    }
    spec = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    await admin.create("pods", {"metadata": meta, "spec": spec})
    conditions: list[Object] = []
    shown = ""
    while shown not in ("Succeeded", "Failed"):
        pod = await admin.get("pods", meta["name"], namespace)
        phase = pod.get("status", {}).get("phase", "")
        if phase in _CONDITIONS and phase != shown:
            shown = phase
            if phase != "Running":
                conditions = with_condition(conditions, "Running", "False", _CONDITIONS["Running"][1], "")
            type_, reason = _CONDITIONS[phase]
            conditions = with_condition(conditions, type_, "True", reason, f"PyTorchJob {name} is {phase}.")
            count = {"active": 1} if phase == "Running" else {phase.lower(): 1}
            status = {"conditions": conditions, "replicaStatuses": {"Master": count}}
            path = PYTORCH_JOBS.path(namespace, name, "status")
            await admin.request("PATCH", path, {"status": status}, content_type=MERGE)
        await asyncio.sleep(_LOOK_S)


async def start_job(admin: ApiClient, namespace: str, name: str, command: Sequence[str]) -> None:
    """A plain Job, with the label that makes it one of those that are shown."""
    template = {"metadata": {"labels": TRAINING}, "spec": _pod_spec("train", command)}
    spec = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0}
    meta = {"name": name, "namespace": namespace, "labels": TRAINING}
    await admin.create("jobs", {"metadata": meta, "spec": spec | {"template": template}})


def _pod_spec(container: str, command: Sequence[str]) -> Object:
    return {
        "restartPolicy": "Never",
        "containers": [{"name": container, "image": "python:3", "command": list(command)}],
    }
