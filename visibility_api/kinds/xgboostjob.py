"""XGBoostJob of Kubeflow's training-operator.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/xgboost_types.go; rank 0 as in
pkg/controller.v1/xgboost/xgboostjob_controller.go (`IsMasterRole`).
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


class XGBoostJobSpec(OperatorSpec, frozen=True):
    replica_specs: SPECS = specs_field("xgbReplicaSpecs")


class XGBoostJob(OperatorJob, frozen=True):
    spec: XGBoostJobSpec = XGBoostJobSpec()


class XGBoostJobKind(OperatorKind):
    served = progress_of("XGBoostJob", "xgboostjobs", "xgbp")
    chains = ((operator_jobs("XGBoostJob", "xgboostjobs", XGBoostJob), PODS),)
    leaders = ("Master",)
    container = "xgboost"
