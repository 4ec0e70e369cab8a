"""Every TrainJob of the cluster, joined from the watches of TrainJobs, JobSets, first Jobs and rank-0 pods.

A change is applied without an `await`, so no reader sees half of it. A list is applied job by job, and lets
other tasks run in between: each job is consistent at any time. All jobs together are not, and could not be,
because the four collections are never listed at the same moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import structlog

from visibility_api.errors.text import describe_fault, harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import (
    JobRef,
    Phase,
    ProbeHints,
    Rank0,
    Replica as ReplicaCounts,
    TrainingJob,
)
from visibility_api.jobs.observation import Observation
from visibility_api.kube.decoding import in_slices
from visibility_api.models.served import TRAINJOBS
from visibility_api.reports.document import Progress, Refusal
from visibility_api.reports.trainer_status import TrainerStatus, fit

from .annotations import PREFIX, JobAnnotations, read_annotations
from .failures import Replica, ReplicaJob, job_failure, latest, pod_failure, replica_job_failure
from .object_cache import AnyObject, Key, ObjectCache, OwnedCache, PodCache, key_of
from .objects import MAX_NAMES, BatchJob, JobSet, JobStatus, Pod, ReplicatedJob, TrainJob
from .phase import QUEUE_NAME, ended_at, failed_condition, is_managed_elsewhere, trainjob_phase
from .rank0 import (
    controls,
    describe_initializer,
    describe_rank0,
    first_job_name,
    is_initializer,
    rank0_pod,
    trainer_groups,
)

log = structlog.get_logger("visibility.inventory")

STATUS = "status"  # the source of what a job's own status reports
# A JobSet or a status may be 1.5 MiB long, and every document would contain it.
MAX_REPLICA_GROUPS = 64
MAX_REASON_CHARACTERS, MAX_MESSAGE_CHARACTERS = 256, 1024

_NOTHING: Mapping[str, str] = MappingProxyType({})

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
Scope = str | None
But = Container[str]
_COLLECTIONS = 4

# The Job of that name in the job's namespace, with the pods that name its uid; None while there is none.
FindJob = Callable[[str], tuple[BatchJob, Sequence[Pod]] | None]


class TrainJobInventory:
    """Joins the four collections by owner uid: pod, Job, JobSet, TrainJob.

    `on_job` is called with each job that is new or has changed and the report in its status, if there is one;
    `on_gone` with each job that has been deleted.
    """

    def __init__(
        self,
        *,
        on_job: Callable[[TrainingJob, Observation | None], None],
        on_gone: Callable[[JobRef], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._on_job = on_job
        self._on_gone = on_gone
        self._now = now
        self._trainjobs = ObjectCache(TrainJob)
        self._jobsets = ObjectCache(JobSet)
        self._batch_jobs = OwnedCache(BatchJob)
        self._pods = PodCache()
        self._listed: dict[str | None, set[ObjectCache[Any]]] = {}  # by scope
        self._complete: set[str | None] = set()  # scopes of which all four are listed
        self._known: dict[Key, TrainingJob] = {}
        self._reports: dict[Key, Progress] = {}  # of those jobs whose status has one
        self._said: dict[Key, Mapping[str, str]] = {}  # by their runs, of jobs whose initializers run

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, ref: object) -> bool:
        """Whether this very job exists, as far as is known."""
        if not isinstance(ref, JobRef):
            return False
        known = self._known.get((ref.namespace, ref.name))
        return known is not None and known.ref == ref

    # Called by the watches. `scope` is the namespace of a list; None: the whole cluster, but for the
    # namespaces of `but`. A list comes again
    # whenever a watch has expired; only the jobs that it changes are evaluated again.

    async def list_trainjobs(
        self, objects: AsyncIterable[TrainJob], scope: Scope = None, but: But = ()
    ) -> None:
        await self._list(self._trainjobs, objects, scope, but)

    async def list_jobsets(self, objects: AsyncIterable[JobSet], scope: Scope = None, but: But = ()) -> None:
        await self._list(self._jobsets, objects, scope, but)

    async def list_jobs(self, objects: AsyncIterable[BatchJob], scope: Scope = None, but: But = ()) -> None:
        await self._list(self._batch_jobs, objects, scope, but)

    async def list_pods(self, objects: AsyncIterable[Pod], scope: Scope = None, but: But = ()) -> None:
        await self._list(self._pods, objects, scope, but)

    def change_trainjob(self, change: ChangeType, object_: TrainJob) -> None:
        self._apply(self._trainjobs, change, object_, key_of(object_))

    def change_jobset(self, change: ChangeType, object_: JobSet) -> None:
        self._apply(self._jobsets, change, object_, key_of(object_))

    def change_job(self, change: ChangeType, object_: BatchJob) -> None:
        self._apply(self._batch_jobs, change, object_, key_of(object_))

    def change_pod(self, change: ChangeType, object_: Pod) -> None:
        self._apply(self._pods, change, object_, key_of(object_))

    def initializers_said(self, ref: JobRef, said: Mapping[str, str]) -> None:
        """What the initializers of this job have printed of their progress, by their runs."""
        key = ref.namespace, ref.name
        if (known := self._known.get(key)) is not None and known.ref == ref and known.initializers:
            self._said[key] = said
            self._refresh((key,))

    async def _list(
        self, cache: ObjectCache[Any], objects: AsyncIterable[Any], scope: Scope, but: But
    ) -> None:
        """Apply a list. Events of the same watch wait meanwhile; those of others may arrive in between.

        Each object is applied at once, because it is newer than what is known; a list that fails in between
        does no harm.
        """
        listed = set()
        async for object_ in objects:
            key = key_of(object_)
            listed.add(key)
            self._apply(cache, "MODIFIED", object_, key)
        async for key in in_slices(cache.keys(scope)):
            if key not in listed and key[0] not in but:
                self._refresh(self._jobs_of(cache, cache.drop(key)))
        lists = self._listed.setdefault(scope, set())
        if cache not in lists:
            lists.add(cache)
            if len(lists) == _COLLECTIONS:
                self._complete.add(scope)
                async for key in in_slices(self._trainjobs.keys(scope)):
                    self._refresh((key,))

    def _is_listed(self, namespace: str) -> bool:
        """Whether all four collections are listed there.

        Until then a job could be published without its pod, published four times, and taken for one that
        cannot be probed. Nothing is served before that anyway.
        """
        return None in self._complete or namespace in self._complete

    def _apply(self, cache: ObjectCache[Any], change: ChangeType, object_: AnyObject, key: Key) -> None:
        try:
            affected = cache.drop(key) if change == "DELETED" else cache.put(key, object_)
        except Exception as error:  # a number beyond 64 bits: what is known of it is outdated
            _log_fault(key, error)
            affected = cache.drop(key)
        if affected and self._is_listed(key[0]):
            self._refresh(self._jobs_of(cache, affected))

    def _jobs_of(self, cache: ObjectCache[Any], affected: Sequence[Key]) -> Sequence[Key]:
        """The TrainJobs to evaluate again: a pod's owner is a Job, whose owner has the TrainJob's name."""
        if cache is not self._pods:
            return affected
        owners = ((key[0], self._batch_jobs.controller_of(key)) for key in affected)
        return [(namespace, owner.name) for namespace, owner in owners if owner is not None]

    def _refresh(self, keys: Iterable[Key]) -> None:
        for key in keys:
            try:
                self._refresh_one(key)
            except Exception as error:
                # One job must not end the process for all others: while no replica answers, no namespace of
                # the cluster finishes deleting (decision 0005). The error's text may quote the object.
                _log_fault(key, error)

    def _refresh_one(self, key: Key) -> None:
        if not self._is_listed(key[0]):
            return
        before = self._known.get(key)
        source = self._trainjobs.get(key)
        if before is not None and (source is None or source.metadata.uid != before.ref.uid):
            del self._known[key]
            self._reports.pop(key, None)
            self._said.pop(key, None)
            self._on_gone(before.ref)
            before = None
        if source is None:
            return
        find_job = self._finder(key[0])
        after = describe_trainjob(source, self._jobsets.get(key), find_job, self._said.get(key, _NOTHING))
        if not after.initializers:
            self._said.pop(key, None)
        report = reported_progress(source.status.trainer_status if source.status else None)
        if before is None or after != before or report != self._reports.get(key):
            self._known[key] = after
            if report is None:
                self._reports.pop(key, None)
            else:
                self._reports[key] = report
            self._on_job(after, self._observation(after.ref, report))

    def replica_jobs(self, ref: JobRef) -> list[ReplicaJob]:
        """The first Job of each replicated job of this TrainJob, as far as there are any."""
        key = ref.namespace, ref.name
        source, jobset = self._trainjobs.get(key), self._jobsets.get(key)
        if source is None or source.metadata.uid != ref.uid or jobset is None:
            return []
        if not controls(source.metadata, jobset.metadata):
            return []
        found = []
        for group in islice(jobset.spec.replicated_jobs or (), MAX_REPLICA_GROUPS):
            job = self._batch_jobs.get((ref.namespace, first_job_name(jobset, group.name)))
            if job is not None and controls(jobset.metadata, job.metadata):
                found.append(ReplicaJob(group=group.name, job=job, is_initializer=is_initializer(group)))
        return found

    def _finder(self, namespace: str) -> FindJob:
        """Finds the Jobs of one namespace with their pods. Each is unpacked once."""
        found: dict[str, tuple[BatchJob, Sequence[Pod]] | None] = {}

        def find_job(name: str) -> tuple[BatchJob, Sequence[Pod]] | None:
            if name not in found:
                job = self._batch_jobs.get((namespace, name))
                found[name] = None if job is None else (job, self._pods.of(job))
            return found[name]

        return find_job

    def _observation(self, ref: JobRef, report: Progress | None) -> Observation | None:
        if report is None:
            return None
        # Which attempt wrote it is not known: its time tells the tracker.
        return Observation(ref=ref, attempt="", source=STATUS, at=self._now(), outcome=report)


def reported_progress(status: TrainerStatus | None) -> Progress | None:
    """The report in a job's status; None when there is none, or none that can be read or dated."""
    if status is None:
        return None
    try:
        return fit(status)[1]
    except Refusal:
        return None


