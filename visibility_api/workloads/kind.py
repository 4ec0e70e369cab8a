"""What the server knows of one kind of job. Each kind is a file in `kinds/`; everything else asks it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Phase, Replica as ReplicaCounts, TrainingJob
from visibility_api.models.served import Resource
from visibility_api.reports.trainer_status import TrainerStatus

from .failures import Replica
from .objects import RESTART_ATTEMPT, BatchJob, Count, MadeObject, Meta, ObjectCondition, Pod, PodMaker
from .rank0 import COMPLETION_INDEX, Claim, controls, is_generated, pod_prefix

T = TypeVar("T")
INDEXED = "Indexed"  # a Job's completion mode
MAX_GROUPS = 64  # of one job: an object may be 1.5 MiB long, and every document has all its groups


class LiveJob(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of `spec.replicatedJobs` of a JobSet."""

    name: str = ""
    replicas: int = 1


class Ordinals(msgspec.Struct, frozen=True, gc=False):
    """Of a StatefulSet."""

    start: Count = 0


class LiveSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The fields that say which names a controller gives to what it makes."""

    completions: int | None = None
    completion_mode: str | None = None
    replicated_jobs: tuple[LiveJob, ...] | None = None
    replicas: int | None = None
    ordinals: Ordinals = Ordinals()


class LiveStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class LiveLabels(msgspec.Struct, frozen=True, gc=False):
    """Those that say which pod it is; a tenant may give an object a megabyte of others."""

    restart_attempt: str = msgspec.field(default="", name=RESTART_ATTEMPT)
    completion_index: str = msgspec.field(default="", name=COMPLETION_INDEX)


class LiveMeta(Meta, frozen=True):
    labels: LiveLabels | None = None  # type: ignore[assignment]  # in the place of a dictionary of all
    annotations: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]  # passed over

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "annotations", msgspec.Raw())

    def label(self, key: str) -> str:
        if self.labels is None:
            return ""
        return {
            RESTART_ATTEMPT: self.labels.restart_attempt,
            COMPLETION_INDEX: self.labels.completion_index,
        }.get(key, "")


class LiveObject(msgspec.Struct, frozen=True, gc=False):
    """An object as kube-apiserver shows it at this moment, when the owner of a pod is looked up."""

    metadata: LiveMeta
    spec: LiveSpec = LiveSpec()
    status: LiveStatus = LiveStatus()


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def is_index(text: str) -> bool:
    """Whether a controller writes a number so."""
    return _INDEX.fullmatch(text) is not None


def makes_pod(job: LiveObject, pod: Meta) -> bool:
    """Whether the Job controller gives this name and index to a pod of this Job."""
    if job.spec.completion_mode != INDEXED:
        return True
    index = pod.label(COMPLETION_INDEX)
    return (
        is_index(index)
        and int(index) < (job.spec.completions or 0)
        and is_generated(pod.name, pod_prefix(job.metadata.name, int(index)))
    )


def makes_indexed_pod(job: LiveObject, pod: Meta) -> bool:
    """Whether the name is `<job>-<group>-<index>`. `is_within_groups` bounds the index."""
    group, _, index = pod.name.removeprefix(f"{job.metadata.name}-").rpartition("-")
    return group != "" and pod.name == f"{job.metadata.name}-{group}-{index}" and is_index(index)


def is_within_groups(job: TrainingJob, pod_name: str) -> bool:
    """Whether `<job>-<group>-<index>` is one of the replicas that the job has."""
    group, _, index = pod_name.removeprefix(f"{job.ref.name}-").rpartition("-")
    return is_index(index) and any(
        each.name == group and (each.desired is None or int(index) < each.desired) for each in job.replicas
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchedObjects:
    """Objects of one kind that are watched: of a job itself, or of what is made for it.

    Each has the metadata of `Meta` or `PartMeta`.
    """

    api: str  # the path of its group and version
    plural: str
    kind: str  # as owner references name it
    type: type[Any]
    selector: str = ""  # by labels
    name: str = ""  # in checks and metrics; "": its plural
    # Whether the controller of an object of this kind gives this name to what it makes. Names are unique, so
    # what can be forged is at most a second pod of an index.
    makes: Callable[[LiveObject, Meta], bool] = lambda _owner, _made: True
    # Whether `makes` needs more than the owner's name, so that it must be read.
    is_read: bool = True

    @property
    def shown_as(self) -> str:
        """In the names of checks and in metrics."""
        return self.name or self.plural

    def path(self, namespace: str | None) -> str:
        """Of all objects, or of those in one namespace."""
        return f"{self.api}/{self.plural}" if namespace is None else self.in_namespace(namespace)

    def in_namespace(self, namespace: str) -> str:
        return f"{self.api}/namespaces/{namespace}/{self.plural}"

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return self.api.removeprefix("/apis/").removeprefix("/api/")


def pods_with(selector: str) -> WatchedObjects:
    """The pods with these labels."""
    return WatchedObjects(api="/api/v1", plural="pods", kind="Pod", type=Pod, selector=selector)


def jobs_with(selector: str, makes: Callable[[LiveObject, Meta], bool] = makes_pod) -> WatchedObjects:
    """The Jobs with these labels, on the way from a job to its pods."""
    return WatchedObjects(
        api="/apis/batch/v1", plural="jobs", kind="Job", type=BatchJob, selector=selector, makes=makes
    )


def made_with(
    api: str, plural: str, kind: str, selector: str, makes: Callable[[LiveObject, Meta], bool]
) -> WatchedObjects:
    """What else stands between a job and its pods, and has these labels."""
    return WatchedObjects(api=api, plural=plural, kind=kind, type=MadeObject, selector=selector, makes=makes)


def state_condition(
    type_: str, reason: str, message: str | None = None, since: datetime | None = None
) -> tuple[ObjectCondition, ...]:
    """The one condition of a job whose status has a state and no conditions."""
    return (
        ObjectCondition(
            type=type_, status="True", reason=reason, message=message, last_transition_time=since
        ),
    )


class Parts(Protocol):
    """What is watched of one job, in its namespace."""

    def get(self, objects: WatchedObjects, name: str, owner: Meta) -> Any:  # noqa: ANN401 - of objects.type
        """The object of this name; None if there is none, or `owner` does not control it."""
        ...

    def pods(self, objects: WatchedObjects, owner: Meta) -> Sequence[Pod]:
        """The pods that `owner` controls, by their own words: the caller checks their names."""
        ...


class Group(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One replica group of a job."""

    counts: ReplicaCounts
    held: Mapping[str, int] | None = None  # accelerators that one pod requests, by name
    shared: Mapping[str, int] | None = None  # those that all its pods share
    is_initializer: bool = False
    # By the job's own status: all of it is ready, or at least a part is active.
    is_ready: bool = False
    is_active: bool = False
    claim: Claim | None = None  # the pod of index 0, of the groups that are watched
    container: str = ""  # that trains, by the convention of the kind; "": the pod's default, or its first one
    restart_attempt: int = 0  # of the job, when the pod's owner was made
    failures: tuple[Failure, ...] = ()  # which its controller shows
    unread: tuple[str, str] | None = None  # an object on the way to its pod that could not be read, and why

    @property
    def name(self) -> str:
        return self.counts.name


