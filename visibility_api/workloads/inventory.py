"""Every job of the cluster, joined from the watches of its own objects and of what is made for it.

A change is applied without an `await`, so no reader sees half of it. A list is applied job by job, and lets
other tasks run in between: each job is consistent at any time. All jobs together are not, and could not be,
because collections are never listed at the same moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Progress, Refusal
from visibility_api.reports.trainer_status import TrainerStatus, fit
from visibility_api.store import ChangeType

from .description import describe_job
from .kind import AllPods, JobKind, WatchedObjects
from .object_cache import Key, ObjectCache, Owner, PodCache, key_of
from .objects import AnyObject, Meta, OwnerReference, Pod
from .phase import true_condition
from .rank0 import controls, is_made_before
from .upstream_documents import Elsewhere

log = structlog.get_logger("visibility.inventory")

STATUS = "status"  # the source of what a job's own status reports

_NOTHING: Mapping[str, str] = MappingProxyType({})

Scope = str | None
But = Container[str]
Job = tuple[JobKind, Key]


class Inventory:
    """Joins objects by the uid of their owners, down to pods.

    `on_job` is called with each job that is new or has changed and the report in its status, if there is one;
    `on_gone` with each job that has been deleted. `elsewhere` says how another cluster shows a job.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind],
        *,
        on_job: Callable[[TrainingJob, Observation | None], None],
        on_gone: Callable[[JobRef], None],
        elsewhere: Callable[[JobRef], Elsewhere | None] = lambda _ref: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._on_job = on_job
        self._elsewhere = elsewhere
        self._on_gone = on_gone
        self._now = now
        self._kinds = {kind.served.plural: kind for kind in kinds}
        self._own = {objects: kind for kind in kinds for objects in kind.own}
        # Of each collection, the collections whose objects may control its own, by their kind.
        self._owners: dict[WatchedObjects, dict[str, WatchedObjects]] = {}
        self._caches: dict[WatchedObjects, ObjectCache[Any]] = {}
        for kind in kinds:
            for chain in kind.chains:
                for objects in chain:
                    self._owners.setdefault(objects, {})
                for owner, owned in pairwise(chain):
                    self._owners[owned][owner.kind] = owner
        self._users = {
            objects: [kind for kind in kinds if any(objects in chain for chain in kind.chains)]
            for objects in self._owners
        }
        # What makes objects of this kind for its own jobs: those are no jobs.
        self._makers: dict[str, set[str]] = {}
        for objects, owners in self._owners.items():
            self._makers.setdefault(objects.kind, set()).update(owners)
            make = PodCache if objects.type is Pod else ObjectCache  # a pod that is a job has no parts
            self._caches[objects] = make(objects.type, is_own=objects in self._own, owner_kinds=owners)
        self._listed: dict[Scope, set[WatchedObjects]] = {}
        self._complete: set[tuple[str, Scope]] = set()  # resources and scopes of which everything is listed
        # By resource, then key: a tuple of both would take 54 bytes more for each job.
        self._known: dict[str, dict[Key, TrainingJob]] = {kind.served.plural: {} for kind in kinds}
        self._reports: dict[tuple[str, Key], Progress] = {}  # of those jobs whose status has one
        # By their runs, of jobs whose initializers run.
        self._said: dict[tuple[str, Key], Mapping[str, str]] = {}

    @property
    def collections(self) -> Sequence[WatchedObjects]:
        """What is to be watched."""
        return tuple(self._caches)

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def __contains__(self, ref: object) -> bool:
        """Whether this very job exists, as far as is known."""
        return isinstance(ref, JobRef) and (known := self._known_job(ref)) is not None and known.ref == ref

    async def list(
        self, objects: WatchedObjects, found: AsyncIterable[Any], scope: Scope = None, but: But = ()
    ) -> None:
        """Apply a list: of one namespace; without `scope` of the whole cluster, but for those of `but`.

        It comes again whenever a watch has expired; only the jobs that it changes are evaluated again. Events
        of the same watch wait meanwhile; those of others may arrive in between. Each object is applied at
        once, because it is newer than what is known; a list that fails in between does no harm.
        """
        cache, listed = self._caches[objects], set()
        async for object_ in found:
            listed.add(key_of(object_))
            self.change(objects, "MODIFIED", object_)
        async for key in in_slices(cache.keys(scope)):
            if key not in listed and key[0] not in but:
                self._refresh(self._jobs_of(objects, key, cache.drop(key) or (), is_part=False))
        listed_of = self._listed.setdefault(scope, set())
        if objects in listed_of:
            return
        listed_of.add(objects)
        for kind in self._kinds.values():
            needed = {each for chain in kind.chains for each in chain}
            if objects in needed and needed <= listed_of:
                self._complete.add((kind.served.plural, scope))
                keys = [key for own in kind.own for key in self._caches[own].keys(scope)]
                async for key in in_slices(keys):
                    self._refresh(((kind, key),))

    def change(self, objects: WatchedObjects, change: ChangeType, object_: AnyObject) -> None:
        """Apply one event of a watch."""
        cache, key = self._caches[objects], key_of(object_)
        try:
            affected = cache.drop(key) if change == "DELETED" else cache.put(key, object_)
        except Exception as error:  # a number beyond 64 bits: what is known of it is outdated
            _log_fault(key, error)
            affected = cache.drop(key)
        if affected is not None and any(self._is_listed(kind, key[0]) for kind in self._users[objects]):
            is_part = change != "DELETED" and self._is_part(objects, object_.metadata.controller)
            self._refresh(self._jobs_of(objects, key, affected, is_part=is_part))

    def __iter__(self) -> Iterator[tuple[TrainingJob, Observation | None]]:
        """Every job that is known, and the report in its status."""
        for resource, known in self._known.items():
            for key, job in list(known.items()):
                yield job, self._observation(job.ref, self._reports.get((resource, key)))

    def find(self, ref: JobRef) -> tuple[TrainingJob, Observation | None] | None:
        """This very job as it is known, and the report in its status."""
        job = self._known_job(ref)
        if job is None or job.ref != ref:
            return None
        return job, self._observation(ref, self._reports.get(_id(ref)))

    def initializers_said(self, ref: JobRef, said: Mapping[str, str]) -> None:
        """What the initializers of this job have printed of their progress, by their runs."""
        known = self._known_job(ref)
        if known is not None and known.ref == ref and known.initializers:
            self._said[_id(ref)] = said
            self._refresh(((self._kinds[ref.resource], _id(ref)[1]),))

    def shown_elsewhere(self, resource: str, key: Key) -> None:
        """Another cluster shows this job otherwise than before."""
        known = self._known.get(resource, {}).get(key)
        if known is not None and known.runs_elsewhere:
            self._refresh(((self._kinds[resource], key),))

    def _known_job(self, ref: JobRef) -> TrainingJob | None:
        return self._known.get(ref.resource, {}).get((ref.namespace, ref.name))

    def all_pods(self, ref: JobRef) -> AllPods | None:
        """How to find all pods of this job; None if there are none."""
        kind, key = self._kinds[ref.resource], (ref.namespace, ref.name)
        _, source = self._find(kind, key)
        if source is None or source.metadata.uid != ref.uid:
            return None
        return kind.all_pods(source, _Parts(self._caches, ref.namespace))

    def _is_listed(self, kind: JobKind, namespace: str) -> bool:
        """Whether all that jobs of this kind are joined from is listed there.

        Until then a job could be published without its pod, published four times, and taken for one that
        cannot be probed. Nothing is served before that anyway.
        """
        resource = kind.served.plural
        return (resource, None) in self._complete or (resource, namespace) in self._complete

    def _jobs_of(
        self, objects: WatchedObjects, key: Key, affected: Sequence[Owner], *, is_part: bool
    ) -> Iterator[Job]:
        """The jobs to evaluate again: the object itself, if it may be one, and what its owners belong to."""
        kind = self._own.get(objects)
        if kind is not None and (not is_part or key in self._known[kind.served.plural]):
            yield kind, key
        for owner_kind, name in affected:
            owner = self._owners[objects].get(owner_kind)
            if owner is not None:
                above = (key[0], name)
                # What has no owners here need not be unpacked to find them.
                owners = self._caches[owner].owners(above) if self._owners[owner] else ()
                is_made = bool(owners) and owners[0][0] in self._makers[owner.kind]
                yield from self._jobs_of(owner, above, owners, is_part=is_made)

    def _refresh(self, jobs: Iterable[Job]) -> None:
        for kind, key in jobs:
            try:
                self._refresh_one(kind, key)
            except Exception as error:
                # One job must not end the process for all others: while no replica answers, no namespace of
                # the cluster finishes deleting (decision 0005). The error's text may quote the object.
                _log_fault(key, error)

    def _refresh_one(self, kind: JobKind, key: Key) -> None:
        if not self._is_listed(kind, key[0]):
            return
        id_, known = (kind.served.plural, key), self._known[kind.served.plural]
        before = known.get(key)
        own, source = self._find(kind, key)
        if source is not None and self._is_part(own, source.metadata.controller):
            source = None
        if before is not None and (source is None or source.metadata.uid != before.ref.uid):
            del known[key]
            self._reports.pop(id_, None)
            self._said.pop(id_, None)
            self._on_gone(before.ref)
            before = None
        if source is None:
            return
        end = true_condition(conditions := kind.conditions(source), "Failed")
        end = end or true_condition(conditions, kind.success)
        parts = _Parts(self._caches, key[0], ended_at=end.last_transition_time if end is not None else None)
        shown = self._elsewhere(
            JobRef(resource=id_[0], namespace=key[0], name=key[1], uid=source.metadata.uid)
        )
        after = describe_job(kind, source, parts, self._said.get(id_, _NOTHING), shown)
        if not after.initializers:
            self._said.pop(id_, None)
        status = source.status if kind.has_trainer_status else None
        report = shown.report if shown is not None and after.runs_elsewhere else None
        report = report or reported_progress(status.trainer_status if status is not None else None)
        if before is None or after != before or report != self._reports.get(id_):
            known[key] = after
            if report is None:
                self._reports.pop(id_, None)
            else:
                self._reports[id_] = report
            self._on_job(after, self._observation(after.ref, report))

    def is_hidden(self, ref: JobRef) -> bool:
        """Whether a watch shows this very object, and it is no job of its own."""
        _, source = self._find(self._kinds[ref.resource], (ref.namespace, ref.name))
        return ref not in self and source is not None and source.metadata.uid == ref.uid

    def objects_of(self, ref: JobRef) -> WatchedObjects:
        """The collection that has this job: of the versions of its API the one that is served."""
        return self._find(self._kinds[ref.resource], (ref.namespace, ref.name))[0]

    def _find(self, kind: JobKind, key: Key) -> tuple[WatchedObjects, Any]:
        """The job itself, and the collection that has it; the first one and None if there is no such job."""
        for own in kind.own:
            if (source := self._caches[own].get(key)) is not None:
                return own, source
        return kind.own[0], None

    def _is_part(self, own: WatchedObjects, controller: OwnerReference | None) -> bool:
        """Whether a job of another kind controls an object: what that one makes is no job of its own."""
        return controller is not None and controller.kind in self._makers[own.kind]

    def _observation(self, ref: JobRef, report: Progress | None) -> Observation | None:
        if report is None:
            return None
        # Which attempt wrote it is not known: its time tells the tracker.
        return Observation(ref=ref, attempt="", source=STATUS, at=self._now(), outcome=report)


