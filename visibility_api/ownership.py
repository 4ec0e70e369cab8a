"""What the owner of the log does beside serving it: watch, probe, take pushes, evaluate, announce, write
back.

`build_term` follows the way of the data. It is called anew each time this replica comes to own the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import structlog

from visibility_api.archive.backlog import Backlog, Encoded
from visibility_api.archive.bucket import Bucket
from visibility_api.archive.keeper import Keeper, Retention
from visibility_api.archive.kubernetes_events import KubernetesEvents
from visibility_api.archive.namespaces import Namespaces
from visibility_api.auth.review_admission import ReviewAdmission
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import TokenReviewer
from visibility_api.errors.text import describe_fault
from visibility_api.events.announcer import Announcer
from visibility_api.flowcontrol.report_shares import Budgets, LoopTurns
from visibility_api.handover import Handover
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Phase, TrainingJob
from visibility_api.jobs.observation import Addition, Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import REFRESH, Tracker
from visibility_api.kinds import Kinds
from visibility_api.kube.client import KubeClient
from visibility_api.kube.watch import Watch
from visibility_api.kubeapi.record_encoding import encode_log, encode_record
from visibility_api.models.sources import PASSIVE
from visibility_api.probing.causes import FailureLogs
from visibility_api.probing.exec_source import ExecSource
from visibility_api.probing.http_source import HttpSource
from visibility_api.probing.initializers import InitializerReads
from visibility_api.probing.logs_source import LogsSource
from visibility_api.probing.probe import Source
from visibility_api.probing.prober import Prober
from visibility_api.probing.readings import Readings
from visibility_api.pushing.admission import Admission
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.pushing.ownership import Owners
from visibility_api.replication.role import Loop
from visibility_api.settings import Settings
from visibility_api.store.job_log import JobLog
from visibility_api.telemetry import Metrics
from visibility_api.workloads.collections import JobWatch, is_there, job_watches
from visibility_api.workloads.diagnoser import Diagnoser
from visibility_api.workloads.elsewhere import Upstreams
from visibility_api.workloads.inspection import Inspector
from visibility_api.workloads.inventory import Inventory
from visibility_api.workloads.job_pods import JobPods
from visibility_api.workloads.node_faults import NodeFaults
from visibility_api.workloads.pod_lists import PodLists
from visibility_api.workloads.presence import Presence
from visibility_api.workloads.rank_states import RankStates
from visibility_api.workloads.replicas import Replicas
from visibility_api.workloads.training_pods import Refusals
from visibility_api.workloads.work_reads import WorkReads
from visibility_api.writeback.writer import WriteBack

log = structlog.get_logger("visibility.server")

SOURCE_GRACE_S = 5.0  # beyond a source's own time-out; then the prober cancels it
WATCH_DOWN_S = 60.0  # after which what a watch has shown is no longer taken for the present
# Of all jobs, evaluated a second while what is watched has changed: each is within a quarter of a minute.
SHARE_OF_CHANGE, CHANGE_S = 1 / 15, 16
# In each second a share of the jobs is evaluated anew, in so many parts. Of 20,000 jobs one takes 1 ms.
EVALUATION_S, EVALUATION_PARTS = 1.0, 20
ARCHIVED_LOG_BYTES = 16 * 1024 * 1024  # of failed jobs that wait for the archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Where what outlives a job is kept."""

    bucket: Bucket
    namespaces: Namespaces
    retention: Retention
    # Deleted jobs that wait to be written: they outlive a term.
    deleted: Backlog = field(default_factory=Backlog)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a term is given: it lives no longer than the process."""

    settings: Settings
    cluster: KubeClient
    presence: Presence
    kinds: Callable[[], Kinds]  # those that are served now
    jobs: JobLog
    metrics: Metrics
    token_reviews: ReviewClient
    review_admission: ReviewAdmission  # kube-apiserver is asked by pushes and by the API alike
    instance: str  # names this process in Events
    archive: Archive | None
    upstreams: Mapping[str, KubeClient]  # other clusters, by name


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnersTerm(Handover):
    """One term: the parts that are built for it, and the loops that run until it ends."""

    prober: Prober
    pushes: PushEndpoint | None
    replicas: Replicas
    diagnoser: Diagnoser
    job_pods: JobPods | None
    loops_of_parts: Sequence[tuple[str, Loop]]
    waiting_write_backs: Callable[[], int]
    keeper: Keeper | None
    upstreams: Upstreams

    @property
    def loops(self) -> list[tuple[str, Loop]]:
        return [
            *((f"watch {watch.path}", partial(self._watch, watch)) for watch in self.watches),
            *self.loops_of_parts,
            ("evaluation", self._evaluate),
            ("known jobs", self.settle),
        ]

    async def _watch(self, watch: JobWatch[Any]) -> None:
        await self.upstreams.listed()
        await watch.run()

    def taken(self, document: JobProgress) -> None:
        """A member has published this."""
        if self.keeper is not None:
            self.keeper.changed(document)

    def gone(self, ref: JobRef) -> None:
        """A member says that the job was deleted; its document is still there to be found."""
        if self.keeper is not None:
            self.keeper.gone(ref)

    def why_down(self, collection: str) -> str | None:
        """Why the watches of this collection have not worked for a minute; None while they do."""
        for watch in self.watches:
            if watch.objects.shown_as == collection and watch.health.is_down(WATCH_DOWN_S):
                return f"{watch.path}: {watch.health.last_error}"
        return None

    async def _evaluate(self) -> None:
        """Evaluate the conditions of each job once in REFRESH, whether or not a report comes."""
        changing = 0
        while True:
            unwatched = frozenset(
                (resource, scope)
                for watch in self.watches
                for scope in watch.down_scopes(WATCH_DOWN_S)
                for resource in self.kinds.users[watch.objects]
            )
            changing = CHANGE_S if unwatched != self.owner.unwatched else max(0, changing - 1)
            self.owner.unwatched = unwatched
            share = SHARE_OF_CHANGE if changing else EVALUATION_S / REFRESH.total_seconds()
            for _ in range(EVALUATION_PARTS):
                await asyncio.sleep(EVALUATION_S / EVALUATION_PARTS)
                try:
                    self.owner.review(share / EVALUATION_PARTS)
                except Exception as error:  # of one job; the next share goes on after it: docs/decisions/0005
                    log.error("job not evaluated", **describe_fault(error))


class Ledger(Protocol):
    """Where it goes what is found out of jobs."""

    def put(self, document: JobProgress) -> None: ...

    def kept(self, ref: JobRef, points: Sequence[Addition]) -> None: ...

    def delete(self, ref: JobRef) -> None: ...

    def recall(self, ref: JobRef) -> tuple[bytes | None, JobHistory | None]: ...


def build_term(
    given: Surroundings,
    may_write: Callable[[], bool],
    *,
    ledger: Ledger | None = None,
    holds: Callable[[JobRef], bool] | None = None,
) -> OwnersTerm:
    """Everything an owner has; nothing runs yet. `may_write`: this replica owns the log at this moment.

    `ledger`: of a member, whose log is another replica's. `holds`: whether a job is evaluated here; None:
    all are.
    """
    settings, cluster, jobs, metrics = given.settings, given.cluster, given.jobs, given.metrics
    sources = settings.sources
    write_back = WriteBack(cluster, count=metrics.count_write_back) if settings.write_back else None
    announcer = (
        Announcer(
            cluster,
            instance=given.instance,
            may_write=may_write,
            regarding=lambda ref: inventory.objects_of(ref),
            count=metrics.count_event,
        )
        if settings.events
        else None
    )

    kinds = given.kinds()
    failure_logs = (
        FailureLogs(
            cluster,
            settings.probe_timeout.total_seconds(),
            # The owner of the log keeps the archive, for all.
            kept_bytes=ARCHIVED_LOG_BYTES if given.archive is not None and ledger is None else 0,
        )
        if "logs" in sources
        else None
    )
    keeper = (
        _keeper(given.archive, jobs, kinds, metrics, may_write, failure_logs, KubernetesEvents(cluster))
        if given.archive is not None and ledger is None
        else None
    )

    def published(document: JobProgress) -> None:
        if write_back is not None:
            write_back.changed(document)
        if announcer is not None:
            announcer.changed(document)
        if keeper is not None:
            keeper.changed(document)
        diagnoser.changed(document)

    kept_in: Ledger = jobs if ledger is None else ledger

    def publish(document: JobProgress) -> None:
        kept_in.put(document)
        published(document)

    interval_s = settings.probe_interval.total_seconds()
    tracker = Tracker(
        publish=publish,
        kept=kept_in.kept,
        retract=kept_in.delete,
        now=_now,
        interval_s=interval_s,
        recall=kept_in.recall,
        suspect=lambda ref, still_s: diagnoser.suspect(ref, still_s),
    )

    def observed(observation: Observation) -> bool:
        is_taken = tracker.observed(observation)
        if is_taken:
            replicas.observed(observation)
        return is_taken

    budgets, turns = Budgets(), LoopTurns()
    readings = Readings(budgets, turns)
    sources_to_probe = _sources(settings, cluster, readings)
    prober = Prober(
        sources_to_probe,
        record=observed,
        now=_now,
        interval_s=interval_s,
        concurrency=settings.probe_concurrency,
        deadline_s=settings.probe_timeout.total_seconds() + SOURCE_GRACE_S,
        passive=PASSIVE.intersection(sources),
        on_probe=metrics.count_probe,
        readings=readings,
    )
    seen: set[JobRef] = set()  # by this term

    def on_job(job: TrainingJob, status: Observation | None) -> None:
        if holds is not None and not holds(job.ref):
            if job.hints.thresholds.stop_rules and job.phase is Phase.SUCCEEDED:
                tracker.compare(job, jobs.state(job.ref), jobs.history(job.ref))
            return
        if holds is not None and job.ref not in tracker and (known := _find_document(jobs, job.ref)):
            tracker.adopt(known)  # it is being taken over
            published(known)
        if write_back is not None:
            write_back.seen(job.ref, status)
        is_new = job.ref not in seen
        seen.add(job.ref)
        before = _find_job(jobs, job.ref.resource, job.ref.namespace, job.ref.name)
        tracker.job_changed(job, status if "status" in sources else None)
        prober.job_changed(job, source=tracker.source_of(job.ref) if is_new else "")
        initializers.job_changed(job)
        inspector.job_changed(before, job)
        if is_new and tracker.lacks_final_report(job.ref):
            prober.job_found(job)

    def on_gone(ref: JobRef) -> None:
        if keeper is not None and ref in tracker:
            keeper.gone(ref)
        tracker.job_gone(ref)
        if job_pods is not None:
            job_pods.job_gone(ref)
        cease(ref)

    def given_up(ref: JobRef) -> None:
        if ledger is None:
            jobs.hand_back(ref)
        tracker.forget(ref)
        cease(ref)

    def cease(ref: JobRef) -> None:
        seen.discard(ref)
        prober.job_gone(ref)
        initializers.job_gone(ref)
        inspector.job_gone(ref)
        replicas.job_gone(ref)
        diagnoser.job_gone(ref)
        if write_back is not None:
            write_back.gone(ref)
        if announcer is not None:
            announcer.gone(ref)

    def recalled(ref: JobRef) -> TrainingJob | None:
        document = _find_document(jobs, ref)
        return document.job if document is not None else None

    upstreams = Upstreams(
        given.upstreams,
        changed=lambda resource, key: inventory.shown_elsewhere(resource, key),
        recall=recalled,
    )
    inventory = Inventory(kinds.kinds, on_job=on_job, on_gone=on_gone, elsewhere=upstreams.find)

    async def exists(ref: JobRef) -> bool:
        own = kinds.by_resource[ref.resource].own
        return not inventory.is_hidden(ref) and await is_there(cluster, own, ref)

    pod_lists = PodLists(cluster, inventory.all_pods)
    replicas = Replicas(pod_lists)
    job_pods = JobPods(pod_lists) if settings.job_metrics else None
    others_ended = partial(_ended_by, jobs if settings.store else None)
    nodes = NodeFaults(cluster, found=tracker.failed, others=others_ended)
    inspector = Inspector(
        pod_lists,
        replicas=replicas,
        found=tracker.failed,
        explain=failure_logs.explain if failure_logs is not None else None,
        nodes=nodes if settings.node_faults else None,
    )
    rank_states = RankStates(cluster) if "exec" in sources else None
    refusals = Refusals(lambda: asyncio.get_running_loop().time())
    diagnoser = Diagnoser(
        pod_lists,
        rank_states,
        find=partial(_find_document, jobs),
        found=lambda ref, found, is_told: tracker.diagnosed(ref, found, is_told=is_told),
        refusals=refusals,
    )
    logs = sources_to_probe.get("logs")
    initializers = InitializerReads(
        logs if isinstance(logs, LogsSource) else None,
        said=inventory.initializers_said,
        interval_s=interval_s,
        on_probe=metrics.count_probe,
        readings=readings,
    )
    watches = job_watches(
        cluster, inventory, given.presence, settings.namespaces, count_unread=metrics.count_unread
    )
    pushes: PushEndpoint | None = None
    if "push" in sources:
        pod_watches = {
            plural: [
                watch
                for watch in watches
                if watch.path.endswith("/pods") and plural in kinds.users[watch.objects]
            ]
            for plural in kinds.by_resource
        }
        pushes = PushEndpoint(
            Admission(
                # One of its own: the many tokens of pods, which are cached as grants, must not push those of
                # API users out of the cache.
                TokenReviewer(given.token_reviews),
                Owners(cluster),
                find_job=partial(_find_job, jobs),
                kinds=kinds,
                is_synced=jobs.is_listed,
                is_watched=lambda ref: are_pods_watched(pod_watches[ref.resource], ref.namespace),
                exists=exists,
                reviews=given.review_admission,
                budgets=budgets,
            ),
            record=observed,
            counts=tracker.counts,
            may_write=may_write,
            owns=tracker.__contains__,
            pushed=prober.postpone,
            note_replica=replicas.pushed,
            count=metrics.count_push,
            now=_now,
            turns=turns,
        )
    loops: list[tuple[str, Loop]] = [
        ("prober", prober.run),
        ("inspection", inspector.run),
        ("diagnosis", diagnoser.run),
        ("initializers", initializers.run),
    ]
    if given.upstreams:
        loops.append(("upstreams", upstreams.run))
    if rank_states is not None:
        work_reads = WorkReads(
            pod_lists,
            rank_states,
            refusals,
            jobs=lambda: list(tracker),
            find=partial(_find_document, jobs),
            rounds_apart=tracker.rounds_apart,
            worked=tracker.worked,
        )
        loops.append(("work of ranks", work_reads.run))
    if write_back is not None:
        loops.append(("write-back", write_back.run))
    if announcer is not None:
        loops.append(("events", announcer.run))
    if job_pods is not None:
        loops.append(("pods of jobs", job_pods.run))
    if keeper is not None:
        loops.append(("archive", keeper.run))
    return OwnersTerm(
        kinds=kinds,
        jobs=jobs,
        owner=tracker,
        inventory=inventory,
        prober=prober,
        watches=watches,
        pushes=pushes,
        replicas=replicas,
        diagnoser=diagnoser,
        job_pods=job_pods,
        on_job=on_job,
        on_gone=on_gone,
        given_up=given_up,
        is_member=ledger is not None,
        published=published,
        loops_of_parts=loops,
        waiting_write_backs=partial(len, write_back) if write_back is not None else lambda: 0,
        keeper=keeper,
        upstreams=upstreams,
        exists=exists,
    )


def _keeper(
    archive: Archive,
    jobs: JobLog,
    kinds: Kinds,
    metrics: Metrics,
    may_write: Callable[[], bool],
    logs: FailureLogs | None,
    events: KubernetesEvents,
) -> Keeper:
    names = {each.plural: each.kind.removesuffix("Progress") for each in kinds.resources}

    def encode(document: JobProgress, history: JobHistory | None, is_deleted: bool) -> Encoded:
        resource = document.job.ref.resource
        return encode_record(document, history, is_deleted, names.get(resource, resource))

    async def read_log(document: JobProgress) -> bytes | None:
        found = await logs.last_lines(document) if logs is not None else None
        return None if found is None else encode_log(*found)

    return Keeper(
        archive.bucket,
        archive.namespaces,
        archive.retention,
        encode=encode,
        read_log=read_log if logs is not None else None,
        read_events=events.read,
        find=partial(_find_document, jobs),
        history=jobs.history,
        may_write=may_write,
        deleted=archive.deleted,
        count=metrics.count_archived,
    )


def _sources(settings: Settings, client: KubeClient, readings: Readings) -> dict[str, Source]:
    timeout_s = settings.probe_timeout.total_seconds()
    known: dict[str, Callable[[], Source]] = {
        "exec": lambda: ExecSource(client, timeout_s=timeout_s, readings=readings),
        "http": lambda: HttpSource(timeout_s=timeout_s, readings=readings),
        "logs": lambda: LogsSource(client, timeout_s=timeout_s, readings=readings),
    }
    return {name: make() for name, make in known.items() if name in settings.sources}


def _find_job(jobs: JobLog, resource: str, namespace: str, name: str) -> TrainingJob | None:
    entry = jobs.store.get(resource, namespace, name)
    return entry.document.job if entry is not None else None


def _ended_by(jobs: JobLog | None, node: str, fault: str) -> dict[JobRef, Failure]:
    """Jobs of the log whose failure has this fault of this node as its cause."""
    entries = () if jobs is None else jobs.store.entries()
    documents = (each.document for each in entries)
    return {
        each.job.ref: each.failure
        for each in documents
        if each.failure is not None and (each.failure.node_name, each.failure.cause_class) == (node, fault)
    }


def _find_document(jobs: JobLog, ref: JobRef) -> JobProgress | None:
    """Of this very job: its name may be another's by now."""
    entry = jobs.store.get(ref.resource, ref.namespace, ref.name)
    return entry.document if entry is not None and entry.document.job.ref == ref else None


def are_pods_watched(pods: Sequence[Watch[Any]], namespace: str) -> bool:
    """Whether what these watches of pods show of this namespace is of now."""
    is_synced = False
    for watch in pods:
        if watch.scope is None or watch.scope == namespace:
            if watch.is_down(namespace):
                return False
            is_synced = is_synced or watch.health.synced
    return is_synced


def _now() -> datetime:
    return datetime.now(UTC)