def describe_trainjob(
    job: TrainJob, jobset: JobSet | None, find_job: FindJob, said: Mapping[str, str] = _NOTHING
) -> TrainingJob:
    """The domain's view of one TrainJob. Objects with another controller are not the job's.

    said: the progress that its initializers have printed, by their runs.
    """
    meta = job.metadata
    if jobset is not None and not controls(meta, jobset.metadata):
        jobset = None
    annotations = read_annotations(meta.annotations)
    pods: list[tuple[Pod, Replica]] = []
    candidates, rivals = _rank0s(job, jobset, annotations, find_job, pods) if jobset else ([], ())
    rank0 = candidates[0] if candidates else None
    # They end before rank 0 begins.
    is_running = rank0 is not None and rank0.is_running
    initializers = {} if jobset is None or is_running else _initializers(jobset, find_job)
    at_work = [found for name, pod in initializers.items() if (found := describe_initializer(pod, name))]
    decision = trainjob_phase(
        job, jobset, rank0, initializers, {i.name: said[i.attempt] for i in at_work if i.attempt in said}
    )
    pods += [(pod, Replica(name=name, is_initializer=True)) for name, pod in initializers.items()]
    is_suspended = decision.phase is Phase.SUSPENDED
    suspension = next(
        (c for c in (job.status.conditions if job.status else None) or () if c.type == "Suspended"), None
    )
    return TrainingJob(
        ref=JobRef(resource=TRAINJOBS.plural, namespace=meta.namespace, name=meta.name, uid=meta.uid),
        labels=meta.labels or {},
        created_at=meta.creation_timestamp,
        phase=decision.phase,
        reason=harmless(decision.reason[:MAX_REASON_CHARACTERS]),
        message=harmless(decision.message[:MAX_MESSAGE_CHARACTERS]),
        is_suspended=is_suspended or (False if suspension is not None else None),
        suspension_changed_at=suspension.last_transition_time
        if suspension is not None and (suspension.status == "True") == is_suspended
        else None,
        ended_at=decision.since if decision.phase.is_final else None,
        is_queued=is_suspended and bool(meta.label(QUEUE_NAME)),
        rank0=rank0,
        alternates=tuple(candidates[1:]),
        initializers=tuple(at_work) if decision.phase is Phase.INITIALIZING else (),
        replicas=_replicas(job, jobset, find_job),
        hints=_with_faults(annotations, rank0, rivals),
        accelerators=_accelerators(jobset) if jobset is not None else (),
        failure=_failure(job, jobset, find_job, decision.phase, pods, rank0),
        unread=_unread(job, jobset, find_job),
        runs_elsewhere=is_managed_elsewhere(job),
    )


