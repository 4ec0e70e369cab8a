"""The kinds of jobs: one file each, those of one operator together, and one line in `KINDS`.

What a kind must say is in `workloads/kind.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from visibility_api.models.served import TRAINING_JOBS, Resource
from visibility_api.workloads.kind import JobKind, WatchedObjects
from visibility_api.workloads.presence import Presence

from .batchjob import BatchJobKind
from .jobset import JobSetKind
from .leaderworkerset import LeaderWorkerSetKind
from .mpijob import MPIJobKind
from .operator_kinds import JAX, PADDLE, PYTORCH, TF, XGBOOST
from .pod import PodKind
from .rayjob import RayJobKind
from .statefulset import StatefulSetKind
from .trainjob import TrainJobKind
from .volcanojob import VolcanoJobKind


class Kinds:
    """Those that are served at one time, and what is watched for them. Never changed."""

    def __init__(self, kinds: Sequence[JobKind]) -> None:
        self.kinds = tuple(kinds)
        self.resources = tuple(kind.served for kind in kinds)
        self.all_resources = (*self.resources, TRAINING_JOBS)
        self.by_resource: Mapping[str, JobKind] = {kind.served.plural: kind for kind in kinds}
        users: dict[WatchedObjects, dict[JobKind, None]] = {}
        for kind in kinds:
            for chain in kind.chains:
                for objects in chain:
                    users.setdefault(objects, {})[kind] = None
        # The resources whose jobs are joined from a collection.
        self.users: Mapping[WatchedObjects, frozenset[str]] = {
            objects: frozenset(kind.served.plural for kind in found) for objects, found in users.items()
        }
        # Names of all that is watched.
        self.collections = tuple(dict.fromkeys(objects.shown_as for objects in users))
        # Whose presence is asked for: all that a CRD may be missing of.
        self.asked = tuple(
            objects for kind in kinds for objects in kind.own if not kind.is_assumed or "." in objects.api
        )
        # Of what is watched only for kinds that may be absent: the jobs of these kinds.
        self.needed: Mapping[WatchedObjects, Sequence[WatchedObjects]] = {
            objects: tuple(
                dict.fromkeys(chain[0] for kind in found for chain in kind.chains if objects in chain)
            )
            for objects, found in users.items()
            if not any(kind.is_assumed for kind in found)
        }
        # Those without which no kind would be served; whether the others are watched is only noted.
        self.required = tuple(dict.fromkeys(each.shown_as for each in users if each not in self.needed))


KINDS: tuple[JobKind, ...] = (
    TrainJobKind(),
    JobSetKind(),
    BatchJobKind(),
    PYTORCH,
    TF,
    MPIJobKind(),
    XGBOOST,
    PADDLE,
    JAX,
    RayJobKind(),
    LeaderWorkerSetKind(),
    VolcanoJobKind(),
    StatefulSetKind(),
    PodKind(),
)

BUILT_IN = Kinds(KINDS)
RESOURCES, ALL_RESOURCES = BUILT_IN.resources, BUILT_IN.all_resources
ASKED, NEEDED, USERS = BUILT_IN.asked, BUILT_IN.needed, BUILT_IN.users
BY_RESOURCE = BUILT_IN.by_resource
WITH_TRAINER_STATUS = frozenset(name for name, kind in BY_RESOURCE.items() if kind.has_trainer_status)


def served(presence: Presence, kinds: Kinds = BUILT_IN) -> tuple[Resource, ...]:
    """The resources of the kinds that exist in this cluster, and that of all kinds."""
    found = [kind.served for kind in kinds.kinds if kind.is_assumed or any(map(presence.is_served, kind.own))]
    return tuple(dict.fromkeys((*found, TRAINING_JOBS)))


def is_absent(presence: Presence, resource: str, kinds: Kinds = BUILT_IN) -> bool:
    """Whether kube-apiserver said that it does not serve the kind of this resource."""
    kind = kinds.by_resource.get(resource)
    return kind is not None and not kind.is_assumed and all(map(presence.is_absent, kind.own))


def missing_operator(presence: Presence, resource: str, kinds: Kinds = BUILT_IN) -> str | None:
    """Why this resource, which is served in any case, has no jobs: the CRD of its kind is missing."""
    kind = kinds.by_resource.get(resource)
    if kind is None or not kind.is_assumed or not all(map(presence.is_absent, kind.own)):
        return None
    group = kind.own[0].api.removeprefix("/apis/")
    return f"this cluster does not serve {kind.own[0].plural} of {group}: is their operator installed?"


def own_objects(resource: str) -> WatchedObjects:
    """The jobs themselves, of the kind that is served as this resource."""
    return BY_RESOURCE[resource].own[0]