class _Parts:
    """What is watched of the jobs of one namespace. Each object is unpacked once."""

    def __init__(
        self,
        caches: Mapping[WatchedObjects, ObjectCache[Any]],
        namespace: str,
        *,
        ended_at: datetime | None = None,
    ) -> None:
        """`ended_at`: when the job ended; pods that were made later are not its own."""
        self._caches = caches
        self._namespace = namespace
        self._ended_at = ended_at
        self._found: dict[tuple[WatchedObjects, str], Any] = {}

    def get(self, objects: WatchedObjects, name: str, owner: Meta) -> Any:  # noqa: ANN401 - of objects.type
        key = objects, name
        if key not in self._found:
            self._found[key] = self._caches[objects].get((self._namespace, name))
        found = self._found[key]
        return found if found is not None and controls(owner, found.metadata) else None

    def pods(self, objects: WatchedObjects, owner: Meta) -> Sequence[Pod]:
        cache = self._caches[objects]
        assert isinstance(cache, PodCache)  # noqa: S101 - of pods
        return [pod for pod in cache.of(owner) if is_made_before(pod, self._ended_at)]


def reported_progress(status: TrainerStatus | None) -> Progress | None:
    """The report in a job's status; None when there is none, or none that can be read or dated."""
    if status is None:
        return None
    try:
        return fit(status)[1]
    except Refusal:
        return None


def _id(ref: JobRef) -> tuple[str, Key]:
    return ref.resource, (ref.namespace, ref.name)


def _log_fault(key: Key, error: Exception) -> None:
    log.error("job not evaluated", namespace=key[0], name=key[1], **describe_fault(error))