def _unread(job: TrainJob, jobset: JobSet | None, find_job: FindJob) -> tuple[str, str] | None:
    """The first object on the way to rank 0 that could not be read, and why."""
    if job.metadata.unread:
        return f"TrainJob {job.metadata.name}", job.metadata.unread
    if jobset is None:
        return None
    if jobset.metadata.unread:
        return f"JobSet {jobset.metadata.name}", jobset.metadata.unread
    for group in trainer_groups(jobset):
        held = find_job(first_job_name(jobset, group))
        if held is None or not controls(jobset.metadata, held[0].metadata):
            continue
        if held[0].metadata.unread:
            return f"Job {held[0].metadata.name}", held[0].metadata.unread
        claim = rank0_pod(held[1], held[0])
        if claim is not None and claim.pod.metadata.unread:
            return f"pod {claim.pod.metadata.name}", claim.pod.metadata.unread
    return None


def _failure(
    job: TrainJob,
    jobset: JobSet | None,
    find_job: FindJob,
    phase: Phase,
    pods: Iterable[tuple[Pod, Replica]],
    rank0: Rank0 | None,
) -> Failure | None:
    """The first failure of the last attempt, as far as the watched objects show it."""
    if phase is Phase.SUCCEEDED:
        return None  # pods that end afterwards do not count
    found = [failure for pod, replica in pods if (failure := pod_failure(pod, replica)) is not None]
    if phase is Phase.FAILED and (condition := failed_condition(job)) is not None:
        of_jobs = [job_failure(condition), *(_job_failures(jobset, find_job) if jobset is not None else ())]
        found += [of_job for of_job in of_jobs if of_job is not None]
    return latest(found, started_at=rank0.started_at if rank0 is not None else None) if found else None