def group_of(pods: PodMaker, name: str, desired: int | None, **more: Any) -> Group:  # noqa: ANN401 - of Group
    """A group of so many pods of this template."""
    counts = ReplicaCounts(name=name, desired=desired)
    return Group(counts=counts, held=pods.held, shared=pods.shared, **more)


class PhaseDecision(msgspec.Struct, frozen=True, gc=False):
    phase: Phase
    reason: str
    message: str
    since: datetime | None = None  # by the condition that decides it


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a job's objects show, in terms that all kinds have in common."""

    groups: tuple[Group, ...] = ()
    leaders: tuple[str, ...] = ()  # names of the groups that may hold rank 0, the most likely one first
    is_suspended: bool = False  # by its spec
    manager: str = ""  # who runs it elsewhere (MultiKueue), so that its pods are in another cluster
    trainer_status: TrainerStatus | None = None
    # Counts, unlike the conditions, where nothing says more: nothing is made, it starts, it restarts.
    unmade: PhaseDecision | None = None
    starting: PhaseDecision | None = None
    restarting: PhaseDecision | None = None
    columns: tuple[str, ...] = ()  # of the kind's own, in the order of `served.columns`
    faults: tuple[str, ...] = ()  # sentences on why what is read may not be rank 0's
    unread: tuple[str, str] | None = None  # an object between the job and its groups, as in `Group`


