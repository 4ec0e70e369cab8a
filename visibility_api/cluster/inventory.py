"""Every TrainJob of the cluster, put together from the watches of TrainJobs, JobSets and rank-0 pods.

A change is taken over without an `await`, so a reader never sees half of one. A list is taken over job by
job, with pauses: each job is shown whole at any time, and a list is no moment that all of them have in common
anyway, for the three collections are never read at the same one.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.job import JobRef, Phase, ProbeHints, Rank0, Replica, TrainingJob

from .annotations import PREFIX, Wishes, read_annotations
from .objects import JobSet, Pod, TrainJob
from .phase import is_managed_elsewhere, trainjob_phase
from .rank0 import describe_rank0, rank0_pod, trainer_groups
from .shelf import Key, PodShelf, Shelf, name_of
from .slices import in_slices
from .trainer_status import reported_progress

log = structlog.get_logger("visibility.inventory")

TRAINJOBS = "trainjobs"
# Whoever may write a JobSet or a status may fill 1.5 MiB with it, and every document would carry that.
MAX_REPLICA_GROUPS = 64
MAX_REASON_CHARACTERS, MAX_MESSAGE_CHARACTERS = 256, 1024
QUEUE_NAME = "kueue.x-k8s.io/queue-name"

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
_COLLECTIONS = 3


class TrainJobInventory:
    """Joins the three collections by namespace and name, then by owner uid.

    on_job is called with each job that is new or has changed, on_gone with each that has ceased to be.
    """

    def __init__(self, *, on_job: Callable[[TrainingJob], None], on_gone: Callable[[JobRef], None]) -> None:
        self._on_job = on_job
        self._on_gone = on_gone
        self._trainjobs = Shelf(TrainJob)
        self._jobsets = Shelf(JobSet)
        self._pods = PodShelf()
        self._listed: dict[str | None, set[Shelf[Any]]] = {}  # by scope
        self._whole: set[str | None] = set()  # scopes of which all three are listed
        self._known: dict[Key, TrainingJob] = {}

    def __len__(self) -> int:
        return len(self._known)

    # What the watches call. `scope` is the namespace a list was of, None for the whole cluster. Lists come
    # again whenever a watch has expired; only what they change is worked out anew.

    async def list_trainjobs(self, objects: AsyncIterable[TrainJob], scope: str | None = None) -> None:
        await self._list(self._trainjobs, objects, scope)

    async def list_jobsets(self, objects: AsyncIterable[JobSet], scope: str | None = None) -> None:
        await self._list(self._jobsets, objects, scope)

    async def list_pods(self, objects: AsyncIterable[Pod], scope: str | None = None) -> None:
        await self._list(self._pods, objects, scope)

    def change_trainjob(self, change: ChangeType, object_: TrainJob) -> None:
        self._take(self._trainjobs, change, object_)

    def change_jobset(self, change: ChangeType, object_: JobSet) -> None:
        self._take(self._jobsets, change, object_)

    def change_pod(self, change: ChangeType, object_: Pod) -> None:
        self._take(self._pods, change, object_)

    async def _list(self, shelf: Shelf[Any], objects: AsyncIterable[Any], scope: str | None) -> None:
        """Events of this scope of this collection wait meanwhile; those of others may come in between.

        What comes is newer than what is known, so it counts at once; a list that breaks off does no harm.
        """
        listed = set()
        async for object_ in objects:
            listed.add(name_of(object_))
            self._take(shelf, "MODIFIED", object_)
        async for name in in_slices(shelf.names(scope)):
            if name not in listed:
                self._refresh(shelf.drop(name))
        lists = self._listed.setdefault(scope, set())
        if shelf not in lists:
            lists.add(shelf)
            if len(lists) == _COLLECTIONS:
                self._whole.add(scope)
                async for key in in_slices(self._trainjobs.names(scope)):
                    self._refresh((key,))

    def _is_listed(self, namespace: str) -> bool:
        """Whether all three collections are known there. Before that a job might be shown without its pod, be
        told of three times, and be taken for one that nobody can ask; nothing is served before it anyway."""
        return None in self._whole or namespace in self._whole

    def _take(self, shelf: Shelf[Any], change: ChangeType, object_: TrainJob | JobSet | Pod) -> None:
        name = name_of(object_)
        try:
            keys = shelf.drop(name) if change == "DELETED" else shelf.put(object_)
        except Exception as error:  # a number beyond 64 bits: what was known of it does not hold any more
            _tell(name, error)
            keys = shelf.drop(name)
        self._refresh(keys)

    def _refresh(self, keys: Iterable[Key]) -> None:
        for key in keys:
            try:
                self._refresh_one(key)
            except Exception as error:
                # A job that trips us up must not take the API from everybody else: while no replica answers,
                # no namespace of the cluster finishes deleting. The error's own text may quote the object.
                _tell(key, error)

    def _refresh_one(self, key: Key) -> None:
        if not self._is_listed(key[0]):
            return
        before = self._known.get(key)
        source = self._trainjobs.get(key)
        if before is not None and (source is None or source.metadata.uid != before.ref.uid):
            del self._known[key]
            self._on_gone(before.ref)
            before = None
        if source is None:
            return
        after = describe_trainjob(source, self._jobsets.get(key), self._pods.of(key))
        if before is None or after != before or after.trainer_status != before.trainer_status:
            self._known[key] = after
            self._on_job(after)


def describe_trainjob(job: TrainJob, jobset: JobSet | None, pods: Iterable[Pod]) -> TrainingJob:
    """The domain's view of one TrainJob. A JobSet that another object controls is not the job's."""
    meta = job.metadata
    if jobset is not None and ((owner := jobset.metadata.controller) is None or owner.uid != meta.uid):
        jobset = None
    wishes = read_annotations(meta.annotations)
    candidates = []
    if jobset is not None:
        pods = list(pods)
        for group in trainer_groups(jobset):
            pod = rank0_pod(pods, jobset, group)
            if pod is not None and (rank0 := describe_rank0(pod, wishes)) is not None:
                candidates.append(rank0)
    rank0 = candidates[0] if candidates else None
    verdict = trainjob_phase(job, jobset, rank0)
    is_suspended = verdict.phase is Phase.SUSPENDED
    told = (job.status.conditions if job.status else None) or ()
    return TrainingJob(
        ref=JobRef(resource=TRAINJOBS, namespace=meta.namespace, name=meta.name, uid=meta.uid),
        labels=meta.labels or {},
        created_at=meta.creation_timestamp,
        phase=verdict.phase,
        reason=verdict.reason[:MAX_REASON_CHARACTERS],
        message=verdict.message[:MAX_MESSAGE_CHARACTERS],
        is_suspended=is_suspended or (False if any(c.type == "Suspended" for c in told) else None),
        is_queued=is_suspended and bool(meta.label(QUEUE_NAME)),
        rank0=rank0,
        alternates=tuple(candidates[1:]),
        replicas=_replicas(job, jobset),
        hints=_with_missing_container(wishes, rank0),
        trainer_status=reported_progress(job.status.trainer_status if job.status else None),
        runs_elsewhere=is_managed_elsewhere(job),
    )


def _with_missing_container(wishes: Wishes, rank0: Rank0 | None) -> ProbeHints:
    """Whether there is such a container shows only when there is a pod."""
    if rank0 is None or wishes.container in (None, rank0.container_name):
        return wishes.hints
    fault = (
        f"annotation {PREFIX}container is ignored: pod {rank0.pod_name} has no container of that name; "
        f"{rank0.container_name} is read"
    )
    return replace(wishes.hints, faults=(*wishes.hints.faults, fault))


def _replicas(job: TrainJob, jobset: JobSet | None) -> tuple[Replica, ...]:
    """Every replicated job, counted in child Jobs as the TrainJob does (3.1): a Job of 64 pods is one."""
    counts = {s.name: s for s in (job.status.jobs_status if job.status else None) or ()}
    wanted: dict[str, int | None] = dict.fromkeys(counts)
    for group in (jobset.spec.replicated_jobs if jobset else None) or ():
        wanted[group.name] = group.replicas
    return tuple(
        Replica(
            name=name,
            desired=desired,
            ready=count.ready if (count := counts.get(name)) else None,
            active=count.active if count else None,
            succeeded=count.succeeded if count else None,
            failed=count.failed if count else None,
        )
        for name, desired in islice(wanted.items(), MAX_REPLICA_GROUPS)
    )


def _tell(key: Key, error: Exception) -> None:
    log.error("job not taken over", namespace=key[0], name=key[1], **describe_fault(error))
