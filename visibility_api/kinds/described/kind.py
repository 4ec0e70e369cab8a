"""A kind of job that a file describes, as the built-in ones are described in code.

Expressions are evaluated once for each change of an object, when it is decoded. What they come to is kept,
and nothing else of its spec and status: a job takes no more memory than one of a built-in kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import Phase
from visibility_api.models.served import progress_of
from visibility_api.workloads.failures import Replica
from visibility_api.workloads.kind import (
    AllPods,
    Group,
    JobKind,
    LiveObject,
    Parts,
    PhaseDecision,
    View,
    WatchedObjects,
    group_of,
    pods_with,
    state_condition,
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
from visibility_api.workloads.rank0 import choose, controls, job_prefix

from .expressions import Expression, ExpressionFault, Seen
from .model import DescriptionModel, OwnerModel

BY_CONDITION = ("Succeeded", "Failed", "Suspended")
PHASES = (*BY_CONDITION, "Pending", "Initializing", "Running")
MAX_FAULTS = 4


class ReadGroup(KubernetesObject, frozen=True):
    replicas: Count | None = None
    pods: PodMaker = PodMaker()


class ReadJob(KubernetesObject, frozen=True):
    """What the expressions came to."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    conditions: tuple[ObjectCondition, ...] = ()
    owners: tuple[str, ...] = ()  # their names
    groups: tuple[ReadGroup, ...] = ()
    columns: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class _Reader:
    """Evaluates the expressions of one description."""

    def __init__(self, description: DescriptionModel) -> None:
        self._description = description
        self._parts = frozenset[str]().union(*(each.parts for each in description.expressions))

    def read(self, metadata: Meta, spec: object, status: object) -> ReadJob:
        given, faults = self._description, list[str]()
        meta = {"name": metadata.name, "namespace": metadata.namespace, "labels": metadata.labels or {}}
        seen = Seen({"metadata": meta, "spec": spec, "status": status}, self._parts)

        def value(field: str, expression: Expression | None, type_: Any) -> Any:  # noqa: ANN401
            """None where it has none of this type, which is a fault unless it is missing."""
            try:
                found = expression.evaluate(seen) if expression is not None else None
                return None if found is None else msgspec.convert(found, type_)
            except (ExpressionFault, msgspec.ValidationError, TypeError) as error:
                faults.append(f"`{field}` of kind {given.kind} has no value: {harmless(str(error)[:200])}.")
                return None

        phase = value("phase", given.phase, str) or ""
        if phase and phase not in PHASES:
            faults.append(f"`phase` of kind {given.kind} is none of {', '.join(PHASES)}.")
            phase = ""
        since = value("since", given.since, datetime)
        groups = [
            ReadGroup(
                replicas=value(f"groups.{each.name}.replicas", each.replicas, Count),
                pods=PodMaker(template=value(f"groups.{each.name}.template", each.template, PodTemplate)),
            )
            for each in given.groups
        ]
        columns = [
            value(f"columns.{each.name}", each.value, str | int | float | bool) for each in given.columns
        ]
        if not seen.is_whole:
            faults.append(f"{given.kind} is large: expressions see the first items of its lists only.")
        return ReadJob(
            phase=phase,
            reason=(value("reason", given.reason, str) or "")[:256],
            message=(value("message", given.message, str) or "")[:1024],
            since=since.replace(tzinfo=since.tzinfo or UTC) if since is not None else None,
            conditions=self._conditions(status),
            owners=tuple(
                value(f"owners.{each.kind}.name", each.name, str) or metadata.name for each in given.owners
            ),
            groups=tuple(groups),
            columns=tuple("" if each is None else str(each)[:64] for each in columns),
            faults=tuple(faults[:MAX_FAULTS]),
        )

    def _conditions(self, status: object) -> tuple[ObjectCondition, ...]:
        """Those that are named, by our own types."""
        named = self._description.conditions
        types = {named.succeeded: "Succeeded", named.failed: "Failed", named.suspended: "Suspended"}
        found = status.get("conditions") if isinstance(status, dict) else None
        kept = []
        for each in found[:100] if isinstance(found, list) else ():
            given = each.get("type") if isinstance(each, dict) else None
            if isinstance(given, str) and (type_ := types.get(given)) is not None:
                try:
                    kept.append(msgspec.convert(each | {"type": type_}, ObjectCondition))
                except msgspec.ValidationError:
                    continue
        return tuple(kept)