def _job_failures(jobset: JobSet, find_job: FindJob) -> Iterator[Failure | None]:
    """The failure of the first Job of each group."""
    for group in jobset.spec.replicated_jobs or ():
        held = find_job(first_job_name(jobset, group.name))
        if held is not None and controls(jobset.metadata, held[0].metadata):
            yield replica_job_failure(held[0], group.name)


def _initializers(jobset: JobSet, find_job: FindJob) -> dict[str, Pod]:
    """The pod of each replicated job that prepares data or model, by its name, where there is one."""
    found: dict[str, Pod] = {}
    for group in jobset.spec.replicated_jobs or ():
        if is_initializer(group) and (held := find_job(first_job_name(jobset, group.name))) is not None:
            claim = rank0_pod(held[1], held[0]) if controls(jobset.metadata, held[0].metadata) else None
            if claim is not None:
                found[group.name] = claim.pod
    return found


def _rank0s(
    job: TrainJob,
    jobset: JobSet,
    annotations: JobAnnotations,
    find_job: FindJob,
    pods: list[tuple[Pod, Replica]],
) -> tuple[list[Rank0], Sequence[str]]:
    """The pods that may hold rank 0, and the names of pods that claim the place of the first.

    The former are added to `pods` too.
    """
    candidates: list[Rank0] = []
    rivals: Sequence[str] = ()
    for group in trainer_groups(jobset):
        found = find_job(first_job_name(jobset, group))
        if found is None or not controls(jobset.metadata, found[0].metadata):
            continue
        claim = rank0_pod(found[1], found[0], ended_at=ended_at(job))
        if claim is not None and (rank0 := describe_rank0(claim.pod, found[0], annotations)) is not None:
            candidates.append(rank0)
            pods.append((claim.pod, Replica(name=f"{group}-0")))
            rivals = rivals or claim.rivals
    return candidates, rivals


