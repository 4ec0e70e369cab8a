"""Every TrainJob of the cluster, put together from the watches of TrainJobs, JobSets and rank-0 pods.

Plain state and plain functions: nothing here awaits, so a reader never sees half a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, TypeVar

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.job import JobRef, ProbeHints, Rank0, Replica, TrainingJob

from .annotations import PREFIX, Wishes, read_annotations
from .objects import JobSet, Pod, TrainJob
from .phase import is_managed_elsewhere, trainjob_phase
from .rank0 import JOBSET, describe_rank0, rank0_pod, trainer_groups
from .trainer_status import reported_progress

log = structlog.get_logger("visibility.inventory")

TRAINJOBS = "trainjobs"
# Whoever may write a JobSet or a status may fill 1.5 MiB with it, and every document would carry that.
MAX_REPLICA_GROUPS = 64
MAX_REASON_CHARACTERS, MAX_MESSAGE_CHARACTERS = 256, 1024
QUEUE_NAME = "kueue.x-k8s.io/queue-name"

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
V = TypeVar("V")
Kind = TypeVar("Kind", TrainJob, JobSet)
Key = tuple[str, str]  # namespace, name: of the TrainJob and of its JobSet alike


class TrainJobInventory:
    """Joins the three collections by namespace and name, then by owner uid.

    on_job is called with each job that is new or has changed, on_gone with each that has ceased to be.
    """

    def __init__(self, *, on_job: Callable[[TrainingJob], None], on_gone: Callable[[JobRef], None]) -> None:
        self._on_job = on_job
        self._on_gone = on_gone
        self._trainjobs: dict[Key, TrainJob] = {}
        self._jobsets: dict[Key, JobSet] = {}
        self._pods: dict[Key, dict[str, Pod]] = {}
        self._pod_homes: dict[Key, Key] = {}  # by the pod's own name: whose pod it was, its labels may change
        self._known: dict[Key, TrainingJob] = {}

    def __len__(self) -> int:
        return len(self._known)

    # What the watches call. `scope` is the namespace a list was of, None for the whole cluster. Lists come
    # again whenever a watch has expired; only what they change is worked out anew.

    def list_trainjobs(self, objects: Sequence[TrainJob], scope: str | None = None) -> None:
        before, self._trainjobs = self._trainjobs, _replace(self._trainjobs, _by_key(objects), scope)
        self._refresh(_differing(before, self._trainjobs))

    def list_jobsets(self, objects: Sequence[JobSet], scope: str | None = None) -> None:
        before, self._jobsets = self._jobsets, _replace(self._jobsets, _by_key(objects), scope)
        self._refresh(_differing(before, self._jobsets))

    def list_pods(self, objects: Sequence[Pod], scope: str | None = None) -> None:
        listed: dict[Key, dict[str, Pod]] = {}
        for pod in objects:
            listed.setdefault(_jobset_key(pod), {})[pod.metadata.name] = pod
        before, self._pods = self._pods, _replace(self._pods, listed, scope)
        self._pod_homes = {(key[0], name): key for key, pods in self._pods.items() for name in pods}
        self._refresh(_differing(before, self._pods))

    def change_trainjob(self, change: ChangeType, object_: TrainJob) -> None:
        key = _key(object_)
        if change == "DELETED":
            self._trainjobs.pop(key, None)
        else:
            self._trainjobs[key] = object_
        self._refresh((key,))

    def change_jobset(self, change: ChangeType, object_: JobSet) -> None:
        key = _key(object_)
        if change == "DELETED":
            self._jobsets.pop(key, None)
        else:
            self._jobsets[key] = object_
        self._refresh((key,))

    def change_pod(self, change: ChangeType, object_: Pod) -> None:
        meta = object_.metadata
        key, former = _jobset_key(object_), self._pod_homes.pop((meta.namespace, meta.name), None)
        if former is not None:
            pods = self._pods[former]
            del pods[meta.name]
            if not pods:
                del self._pods[former]
        if change != "DELETED":
            self._pods.setdefault(key, {})[meta.name] = object_
            self._pod_homes[meta.namespace, meta.name] = key
        self._refresh({key, former} if former is not None else (key,))

    def _refresh(self, keys: Iterable[Key]) -> None:
        for key in keys:
            try:
                self._refresh_one(key)
            except Exception as error:
                # A job that trips us up must not take the API from everybody else: while no replica answers,
                # no namespace of the cluster finishes deleting. The error's own text may quote the object.
                log.error("job not taken over", namespace=key[0], name=key[1], **describe_fault(error))

    def _refresh_one(self, key: Key) -> None:
        before = self._known.get(key)
        source = self._trainjobs.get(key)
        if before is not None and (source is None or source.metadata.uid != before.ref.uid):
            del self._known[key]
            self._on_gone(before.ref)
            before = None
        if source is None:
            return
        after = describe_trainjob(source, self._jobsets.get(key), self._pods.get(key, {}).values())
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
    is_suspended = verdict.phase == "Suspended"
    return TrainingJob(
        ref=JobRef(resource=TRAINJOBS, namespace=meta.namespace, name=meta.name, uid=meta.uid),
        labels=meta.labels or {},
        created_at=meta.creation_timestamp,
        phase=verdict.phase,
        reason=verdict.reason[:MAX_REASON_CHARACTERS],
        message=verdict.message[:MAX_MESSAGE_CHARACTERS],
        phase_since=verdict.since,
        is_suspended=is_suspended,
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


def _key(object_: TrainJob | JobSet) -> Key:
    return object_.metadata.namespace, object_.metadata.name


def _jobset_key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.label(f"{JOBSET}jobset-name")


def _by_key(objects: Iterable[Kind]) -> dict[Key, Kind]:
    return {_key(o): o for o in objects}


def _replace(held: dict[Key, V], listed: dict[Key, V], scope: str | None) -> dict[Key, V]:
    """`held` with everything of `scope` replaced by what was listed."""
    return listed if scope is None else {k: v for k, v in held.items() if k[0] != scope} | listed


def _differing(before: dict[Key, V], after: dict[Key, V]) -> list[Key]:
    return [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
