"""The kinds of jobs: one file each, and one line in `KINDS`.

What a kind must say is in `workloads/kind.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from visibility_api.models.served import TRAINING_JOBS, Resource
from visibility_api.workloads.kind import JobKind, WatchedObjects
from visibility_api.workloads.presence import Presence

from .batchjob import BatchJobKind
from .jaxjob import JAXJobKind
from .jobset import JobSetKind
from .leaderworkerset import LeaderWorkerSetKind
from .mpijob import MPIJobKind
from .paddlejob import PaddleJobKind
from .pod import PodKind
from .pytorchjob import PyTorchJobKind
from .rayjob import RayJobKind
from .statefulset import StatefulSetKind
from .tfjob import TFJobKind
from .trainjob import TrainJobKind
from .volcanojob import VolcanoJobKind
from .xgboostjob import XGBoostJobKind

KINDS: tuple[JobKind, ...] = (
    TrainJobKind(),
    JobSetKind(),
    BatchJobKind(),
    PyTorchJobKind(),
    TFJobKind(),
    MPIJobKind(),
    XGBoostJobKind(),
    PaddleJobKind(),
    JAXJobKind(),
    RayJobKind(),
    LeaderWorkerSetKind(),
    VolcanoJobKind(),
    StatefulSetKind(),
    PodKind(),
)

RESOURCES = tuple(kind.served for kind in KINDS)
ALL_RESOURCES = (*RESOURCES, TRAINING_JOBS)
# Names of all that is watched.
COLLECTIONS = tuple(
    dict.fromkeys(objects.shown_as for kind in KINDS for chain in kind.chains for objects in chain)
)
# The resources whose jobs are joined from a collection.
USERS: Mapping[WatchedObjects, frozenset[str]] = MappingProxyType(
    {
        objects: frozenset(
            kind.served.plural for kind in KINDS if any(objects in chain for chain in kind.chains)
        )
        for kind in KINDS
        for chain in kind.chains
        for objects in chain
    }
)
BY_RESOURCE: Mapping[str, JobKind] = MappingProxyType({kind.served.plural: kind for kind in KINDS})
WITH_TRAINER_STATUS = frozenset(name for name, kind in BY_RESOURCE.items() if kind.has_trainer_status)


def _roots() -> Mapping[WatchedObjects, Sequence[WatchedObjects]]:
    found: dict[WatchedObjects, dict[WatchedObjects, JobKind]] = {}
    for kind in KINDS:
        for chain in kind.chains:
            for objects in chain:
                found.setdefault(objects, {})[chain[0]] = kind
    return {
        objects: tuple(roots)
        for objects, roots in found.items()
        if not any(kind.is_assumed for kind in roots.values())
    }


# Whose presence is asked for.
OPTIONAL = tuple(objects for kind in KINDS if not kind.is_assumed for objects in kind.own)
# Of what is watched only for kinds that may be absent: the jobs of these kinds.
NEEDED = _roots()
# Those without which no kind would be served; whether the others are watched is only noted.
REQUIRED = tuple(dict.fromkeys(objects.shown_as for objects in USERS if objects not in NEEDED))


def served(presence: Presence) -> tuple[Resource, ...]:
    """The resources of the kinds that exist in this cluster, and that of all kinds."""
    found = [kind.served for kind in KINDS if kind.is_assumed or any(map(presence.is_served, kind.own))]
    return tuple(dict.fromkeys((*found, TRAINING_JOBS)))


def is_absent(presence: Presence, resource: str) -> bool:
    """Whether kube-apiserver said that it does not serve the kind of this resource."""
    kind = BY_RESOURCE.get(resource)
    return kind is not None and not kind.is_assumed and all(map(presence.is_absent, kind.own))


def own_objects(resource: str) -> WatchedObjects:
    """The jobs themselves, of the kind that is served as this resource."""
    return BY_RESOURCE[resource].own[0]
