"""The ClusterTrainingRuntimes that a Trainer installation brings, as far as rank 0 differs between them.

Shapes after kubeflow/trainer manifests/base/runtimes; images stand for nothing here.
"""

from __future__ import annotations

from localcluster.machinery.metadata import Object

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_FRAMEWORK = "trainer.kubeflow.org/framework"


def _runtime(name: str, framework: str, policy: Object, jobset: Object) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {_FRAMEWORK: framework}},
        "spec": {"mlPolicy": policy, "template": {"spec": jobset}},
    }


def _replicated_job(name: str, *, is_trainer: bool, command: list[str] | None = None) -> Object:
    container: Object = {"name": "node", "image": f"localcluster/{name}"}
    if command:
        container["command"] = command
    template: Object = {"spec": {"template": {"spec": {"containers": [container]}}}}
    if is_trainer:
        template["metadata"] = {"labels": {ANCESTOR: "trainer"}}
    return {"name": name, "replicas": 1, "template": template}


TORCH = _runtime(
    "torch-distributed",
    "torch",
    {"numNodes": 1, "torch": {}},
    {"replicatedJobs": [_replicated_job("node", is_trainer=True)]},
)
# `node` comes first, has no ancestor label, runs sshd and never ends; success is the launcher's.
DEEPSPEED = _runtime(
    "deepspeed-distributed",
    "deepspeed",
    {"numNodes": 1, "mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "runLauncherAsNode": True}},
    {
        "replicatedJobs": [
            _replicated_job("node", is_trainer=False, command=["sleep", "infinity"]),
            _replicated_job("launcher", is_trainer=True),
        ],
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        "network": {"publishNotReadyAddresses": True},
    },
)
RUNTIMES = (TORCH, DEEPSPEED)
