"""What the kinds of the group kubeflow.org have in common: replica specs by type, and pods of the job's own.

Pods are named `<job>-<type>-<index>`.

By github.com/kubeflow/training-operator, release-1.9: pkg/apis/kubeflow.org/v1/common_types.go (spec, status,
labels), pkg/controller.v1/common/pod.go (`createNewPod`: labels and owner of a pod), pkg/core/utils.go
(`GenGeneralName`), pkg/util/status.go (conditions: Running and Restarting exclude each other).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts, TrainingJob
from visibility_api.workloads.kind import (
    MAX_GROUPS,
    AllPods,
    Group,
    JobKind,
    Parts,
    View,
    WatchedObjects,
    is_within_groups,
    makes_indexed_pod,
    pods_by_index,
    pods_with,
)
from visibility_api.workloads.objects import (
    AnyObject,
    Count,
    KubernetesObject,
    ObjectCondition,
    PodMaker,
)
from visibility_api.workloads.phase import by_condition, true_condition
from visibility_api.workloads.rank0 import named_pod

API = "/apis/kubeflow.org/v1"
LABEL = "training.kubeflow.org/"


class ReplicaSpec(PodMaker, frozen=True):
    replicas: Count | None = None

    @property
    def desired(self) -> int:
        return 1 if self.replicas is None else self.replicas


class ReplicaStatus(KubernetesObject, frozen=True):
    """Counts of pods, of which those that are 0 are left out."""

    active: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class RunPolicy(KubernetesObject, frozen=True):
    suspend: bool | None = None
    managed_by: str | None = None


class OperatorSpec(KubernetesObject, frozen=True):
    """Each kind adds its `replica_specs` under their own name."""

    run_policy: RunPolicy = RunPolicy()


class OperatorStatus(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None
    replica_statuses: dict[str, ReplicaStatus] | None = None


class OperatorJob(AnyObject, frozen=True):
    status: OperatorStatus | None = None


def operator_jobs(kind: str, plural: str, type_: type[OperatorJob]) -> WatchedObjects:
    return WatchedObjects(
        api=API, plural=plural, kind=kind, type=type_, makes=makes_indexed_pod, is_read=False
    )


# The label marks the first replica of the type that leads (`IsMasterRole` of each controller).
PODS = pods_with(f"{LABEL}job-role in (master,launcher)")


class OperatorKind(JobKind):
    """One of them. `leaders`: its types of replicas that may hold rank 0, of which the first counts that the
    job has; `container`: the one that trains."""

    success = "Succeeded"
    controllers = ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator")
    leaders: ClassVar[Sequence[str]]
    container: ClassVar[str]

    def has_replica(self, job: TrainingJob, pod_name: str) -> bool:
        return is_within_groups(job, pod_name)

    def view(self, job: Any, parts: Parts) -> View:  # noqa: ANN401
        specs: Mapping[str, ReplicaSpec] = job.spec.replica_specs or {}
        conditions = self.conditions(job)
        leaders = [type_.lower() for type_ in self.leaders if type_ in specs][:1]
        restarting = true_condition(conditions, "Restarting")
        groups = [
            self.group(job, type_, spec, parts, is_leader=type_.lower() in leaders)
            for type_, spec in list(specs.items())[:MAX_GROUPS]
        ]
        return View(
            groups=tuple(groups),
            leaders=tuple(leaders),
            is_suspended=bool(job.spec.run_policy.suspend),
            manager=self.manager(job.spec.run_policy.managed_by),
            restarting=by_condition(Phase.PENDING, restarting, "Restarting") if restarting else None,
        )

    def group(self, job: Any, type_: str, spec: ReplicaSpec, parts: Parts, *, is_leader: bool) -> Group:  # noqa: ANN401
        """The replicas of one type. What leads is ready once the job is running."""
        found = ((job.status.replica_statuses if job.status else None) or {}).get(type_)
        name = type_.lower()
        running = true_condition(self.conditions(job), "Running")
        return Group(
            counts=ReplicaCounts(
                name=name,
                desired=spec.desired,
                active=found.active if found else None,
                succeeded=found.succeeded if found else None,
                failed=found.failed if found else None,
            ),
            held=spec.held,
            shared=spec.shared,
            is_ready=is_leader and running is not None,
            is_active=found is not None and bool(found.active),
            claim=named_pod(parts.pods(self.pods, job.metadata), f"{job.metadata.name}-{name}-0")
            if is_leader
            else None,
            container=self.container,
        )

    @property
    def pods(self) -> WatchedObjects:
        """Those that may hold rank 0."""
        return self.chains[0][-1]

    def all_pods(self, job: Any, parts: Parts) -> AllPods | None:  # noqa: ANN401, ARG002
        return pods_by_index(
            job.metadata, f"{LABEL}job-name", f"{LABEL}replica-type", f"{LABEL}replica-index"
        )


SPECS = dict[str, ReplicaSpec] | None


def specs_field(name: str) -> Any:  # noqa: ANN401 - as msgspec's own
    """The field `replica_specs` of a kind, under its own name."""
    return msgspec.field(default=None, name=name)
