"""PaddleJob of Kubeflow's training-operator.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/paddlepaddle_types.go; rank 0
as in pkg/controller.v1/paddlepaddle/paddlepaddle_controller.go (`IsMasterRole`): without a master no pod has
the label of one, so the first pod of each type is watched.
"""

from __future__ import annotations

from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import pods_with

from .training_operator import (
    LABEL,
    SPECS,
    OperatorJob,
    OperatorKind,
    OperatorSpec,
    operator_jobs,
    specs_field,
)


class PaddleJobSpec(OperatorSpec, frozen=True):
    replica_specs: SPECS = specs_field("paddleReplicaSpecs")


class PaddleJob(OperatorJob, frozen=True):
    spec: PaddleJobSpec = PaddleJobSpec()


_PODS = pods_with(f"{LABEL}operator-name=paddlejob-controller,{LABEL}replica-index=0")


class PaddleJobKind(OperatorKind):
    served = progress_of("PaddleJob", "paddlejobs", "pdjp")
    chains = ((operator_jobs("PaddleJob", "paddlejobs", PaddleJob), _PODS),)
    leaders = ("Master", "Worker")
    container = "paddle"