class Makers(msgspec.Struct, frozen=True, gc=False):
    """Objects that control pods of a job and are not watched. They are listed before the pods."""

    objects: WatchedObjects
    selector: str  # by labels
    note: Callable[[Meta], None]  # is called with each


class AllPods(msgspec.Struct, frozen=True, gc=False):
    """How all pods of a job are found, not only those that are watched."""

    selector: str  # by labels
    # Which replica a pod with these labels is; None: it is not the job's. Every creator of pods may write
    # labels, so owner and name must agree with them.
    replica: Callable[[Pod, Mapping[str, str]], Replica | None]
    makers: Makers | None = None


def pods_of(owner: Meta, selector: str, name: Callable[[Pod, Mapping[str, str]], str]) -> AllPods:
    """Those that `owner` controls. `name`: of the replica, by the pod and its labels; "": it is none."""

    def replica(pod: Pod, labels: Mapping[str, str]) -> Replica | None:
        found = name(pod, labels) if controls(owner, pod.metadata) else ""
        return Replica(name=found) if found else None

    return AllPods(selector, replica)


def pods_by_index(job: Meta, selector: str, group: str, index: str) -> AllPods:
    """Those that the job itself controls and that are called `<job>-<group>-<index>`. `group`, `index`: their
    labels."""

    def name(pod: Pod, labels: Mapping[str, str]) -> str:
        found = f"{labels.get(group, '')}-{labels.get(index, '')}"
        return found if pod.metadata.name == f"{job.name}-{found}" else ""

    return pods_of(job, f"{selector}={job.name}", name)


class JobKind(ABC):
    """One kind of job, such as TrainJob. Each is a file in `kinds/`."""

    served: ClassVar[Resource]
    # From the job's own objects down to the pods that may hold rank 0, each the controller of the next.
    chains: ClassVar[tuple[tuple[WatchedObjects, ...], ...]]
    success: ClassVar[str]  # the type of the condition that says so
    controllers: ClassVar[Sequence[str]] = ()  # values of `spec.managedBy` for those in this cluster
    has_trainer_status: ClassVar[bool] = False  # its CRD has `status.trainerStatus`, for --write-back
    is_assumed: ClassVar[bool] = False  # served and watched whether or not kube-apiserver knows it

    @cached_property
    def own(self) -> tuple[WatchedObjects, ...]:
        """The jobs themselves; more than one where their API has several versions."""
        return tuple(dict.fromkeys(chain[0] for chain in self.chains))

    @property
    def name(self) -> str:
        """Such as TrainJob."""
        return self.own[0].kind

    def conditions(self, job: Any) -> Sequence[ObjectCondition]:  # noqa: ANN401 - of its own type
        """Those of the job's own status, among them Failed, Suspended, and `success`."""
        return (job.status.conditions if job.status else None) or ()

    def manager(self, managed_by: str | None) -> str:
        """Who runs the job in another cluster, by its `managedBy`; "": nobody does."""
        return "" if managed_by is None or managed_by in self.controllers else managed_by

    def has_replica(self, job: TrainingJob, pod_name: str) -> bool:  # noqa: ARG002
        """Whether the job has a replica of this name now, where `makes` does not bound the index."""
        return True

    @abstractmethod
    def view(self, job: Any, parts: Parts) -> View:  # noqa: ANN401
        """What its objects show. Objects with another controller are not the job's."""

    @abstractmethod
    def all_pods(self, job: Any, parts: Parts) -> AllPods | None:  # noqa: ANN401
        """How to find them; None when there are none to find."""
