"""PyTorchJob of Kubeflow's training-operator.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/pytorch_types.go; rank 0 as in
pkg/controller.v1/pytorch/pytorchjob_controller.go (`IsMasterRole`).
"""

from __future__ import annotations

from visibility_api.models.served import progress_of

from .training_operator import (
    PODS,
    SPECS,
    OperatorJob,
    OperatorKind,
    OperatorSpec,
    operator_jobs,
    specs_field,
)


class PyTorchJobSpec(OperatorSpec, frozen=True):
    replica_specs: SPECS = specs_field("pytorchReplicaSpecs")


class PyTorchJob(OperatorJob, frozen=True):
    spec: PyTorchJobSpec = PyTorchJobSpec()


class PyTorchJobKind(OperatorKind):
    served = progress_of("PyTorchJob", "pytorchjobs", "ptjp")
    chains = ((operator_jobs("PyTorchJob", "pytorchjobs", PyTorchJob), PODS),)
    leaders = ("Master", "Worker")
    container = "pytorch"
