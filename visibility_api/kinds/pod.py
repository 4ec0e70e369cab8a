"""Single pods that carry a label of ours: training without an operator.

A pod counts with the label `TRAINING`, unless another label says that it is one of many of a controller:
those are parts of a job, or of a Deployment. A pod that something else owns counts, such as a workflow's.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

from visibility_api.models.served import progress_of
from visibility_api.workloads.kind import (
    AllPods,
    JobKind,
    Parts,
    View,
    WatchedObjects,
    group_of,
    state_condition,
)
from visibility_api.workloads.objects import (
    AnyObject,
    Container,
    ObjectCondition,
    Pod,
    PodMaker,
    PodSpec,
    PodStatus,
    PodTemplate,
    PodTemplateSpec,
    ResourceAmounts,
    ResourceClaim,
    TemplateContainer,
)
from visibility_api.workloads.rank0 import choose

from .batchjob import TRAINING

GROUP = "pod"
# Labels of the pods of Jobs, StatefulSets, Deployments, and of each operator whose kinds are served.
MADE = (
    "batch.kubernetes.io/job-name",
    "apps.kubernetes.io/pod-index",
    "pod-template-hash",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "leaderworkerset.sigs.k8s.io/name",
)


class TrainingContainer(Container, frozen=True):
    resources: ResourceAmounts | None = None


class TrainingPodSpec(PodSpec, frozen=True):
    containers: tuple[TrainingContainer, ...] = ()
    init_containers: tuple[TemplateContainer, ...] | None = None
    resource_claims: tuple[ResourceClaim, ...] | None = None

    @property
    def maker(self) -> PodMaker:
        """As the template of other kinds' pods."""
        containers = tuple(TemplateContainer(resources=each.resources) for each in self.containers)
        spec = PodTemplateSpec(
            containers=containers,
            init_containers=self.init_containers,
            resource_claims=self.resource_claims,
        )
        return PodMaker(template=PodTemplate(spec=spec))


class TrainingPod(AnyObject, frozen=True):
    """A pod with all its labels, which the job shows."""

    spec: TrainingPodSpec = TrainingPodSpec()
    status: PodStatus = PodStatus()


_PODS = WatchedObjects(
    api="/api/v1",
    plural="pods",
    kind="Pod",
    type=TrainingPod,
    selector=",".join((f"{TRAINING}=true", *(f"!{label}" for label in MADE))),
)


class PodKind(JobKind):
    served = progress_of("Pod", "pods", "podp")
    chains = ((_PODS,),)
    success = "Succeeded"

    def conditions(self, job: TrainingPod) -> tuple[ObjectCondition, ...]:
        status = job.status
        if status.phase not in ("Succeeded", "Failed"):
            return ()
        return state_condition(
            status.phase, status.reason or f"Pod{status.phase}", status.message, _ended_at(status)
        )

    def view(self, job: TrainingPod, parts: Parts) -> View:  # noqa: ARG002
        claim = choose([cast("Pod", job)])
        return View(groups=(group_of(job.spec.maker, GROUP, 1, claim=claim),), leaders=(GROUP,))

    def all_pods(self, job: TrainingPod, parts: Parts) -> AllPods | None:  # noqa: ARG002
        return None  # it is watched itself


def _ended_at(status: PodStatus) -> datetime | None:
    """When its last container ended."""
    ended = [each.state.terminated for each in status.container_statuses or ()]
    return max((each.finished_at for each in ended if each is not None and each.finished_at), default=None)
