"""StatefulSets of apps/v1 that carry a label of ours: training without an operator.

A StatefulSet counts only with the label `TRAINING`, on it and on its pod template, as a plain Job does. Its
pod of ordinal 0 is rank 0 (`getPodName` and `initIdentity` in
https://github.com/kubernetes/kubernetes/blob/v1.36.2/pkg/controller/statefulset/stateful_set_utils.go).
It never succeeds or fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from visibility_api.jobs.job import Phase, Replica as ReplicaCounts
from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import (
    AllPods,
    Group,
    JobKind,
    LiveObject,
    Ordinals,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
    is_index,
    pods_of,
    pods_with,
)
from visibility_api.workloads.objects import AnyObject, Count, KubernetesObject, Meta, Pod, PodMaker
from visibility_api.workloads.rank0 import named_pod

from .batchjob import GROUP, TRAINING

INDEX = "apps.kubernetes.io/pod-index"  # a label, since Kubernetes 1.28


class StatefulSetSpec(PodMaker, frozen=True):
    replicas: Count = 1
    ordinals: Ordinals = Ordinals()


class StatefulSetStatus(KubernetesObject, frozen=True):
    ready_replicas: Count = 0


class StatefulSet(AnyObject, frozen=True):
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


def _makes(owner: LiveObject, pod: Meta) -> bool:
    prefix, _, ordinal = pod.name.rpartition("-")
    if prefix != owner.metadata.name or not is_index(ordinal):
        return False
    start, replicas = owner.spec.ordinals.start, owner.spec.replicas
    return start <= int(ordinal) < start + (1 if replicas is None else replicas)


_SETS = WatchedObjects(
    api="/apis/apps/v1",
    plural="statefulsets",
    kind="StatefulSet",
    type=StatefulSet,
    selector=f"{TRAINING}=true",
    makes=_makes,
)
_PODS = pods_with(f"{TRAINING}=true,{INDEX}=0,!leaderworkerset.sigs.k8s.io/name")


class StatefulSetKind(JobKind):
    served = progress_of("StatefulSet", "statefulsets", "stsp")
    chains = ((_SETS, _PODS),)
    success = "Complete"  # which it never has

    def conditions(self, job: StatefulSet) -> tuple[()]:  # noqa: ARG002
        return ()

    def view(self, job: StatefulSet, parts: Parts) -> View:
        spec, ready = job.spec, job.status.ready_replicas
        start = spec.ordinals.start
        return View(
            groups=(
                Group(
                    counts=ReplicaCounts(name=GROUP, desired=spec.replicas, ready=ready),
                    held=spec.held,
                    shared=spec.shared,
                    claim=named_pod(parts.pods(_PODS, job.metadata), f"{job.metadata.name}-0"),
                ),
            ),
            leaders=(GROUP,),
            unmade=None
            if spec.replicas
            else PhaseDecision(Phase.SUSPENDED, "ScaledToZero", "It has no replicas."),
            faults=(f"Its ordinals start at {start}: only the pod of ordinal 0 is read.",) if start else (),
        )

    def all_pods(self, job: StatefulSet, parts: Parts) -> AllPods | None:  # noqa: ARG002
        def name(pod: Pod, labels: Mapping[str, str]) -> str:
            index = labels.get(INDEX, "")
            return f"{GROUP}-{index}" if pod.metadata.name == f"{job.metadata.name}-{index}" else ""

        return pods_of(job.metadata, f"{TRAINING}=true,{INDEX}", name)
