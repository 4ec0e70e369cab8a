"""MPIJobs of Kubeflow's training-operator (v1) or of its mpi-operator (v2beta1): a cluster has one of them.

v1: the launcher is a pod, `<job>-launcher` (github.com/kubeflow/training-operator, release-1.9,
pkg/controller.v1/mpi/mpijob_controller.go: `newLauncher`). v2beta1: it is a Job of that name, whose pods are
found by the label of their role (github.com/kubeflow/mpi-operator, v0.8.2,
pkg/controller/mpi_job_controller.go: `newLauncherJob`, `newLauncherPodTemplate`). Workers are pods of the job
in both; what is printed, and what is pushed, comes from the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from visibility_api.jobs.job import TrainingJob
from visibility_api.models.served import progress_of
from visibility_api.workloads.failures import Replica, job_failures
from visibility_api.workloads.kind import AllPods, Group, LiveObject, Parts, WatchedObjects, jobs_with
from visibility_api.workloads.objects import BatchJob, KubernetesObject, Meta, Pod
from visibility_api.workloads.rank0 import controls, is_generated, job_pod, job_prefix, named_pod

from .training_operator import (
    API,
    LABEL,
    PODS,
    SPECS,
    OperatorJob,
    OperatorKind,
    ReplicaSpec,
    RunPolicy,
    specs_field,
)

LAUNCHER = "Launcher"
_WORKER = re.compile(r"worker-(0|[1-9][0-9]{0,8})")


class MPIJobSpec(KubernetesObject, frozen=True):
    run_policy: RunPolicy = RunPolicy()
    replica_specs: SPECS = specs_field("mpiReplicaSpecs")
    main_container: str | None = None  # v1 only


class MPIJob(OperatorJob, frozen=True):
    spec: MPIJobSpec = MPIJobSpec()


def _makes(job: LiveObject, made: Meta) -> bool:
    """The launcher, as a pod or a Job, and workers."""
    prefix = f"{job.metadata.name}-"
    name = made.name.removeprefix(prefix)
    return name != made.name and (name == "launcher" or _WORKER.fullmatch(name) is not None)


def _mpijobs(api: str) -> WatchedObjects:
    return WatchedObjects(api=api, plural="mpijobs", kind="MPIJob", type=MPIJob, makes=_makes, is_read=False)


_V1, _V2BETA1 = _mpijobs(API), _mpijobs("/apis/kubeflow.org/v2beta1")
# Its only label is `app`. Others' Jobs are not kept.
_LAUNCHERS = jobs_with(
    "app,!jobset.sigs.k8s.io/jobset-name",
    makes=lambda job, pod: is_generated(pod.name, job_prefix(job.metadata.name)),
)


class MPIJobKind(OperatorKind):
    served = progress_of("MPIJob", "mpijobs", "mpijp")
    chains = ((_V2BETA1, _LAUNCHERS, PODS), (_V2BETA1, PODS), (_V1, PODS))
    leaders = (LAUNCHER,)
    container = "mpi"

    def has_replica(self, job: TrainingJob, pod_name: str) -> bool:
        """The launcher's pods are named by itself, or by its Job."""
        is_worker = _WORKER.fullmatch(pod_name.removeprefix(f"{job.ref.name}-")) is not None
        return not is_worker or super().has_replica(job, pod_name)

    def group(self, job: Any, type_: str, spec: ReplicaSpec, parts: Parts, *, is_leader: bool) -> Group:  # noqa: ANN401
        group = super().group(job, type_, spec, parts, is_leader=False)
        if not is_leader:
            return group
        name = f"{job.metadata.name}-launcher"
        launcher: BatchJob | None = parts.get(_LAUNCHERS, name, job.metadata)
        if launcher is None:
            claim = named_pod(parts.pods(PODS, job.metadata), name)
        else:
            claim = job_pod(parts.pods(PODS, launcher.metadata), launcher.metadata)
        return msgspec.structs.replace(
            group,
            claim=claim,
            container=job.spec.main_container or ("mpi" if launcher is None else ""),
            failures=job_failures(launcher, "launcher"),
        )

    def all_pods(self, job: Any, parts: Parts) -> AllPods | None:  # noqa: ANN401
        meta: Meta = job.metadata
        launcher: BatchJob | None = parts.get(_LAUNCHERS, f"{meta.name}-launcher", meta)

        def replica(pod: Pod, _labels: Mapping[str, str]) -> Replica | None:
            name = pod.metadata.name.removeprefix(f"{meta.name}-")
            if launcher is not None and controls(launcher.metadata, pod.metadata):
                return Replica(name="launcher-0")
            if not controls(meta, pod.metadata):
                return None
            return Replica(name="launcher-0" if name == "launcher" else name)

        return AllPods(f"{LABEL}job-name={meta.name}", replica)