def _object_type(description: DescriptionModel) -> type[AnyObject]:
    reader = _Reader(description)

    class DescribedJob(AnyObject, frozen=True):
        """An object of this kind. `spec` and `status` are gone once they have been read."""

        spec: Any = None
        status: Any = None
        read: ReadJob | None = msgspec.field(default=None, name="~read")

        def __post_init__(self) -> None:
            if self.read is None or self.spec is not None or self.status is not None:
                read = reader.read(self.metadata, self.spec, self.status)
                for name, value in (("read", read), ("spec", None), ("status", None)):
                    msgspec.structs.force_setattr(self, name, value)

    return DescribedJob


def _makes(owner: LiveObject, made: Meta) -> bool:
    """Names cannot be changed, and controllers let them begin with that of what they make things for."""
    name = owner.metadata.name
    return made.name == name or made.name.startswith((f"{name}-", job_prefix(name)))


class DescribedKind(JobKind):
    success = "Succeeded"

    def __init__(self, description: DescriptionModel) -> None:
        given = self._description = description
        kind, resource = given.served_kind or given.kind, given.served_resource or given.resource
        columns = tuple(each.name for each in given.columns)
        self.served = progress_of(kind, resource, given.short_name, columns)  # type: ignore[misc]  # of this object
        self._jobs = WatchedObjects(
            api=f"/apis/{given.group}/{given.version}",
            plural=given.resource,
            kind=given.kind,
            name=resource,
            type=_object_type(given),
            makes=_makes,
            is_read=False,
        )
        self._owners = tuple(map(_watched, given.owners))
        self._pods = pods_with(given.rank0.selector)
        self.chains = ((self._jobs, *self._owners, self._pods),)  # type: ignore[misc]

    def conditions(self, job: Any) -> Sequence[ObjectCondition]:  # noqa: ANN401 - its own type
        read: ReadJob = job.read
        if read.phase not in BY_CONDITION:
            return read.conditions
        return state_condition(read.phase, read.reason or read.phase, read.message or None, read.since)

    def view(self, job: Any, parts: Parts) -> View:  # noqa: ANN401
        read: ReadJob = job.read
        first, *others = self._description.groups
        found = dict(zip((each.name for each in self._description.groups), read.groups, strict=False))

        def group(name: str, **more: Any) -> Group:  # noqa: ANN401
            each = found.get(name, ReadGroup())
            return group_of(each.pods, name, each.replicas, **more)

        leader = group(
            first.name,
            is_ready=read.phase == "Running",
            claim=choose(self._first_pods(job, parts)),
            container=self._description.rank0.container or "",
        )
        waits = Phase(read.phase) if read.phase in ("Pending", "Initializing") else None
        return View(
            groups=(leader, *(group(each.name) for each in others)),
            leaders=(first.name,),
            unmade=PhaseDecision(waits, read.reason or read.phase, read.message) if waits else None,
            columns=read.columns,
            faults=read.faults,
        )

    def _above_pods(self, job: Any, parts: Parts) -> Meta | None:  # noqa: ANN401
        """What controls the pod of rank 0."""
        owner: Meta = job.metadata
        for objects, name in zip(self._owners, job.read.owners, strict=False):
            made: MadeObject | None = parts.get(objects, name, owner)
            if made is None:
                return None
            owner = made.metadata
        return owner

    def _first_pods(self, job: Any, parts: Parts) -> Sequence[Pod]:  # noqa: ANN401
        """Those that have the name of rank 0's, and are controlled by what the chain says."""
        if (owner := self._above_pods(job, parts)) is None:
            return ()
        pattern = self._description.rank0.name.replace("{owner}", owner.name)
        return [pod for pod in parts.pods(self._pods, owner) if _is_named(pod.metadata.name, pattern)]

    def all_pods(self, job: Any, parts: Parts) -> AllPods | None:  # noqa: ANN401
        selector, owner = self._description.rank0.all_pods, self._above_pods(job, parts)
        if selector is None or owner is None:
            return None

        def replica(pod: Pod, _labels: Mapping[str, str]) -> Replica | None:
            return Replica(name=pod.metadata.name) if controls(owner, pod.metadata) else None

        return AllPods(selector.replace("{job}", job.metadata.name), replica)


def _is_named(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        prefix = pattern[:-1]
        return name.startswith((prefix, job_prefix(prefix.removesuffix("-"))))
    return name == pattern


def _watched(owner: OwnerModel) -> WatchedObjects:
    api = f"/apis/{owner.group}/{owner.version}"
    return WatchedObjects(
        api=api,
        plural=owner.resource,
        kind=owner.kind,
        type=MadeObject,
        selector=owner.selector,
        makes=_makes,
    )
