"""JAXJob of Kubeflow's training-operator.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/jax_types.go; rank 0 as in
pkg/controller.v1/jax/jaxjob_controller.go (`IsMasterRole`).
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


class JAXJobSpec(OperatorSpec, frozen=True):
    replica_specs: SPECS = specs_field("jaxReplicaSpecs")


class JAXJob(OperatorJob, frozen=True):
    spec: JAXJobSpec = JAXJobSpec()


class JAXJobKind(OperatorKind):
    served = progress_of("JAXJob", "jaxjobs", "jaxp")
    chains = ((operator_jobs("JAXJob", "jaxjobs", JAXJob), PODS),)
    leaders = ("Worker",)
    container = "jax"
