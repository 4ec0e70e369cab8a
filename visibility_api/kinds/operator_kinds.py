"""The kinds of Kubeflow's training-operator but MPIJob, which is more than its own pods.

By github.com/kubeflow/training-operator, release-1.9: types in pkg/apis/kubeflow.org/v1; rank 0 as in
pkg/controller.v1 (`IsMasterRole` of each controller).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import WatchedObjects, pods_with

from .training_operator import (
    LABEL,
    PODS,
    SPECS,
    OperatorJob,
    OperatorKind,
    OperatorSpec,
    operator_jobs,
    specs_field,
)


class PodsOfJobKind(OperatorKind):
    def __init__(
        self,
        kind: str,
        plural: str,
        short_name: str,
        specs: str,
        leaders: Sequence[str],
        container: str,
        pods: WatchedObjects = PODS,
    ) -> None:
        """`specs`: the field of its spec that has the replica specs. Else as `OperatorKind`."""
        self.served = progress_of(kind, plural, short_name)  # type: ignore[misc]  # of this object
        self.chains = ((operator_jobs(kind, plural, _job_type(kind, specs)), pods),)  # type: ignore[misc]
        self.leaders, self.container = leaders, container  # type: ignore[misc]


def _job_type(kind: str, specs: str) -> type[OperatorJob]:
    field = ("replica_specs", SPECS, specs_field(specs))
    spec = msgspec.defstruct(f"{kind}Spec", [field], bases=(OperatorSpec,), frozen=True)
    made = msgspec.defstruct(kind, [("spec", spec, spec())], bases=(OperatorJob,), frozen=True)
    return cast("type[OperatorJob]", made)


# Without a master no pod has the label of one, so the first pod of each type is watched.
_PADDLE_PODS = pods_with(f"{LABEL}operator-name=paddlejob-controller,{LABEL}replica-index=0")

PYTORCH = PodsOfJobKind(
    "PyTorchJob", "pytorchjobs", "ptjp", "pytorchReplicaSpecs", ("Master", "Worker"), "pytorch"
)
TF = PodsOfJobKind("TFJob", "tfjobs", "tfjp", "tfReplicaSpecs", ("Chief", "Master", "Worker"), "tensorflow")
XGBOOST = PodsOfJobKind("XGBoostJob", "xgboostjobs", "xgbp", "xgbReplicaSpecs", ("Master",), "xgboost")
PADDLE = PodsOfJobKind(
    "PaddleJob", "paddlejobs", "pdjp", "paddleReplicaSpecs", ("Master", "Worker"), "paddle", _PADDLE_PODS
)
JAX = PodsOfJobKind("JAXJob", "jaxjobs", "jaxp", "jaxReplicaSpecs", ("Worker",), "jax")
