"""The kinds of jobs: one file each, and one line in `KINDS`.

What a kind must say is in `workloads/kind.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from visibility_api.workloads.kind import JobKind, WatchedObjects

from .trainjob import TrainJobKind

KINDS: tuple[JobKind, ...] = (TrainJobKind(),)

RESOURCES = tuple(kind.served for kind in KINDS)
# Of all that is watched.
PLURALS = tuple(dict.fromkeys(objects.plural for kind in KINDS for chain in kind.chains for objects in chain))
BY_RESOURCE: Mapping[str, JobKind] = MappingProxyType({kind.served.plural: kind for kind in KINDS})
WITH_TRAINER_STATUS = frozenset(name for name, kind in BY_RESOURCE.items() if kind.has_trainer_status)


def own_objects(resource: str) -> WatchedObjects:
    """The jobs themselves, of the kind that is served as this resource."""
    return BY_RESOURCE[resource].own
