"""TrainJob → JobSet, and the JobSet's state back into the TrainJob (kubeflow/trainer). Pure: no I/O."""

from __future__ import annotations

import copy
from typing import Any

from localcluster.controllers.runtimes import ANCESTOR
from localcluster.machinery.metadata import Object, condition_is, controller_reference, with_condition

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
MASTER_PORT = 29500


def jobset_for(train_job: Object, runtime: Object) -> Object:
    """The JobSet of the same name: the runtime's template with the TrainJob's own wishes put over it."""
    spec, policy = train_job["spec"], runtime["spec"].get("mlPolicy") or {}
    trainer = spec.get("trainer") or {}
    nodes = trainer.get("numNodes") or policy.get("numNodes") or 1
    jobset_spec: Object = copy.deepcopy(runtime["spec"]["template"]["spec"])
    for replicated in jobset_spec["replicatedJobs"]:
        job_spec = replicated["template"]["spec"]
        pod_spec = job_spec["template"]["spec"]
        pod_spec.setdefault("restartPolicy", "OnFailure")
        is_trainer = _ancestor(replicated) == "trainer"
        size = _pod_count(replicated["name"], nodes, policy, is_trainer=is_trainer)
        job_spec.update(completionMode="Indexed", parallelism=size, completions=size)
        _inform(_node_container(pod_spec), train_job, policy, nodes, is_trainer=is_trainer)
        if is_trainer:
            _customize(_node_container(pod_spec), trainer)  # its variables win over injected ones
    jobset_spec["suspend"] = bool(spec.get("suspend", False))
    meta: Object = {"name": train_job["metadata"]["name"], "namespace": train_job["metadata"]["namespace"]}
    for field in ("labels", "annotations"):
        if spec.get(field):
            meta[field] = spec[field]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta | {"ownerReferences": [controller_reference(train_job)]},
        "spec": jobset_spec,
    }


def _ancestor(replicated: Object) -> str:
    labels = (replicated["template"].get("metadata") or {}).get("labels") or {}
    return str(labels.get(ANCESTOR, ""))


def _node_container(pod_spec: Object) -> Object:
    containers = pod_spec["containers"]
    found: Object = next((each for each in containers if each["name"] == "node"), containers[0])
    return found


def _pod_count(name: str, nodes: int, policy: Object, *, is_trainer: bool) -> int:
    if "mpi" not in policy:
        return nodes if is_trainer else 1
    if name == "launcher":
        return 1
    return max(nodes - 1, 1) if policy["mpi"].get("runLauncherAsNode") else nodes


def _customize(container: Object, trainer: Object) -> None:
    for field in ("image", "command", "args"):
        if trainer.get(field):
            container[field] = trainer[field]
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]
    if trainer.get("env"):
        own = {entry["name"] for entry in trainer["env"]}
        kept = [entry for entry in container.get("env") or [] if entry["name"] not in own]
        container["env"] = kept + copy.deepcopy(trainer["env"])


def _inform(container: Object, train_job: Object, policy: Object, nodes: int, *, is_trainer: bool) -> None:
    """The rank variables that the runtime's framework plugin injects."""
    name = train_job["metadata"]["name"]
    injected: list[dict[str, Any]] = []
    if "torch" in policy and is_trainer:
        index = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
        injected = [
            {"name": "PET_NNODES", "value": str(nodes)},
            {"name": "PET_NPROC_PER_NODE", "value": str(policy["torch"].get("numProcPerNode", "auto"))},
            {"name": "PET_NODE_RANK", "valueFrom": index},
            {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
            {"name": "PET_MASTER_PORT", "value": str(MASTER_PORT)},
        ]
    elif "mpi" in policy and is_trainer:
        injected = [{"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"}]
    container["env"] = [*(container.get("env") or []), *injected]


def train_job_status(train_job: Object, jobset: Object) -> Object:
    """Conditions and jobsStatus as the Trainer derives them from the JobSet."""
    status: Object = copy.deepcopy(train_job.get("status") or {})
    conditions = status.get("conditions")
    if train_job["spec"].get("suspend"):
        conditions = with_condition(conditions, "Suspended", "True", "Suspended", "TrainJob is suspended")
    elif any(found["type"] == "Suspended" for found in conditions or []):
        conditions = with_condition(conditions, "Suspended", "False", "Resumed", "TrainJob is resumed")
    for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        if condition_is(jobset, theirs):
            found = next(each for each in jobset["status"]["conditions"] if each["type"] == theirs)
            conditions = with_condition(conditions, ours, "True", found["reason"], found["message"])
    if conditions:
        status["conditions"] = conditions
    children = (jobset.get("status") or {}).get("replicatedJobsStatus")
    if children:
        status["jobsStatus"] = children
    return status
