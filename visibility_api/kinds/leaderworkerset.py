"""LeaderWorkerSets: groups of pods, of which the first one's leader is rank 0.

By github.com/kubernetes-sigs/lws: api/leaderworkerset/v1/leaderworkerset_types.go (fields, labels),
pkg/controllers/leaderworkerset_controller.go (the leaders are a StatefulSet of the set's own name, which the
set controls), pkg/webhooks/pod_webhook.go (the index of a leader's group, as a label). They never complete.
"""

from __future__ import annotations

from collections.abc import Mapping

from visibility_api.jobs.job import Phase
from visibility_api.models.served import progress_of
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.kind import (
    AllPods,
    JobKind,
    Makers,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
    group_of,
    made_with,
    pods_with,
)
from visibility_api.workloads.objects import (
    AnyObject,
    Count,
    KubernetesObject,
    MadeObject,
    Meta,
    ObjectCondition,
    Pod,
    PodMaker,
    PodTemplate,
)
from visibility_api.workloads.rank0 import named_pod

LABEL = "leaderworkerset.sigs.k8s.io/"
API = "/apis/leaderworkerset.x-k8s.io/v1"


class LeaderWorkerTemplate(KubernetesObject, frozen=True):
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate | None = None
    size: Count = 1


class LeaderWorkerSetSpec(KubernetesObject, frozen=True):
    replicas: Count = 1
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSetStatus(KubernetesObject, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None
    ready_replicas: Count = 0  # groups


class LeaderWorkerSet(AnyObject, frozen=True):
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()
    status: LeaderWorkerSetStatus | None = None


_SETS = WatchedObjects(
    api=API,
    plural="leaderworkersets",
    kind="LeaderWorkerSet",
    type=LeaderWorkerSet,
    makes=lambda lws, leaders: leaders.name == lws.metadata.name,
    is_read=False,
)
_LEADERS = made_with(
    "/apis/apps/v1",
    "statefulsets",
    "StatefulSet",
    f"{LABEL}name",
    lambda leaders, pod: pod.name.rpartition("-")[0] == leaders.metadata.name,
)
_PODS = pods_with(f"{LABEL}name,{LABEL}worker-index=0,{LABEL}group-index=0")


class LeaderWorkerSetKind(JobKind):
    served = progress_of("LeaderWorkerSet", "leaderworkersets", "lwsp")
    chains = ((_SETS, _LEADERS, _PODS),)
    success = "Complete"  # which it never has

    def view(self, job: LeaderWorkerSet, parts: Parts) -> View:
        name, template = job.metadata.name, job.spec.leader_worker_template
        leaders: MadeObject | None = parts.get(_LEADERS, name, job.metadata)
        pods = parts.pods(_PODS, leaders.metadata) if leaders is not None else ()
        leader = PodMaker(template=template.leader_template or template.worker_template)
        worker = PodMaker(template=template.worker_template)
        groups, size = job.spec.replicas, template.size
        ready = job.status.ready_replicas if job.status else 0
        claim = named_pod(pods, f"{name}-0")
        return View(
            groups=(
                group_of(leader, "leader", groups, is_ready=ready > 0, claim=claim),
                group_of(worker, "worker", groups * max(0, size - 1)),
            ),
            leaders=("leader",),
            unmade=None if groups else PhaseDecision(Phase.SUSPENDED, "ScaledToZero", "It has no replicas."),
        )

    def all_pods(self, job: LeaderWorkerSet, parts: Parts) -> AllPods | None:
        """Workers belong to StatefulSets of the leaders' names, which the leaders' pods control."""
        name = job.metadata.name
        leaders: MadeObject | None = parts.get(_LEADERS, name, job.metadata)
        if leaders is None:
            return None
        groups = {leaders.metadata.uid: name}  # names of the StatefulSets, by uid

        def note(workers: Meta) -> None:
            leader = workers.controller
            if leader is not None and (leader.kind, leader.name) == ("Pod", workers.name):
                groups[workers.uid] = workers.name

        def replica(pod: Pod, _labels: Mapping[str, str]) -> Replica | None:
            owner, (prefix, _, index) = pod.metadata.controller, pod.metadata.name.rpartition("-")
            if owner is None or groups.get(owner.uid) != prefix or not index.isdecimal():
                return None
            if prefix == name:
                return Replica(name=f"leader-{index}")
            head, _, group = prefix.rpartition("-")
            return Replica(name=f"worker-{group}-{index}") if head == name else None

        selector = f"{LABEL}name={name}"
        return AllPods(selector, replica, Makers(_LEADERS, selector, note))