def _with_faults(annotations: JobAnnotations, rank0: Rank0 | None, rivals: Sequence[str]) -> ProbeHints:
    """With faults that need a pod: an annotated container that does not exist, a second pod of rank 0."""
    faults = []
    if rank0 is not None and annotations.container not in (None, rank0.container_name):
        faults.append(
            f"Annotation {PREFIX}container is ignored: pod {rank0.pod_name} has no container of that name; "
            f"{rank0.container_name} is read."
        )
    if rivals:
        others = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
        faults.append(
            f"Pod {rivals[0]}{others} claims to be rank 0 as well and is not read. "
            "The Job controller makes no such pod: find out who created it (docs/security.md)."
        )
    hints = annotations.hints
    return msgspec.structs.replace(hints, faults=(*hints.faults, *faults)) if faults else hints


def _replicas(job: TrainJob, jobset: JobSet | None, find_job: FindJob) -> tuple[ReplicaCounts, ...]:
    """The pods of every replicated job, as its Job counts them.

    The TrainJob's own status counts Jobs: one of 64 pods, of which 63 are ready, is one that is not. Where
    the Job is not known, it is used as far as it shows how many pods there are.
    """
    counts = {s.name: s for s in (job.status.jobs_status if job.status else None) or ()}
    if jobset is None:
        return tuple(ReplicaCounts(name=name) for name in islice(counts, MAX_REPLICA_GROUPS))
    return tuple(
        _pod_counts(jobset, group, counts.get(group.name), find_job)
        for group in islice(jobset.spec.replicated_jobs or (), MAX_REPLICA_GROUPS)
    )


def _accelerators(jobset: JobSet) -> tuple[tuple[str, int], ...]:
    """How many of each name the pods of the job request together. Initializers have ended before they run."""
    held: dict[str, int] = {}
    for group in islice(jobset.spec.replicated_jobs or (), MAX_REPLICA_GROUPS):
        spec = group.spec
        if (spec.held is None and spec.shared is None) or is_initializer(group):
            continue
        for name, number in (spec.held or {}).items():
            held[name] = held.get(name, 0) + number * group.pods
        for name in spec.shared or ():
            held[name] = 1
    return tuple(sorted(held.items())[:MAX_NAMES])


def _pod_counts(
    jobset: JobSet, group: ReplicatedJob, jobs: JobStatus | None, find_job: FindJob
) -> ReplicaCounts:
    name, desired = group.name, group.pods
    found = find_job(first_job_name(jobset, name)) if group.replicas == 1 else None
    if found is not None and controls(jobset.metadata, found[0].metadata):
        status = found[0].status
        if status.ready is not None:
            return ReplicaCounts(
                name=name,
                desired=desired,
                ready=status.ready,
                active=status.active,
                succeeded=status.succeeded,
                failed=status.failed,
            )
    if jobs is not None and group.replicas and jobs.succeeded == group.replicas:
        return ReplicaCounts(name=name, desired=desired, ready=0, active=0, succeeded=desired)
    is_ready = jobs is not None and group.replicas and jobs.ready == group.replicas
    return ReplicaCounts(name=name, desired=desired, ready=desired if is_ready else None)


def _log_fault(key: Key, error: Exception) -> None:
    log.error("job not evaluated", namespace=key[0], name=key[1], **describe_fault(error))
