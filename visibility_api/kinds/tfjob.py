"""TFJob of Kubeflow's training-operator.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/tensorflow_types.go; rank 0 as
in pkg/controller.v1/tensorflow/tfjob_controller.go (`IsMasterRole`).
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


class TFJobSpec(OperatorSpec, frozen=True):
    replica_specs: SPECS = specs_field("tfReplicaSpecs")


class TFJob(OperatorJob, frozen=True):
    spec: TFJobSpec = TFJobSpec()


class TFJobKind(OperatorKind):
    served = progress_of("TFJob", "tfjobs", "tfjp")
    chains = ((operator_jobs("TFJob", "tfjobs", TFJob), PODS),)
    leaders = ("Chief", "Master", "Worker")
    container = "tensorflow"
