"""The composition root: builds every object once and hands it its collaborators.

`assemble` follows the way of the data, from the sources to the application.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from visibility_api.app import Application, Limits, Parts, create_app
from visibility_api.app.dependencies import Diagnoses, Found, HistorySource, LogTails
from visibility_api.app.limits import new_shares
from visibility_api.app.page import read_page
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.served_resources import ServedResources
from visibility_api.archive.bucket import Bucket
from visibility_api.archive.keeper import Retention
from visibility_api.archive.namespaces import Namespaces
from visibility_api.archive.shelf import Shelf
from visibility_api.auth.access_review import PATH as ACCESS_REVIEWS, AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.auth.review_admission import ReviewAdmission
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH as TOKEN_REVIEWS, TokenReviewer
from visibility_api.certificates.expiry import Expiry
from visibility_api.job_metrics.exposition import JobMetrics, JobMetricsSource
from visibility_api.job_metrics.otlp import Collector, OtlpPush
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.memory import SavedJob, restore, restore_history, restore_points, save, save_history
from visibility_api.kinds import is_absent, missing_operator, served
from visibility_api.kinds.described.table import KindTable
from visibility_api.kube.client import KubeClient
from visibility_api.kube.lease import Lease, LeaseTimes
from visibility_api.kubeapi.job_records import JobRecords
from visibility_api.ownership import Archive, OwnersTerm, Surroundings, build_term
from visibility_api.probing.log_end import LogEnds
from visibility_api.readiness import (
    archive_check,
    certificate_check,
    clock_check,
    data_check,
    lasting_checks,
    rights_check,
    store_check,
    upstreams_check,
)
from visibility_api.replication.addresses import Address
from visibility_api.replication.follower import Follower
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.member import Member
from visibility_api.replication.moving import PEER_LIMITS, MovingFollower
from visibility_api.replication.nats_client import Location, NatsClient
from visibility_api.replication.nats_follower import NatsFollower
from visibility_api.replication.nats_log import NatsLog, Place
from visibility_api.replication.peer_client import PeerClient
from visibility_api.replication.questions import Questions
from visibility_api.replication.recognition import ReplicaKey, derive_replica_key
from visibility_api.replication.requests import LogRequests
from visibility_api.replication.role import Loop, Others, Role
from visibility_api.replication.shares import LEASE_TIMES, Shares
from visibility_api.replication.streams import LogStreams
from visibility_api.rights import Rights, needed_by
from visibility_api.serving.tls import Pair
from visibility_api.settings import Settings
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import MemoryStore
from visibility_api.store.state_file import Bounds
from visibility_api.store.state_writer import StateWriter
from visibility_api.telemetry import Metrics
from visibility_api.workloads.job_pods import Pods
from visibility_api.workloads.presence import Presence

LEASE = "trainjob-visibility"
NO_GARBAGE_CHECK_S, NO_GARBAGE_CHECKS = 0.1, 200  # until every job is known: twenty seconds at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of kube-apiserver for each purpose; the same one unless other kubeconfigs are given."""

    cluster: KubeClient
    authentication: KubeClient
    authorization: KubeClient
    upstreams: Mapping[str, KubeClient] = field(default_factory=dict)  # other clusters', by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The application to serve and the loops to run."""

    app: Application
    loops: Sequence[tuple[str, Loop]]  # by name; each runs until it is cancelled
    load: Loop  # read what an earlier process has kept; ends before the loops begin
    leave: Loop  # let another replica own the jobs, if there is one; the process goes on
    drain: Callable[[], None]  # end the open watches and refuse new ones
    end: Loop  # the last thing to do


def assemble(
    settings: Settings,
    clients: Clients,
    trust: RequestHeaderConfig,
    stopping: asyncio.Event,
    *,
    certificates: Callable[[], Sequence[Pair]],
    expiry: Expiry,
    certificate_fault: Callable[[], str | None],
) -> Assembly:
    """Build everything for these settings; nothing runs yet. `stopping` makes /readyz fail; `certificates`
    returns what other replicas recognise this one by, `certificate_fault` why none of them is renewed."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(registry)

    store = MemoryStore(base_revision=1)
    jobs = JobLog(store)
    directory = _DataDirectory(settings.data_dir, settings, jobs, metrics) if settings.data_dir else None
    token_reviews = ReviewClient(clients.authentication, TOKEN_REVIEWS, count=metrics.count_authn)
    review_admission = ReviewAdmission()
    identity = f"{socket.gethostname()[:100]}_{settings.secure_port}"  # the host's name is the pod's
    table = KindTable(settings.kinds)
    table.load()
    presence = Presence(clients.cluster, table.now.asked, table.now.needed)
    archive = _archive(settings, clients.cluster) if settings.archive else None
    given = Surroundings(
        settings=settings,
        cluster=clients.cluster,
        presence=presence,
        kinds=lambda: table.now,
        jobs=jobs,
        metrics=metrics,
        token_reviews=token_reviews,
        review_admission=review_admission,
        instance=identity,
        archive=archive,
        upstreams=clients.upstreams,
    )
    derive = lru_cache(maxsize=4)(derive_replica_key)

    def replica_keys() -> list[ReplicaKey]:
        return [derive(*pair) for pair in certificates()]

    peers = PeerClient(replica_keys) if settings.peers or settings.store else None
    nats = NatsClient(_location(settings)) if settings.store else None
    streams = LogStreams(jobs, epoch=lambda: role.epoch)

    def others(peers: PeerClient, _role: Role[OwnersTerm]) -> Others:
        times = LeaseTimes() if nats is None else LEASE_TIMES
        lease = Lease(
            clients.cluster, namespace=settings.lease_namespace, name=LEASE, identity=identity, times=times
        )

        def drained(within_s: float) -> Awaitable[None]:
            return pushes.drained(within_s)

        ended, port = lease.hurry, settings.secure_port
        by_stream = partial(Follower, jobs, settings.peers, peers, port=port, ended=ended)
        if nats is None:
            return Others(lease=lease, follower=by_stream(), streams=streams, drained=drained)
        place = Place(f"{identity}_{secrets.token_hex(4)}")
        in_nats = NatsFollower(jobs, nats, place, ended=ended)
        written = NatsLog(jobs, nats, place, port=port, streams=streams)
        client = nats
        return Others(
            lease=lease,
            follower=MovingFollower(
                in_nats, by_stream(limits=PEER_LIMITS), is_owned=lambda: lease.is_anothers
            )
            if settings.peers
            else in_nats,
            streams=written,
            drained=drained,
            shares=Shares(jobs, place.writer, written=written),
            member=Member(
                place.writer,
                jobs,
                peers,
                lambda member: build_term(given, member.may_write, ledger=member.outbox, holds=member.holds),
                holder=lambda: in_nats.owner,
                own=lambda: Address(client.own_host, port),
                followed=lambda: in_nats.followed,
                may_work=lambda: rights.is_known and rights.missing is None,
            ),
        )

    rights = Rights(clients.cluster, needed_by(settings), settings.namespaces)
    role = Role(
        jobs,
        lambda may_write: build_term(given, may_write, holds=_holds(role)),
        others=partial(others, peers) if peers is not None else None,
        is_fit=lambda: rights.missing is None,
    )
    pushes = Pushes(role, peers, keys=replica_keys, replicated=_replicated(role), kinds=lambda: table.now)
    _set_metrics(metrics, jobs, role, table)
    metrics.certificate_ends.set_function(lambda: expiry.ends.timestamp())
    metrics.certificate_lifetime.set_function(lambda: expiry.lifetime.total_seconds())

    def find_history(resource: str, namespace: str, name: str) -> Found | None:
        entry = store.get(resource, namespace, name)
        return None if entry is None else (entry, jobs.history(entry.document.job.ref))

    request_metrics = RequestMetrics(registry)
    shares = new_shares(Limits())
    authorizer = AccessReviewer(
        ReviewClient(clients.authorization, ACCESS_REVIEWS, count=metrics.count_authz)
    )
    questions = Questions(role, peers, shares)
    records = (
        JobRecords(Shelf(archive.bucket, archive.namespaces), authorizer, now=_now)
        if archive is not None
        else None
    )
    resources = ServedResources(
        store, request_metrics, shares, authorizer, questions.read_replicas, now=_now, records=records
    )
    resources.serve(table.now)
    draining = asyncio.Event()

    def drain() -> None:
        draining.set()
        resources.drain()
        pushes.served.end()

    log_tails = LogTails(
        find=store.get,
        authorizer=authorizer,
        logs=LogEnds(clients.cluster, timeout_s=settings.probe_timeout.total_seconds())
        if "logs" in settings.sources
        else None,
    )
    job_metrics = _job_metrics(settings, store, role, table)
    app = create_app(
        Parts(
            authenticator=RequestAuthenticator(
                lambda: trust.trust, TokenReviewer(token_reviews, admission=review_admission)
            ),
            authorizer=authorizer,
            log_tails=log_tails,
            diagnoses=Diagnoses(
                find=store.get,
                authorizer=authorizer,
                request=questions.diagnose,
                is_on="exec" in settings.sources,
            ),
            handlers=resources.handlers,
            resources=(*table.now.all_resources, *resources.archived),
            served=lambda: (*served(presence, table.now), *resources.archived),
            registry=registry,
            metrics=request_metrics,
            checks=[
                *lasting_checks(jobs, role, stopping, table),
                clock_check(lambda: clients.cluster.clock_ahead_s),
                certificate_check(expiry, certificate_fault),
                rights_check(role, rights),
                *([data_check(directory.writer)] if directory else []),
                *([archive_check(role)] if archive is not None else []),
                *([upstreams_check(role)] if clients.upstreams else []),
                *([store_check(role, role.others)] if nats is not None and role.others is not None else []),
            ],
            pushes=pushes if "push" in settings.sources else None,
            log_streams=LogRequests(streams, jobs, replica_keys, questions, pushes.served, role.others.shares)
            if role.others is not None
            else None,
            page=read_page(),
            job_metrics=JobMetrics(job_metrics, jobs) if settings.job_metrics else None,
            histories=HistorySource(find=find_history, now=_now),
            is_synced=jobs.is_listed,
            is_absent=lambda resource: is_absent(presence, resource, table.now),
            why_empty=lambda resource: missing_operator(presence, resource, table.now),
            is_draining=draining.is_set,
            shares=shares,
        )
    )

    before = table.now

    async def kinds_changed() -> None:
        """What is described now is served, and watched in a term of its own."""
        nonlocal before
        gone = set(before.resources) - set(table.now.resources)
        for name in set(before.collections) - set(table.now.collections):
            metrics.watches_down.remove(name)
        _count_watches(metrics, role, table.now.collections)
        before = table.now
        if role.may_write():
            for entry in [each for resource in gone for each in store.list(resource.plural).entries]:
                jobs.delete(entry.document.job.ref)
        presence.ask_for(table.now.asked, table.now.needed)
        await presence.ask()
        resources.serve(table.now)
        app.serve((*table.now.all_resources, *resources.archived), resources.handlers)
        role.renew()

    async def end() -> None:
        await role.end()
        if archive is not None:
            archive.bucket.close()
        if peers is not None:
            await peers.close()
        if nats is not None:
            await nats.close()

    loops: list[tuple[str, Loop]] = [
        ("role", role.run),
        ("pushes to other replicas", pushes.run),
        ("presence of kinds", presence.run),
        ("review of rights", rights.run),
        ("watches of kinds that go", partial(resources.follow, presence, lambda: table.now)),
        ("watch of the client CAs", trust.watch(clients.authentication).run),
        ("garbage collection", partial(_collect_garbage, partial(jobs.is_listed, ""))),
    ]
    if settings.otlp_endpoint:
        otlp = Collector(settings.otlp_endpoint, settings.otlp_headers_file, settings.otlp_ca_file)
        interval_s = settings.otlp_interval.total_seconds()
        loops.append(("push of metrics", OtlpPush(job_metrics, otlp.post, interval_s=interval_s).run))
    if nats is not None:
        loops.append(("files of the store", nats.follow_files))
    if settings.kinds is not None:
        loops.append(("described kinds", partial(table.follow, kinds_changed)))
    if directory is not None:
        loops.append(("data directory", directory.run))

    async def load() -> None:
        if directory is not None:
            await directory.load()

    return Assembly(app=app, loops=loops, load=load, leave=role.leave, drain=drain, end=end)


def _location(settings: Settings) -> Location:
    return Location(
        servers=settings.store,
        name=settings.store_name,
        replicas=settings.store_replicas,
        max_bytes=settings.store_max_mib * 1024 * 1024,
        credentials_file=settings.store_credentials_file,
        ca_file=settings.store_ca_file,
        cert_file=settings.store_cert_file,
        key_file=settings.store_key_file,
    )


def _archive(settings: Settings, cluster: KubeClient) -> Archive:
    """Raises Unusable."""
    return Archive(
        bucket=Bucket(settings.archive),
        namespaces=Namespaces(cluster),
        retention=Retention(
            age=settings.archive_max_age,
            bytes_of_namespace=settings.archive_namespace_max_mib * 1024 * 1024,
        ),
    )


class _DataDirectory:
    """The home of the log on disk."""

    def __init__(self, path: Path, settings: Settings, jobs: JobLog, metrics: Metrics) -> None:
        bounds = Bounds(
            max_bytes=settings.data_dir_max_mib * 1024 * 1024,
            max_age_s=settings.data_dir_max_age.total_seconds(),
        )
        self._log = jobs
        self._metrics = metrics
        writer = self.writer = StateWriter(path, bounds)
        metrics.is_degraded.set_function(lambda: writer.fault is not None)
        metrics.state_bytes.set_function(lambda: writer.size_bytes)

    async def load(self) -> None:
        loaded = await self.writer.load()
        for saved in loaded.states:
            self._log.set_state(saved.ref, restore(saved), None)
        for saved in loaded.histories:
            self._log.set_state(saved.ref, None, restore_history(saved))
        refs = {saved.ref.uid: saved.ref for saved in loaded.states}
        for uid, points in loaded.points:
            if (ref := refs.get(uid)) is not None:
                self._log.apply_state(ref, None, restore_points(points))
        self._log.add_home(self.writer)

    async def run(self) -> None:
        def state(ref: JobRef) -> SavedJob | None:
            kept = self._log.state(ref)
            return None if kept is None else save(ref, kept)

        def history(ref: JobRef) -> SavedJob | None:
            kept = self._log.history(ref)
            return None if kept is None else save_history(ref, kept)

        count = self._metrics.count_state_writes
        await self.writer.run(state, lambda: self._log, history=history, count=count)


def _replicated(role: Role[OwnersTerm]) -> Callable[[], Awaitable[bool]]:
    async def replicated() -> bool:
        others = role.others
        if others is None:
            return True
        if role.term is None and others.member is not None:
            return await others.member.replicated()
        return await others.streams.replicated()

    return replicated


def _holds(role: Role[OwnersTerm]) -> Callable[[JobRef], bool] | None:
    """Which jobs the owner of the log evaluates itself; None: all."""
    return role.others.shares.holds if role.others is not None and role.others.shares is not None else None


def _job_metrics(
    settings: Settings, store: MemoryStore, role: Role[OwnersTerm], table: KindTable
) -> JobMetricsSource:
    def pods(job: TrainingJob) -> Pods:
        job_pods = role.term.job_pods if role.term is not None else None
        return job_pods.of(job) if job_pods is not None else ()

    return JobMetricsSource(
        store=store,
        most=settings.job_metrics,
        metrics=frozenset(settings.job_metric_names),
        kinds=lambda: {each.plural: each.kind.removesuffix("Progress") for each in table.now.resources},
        is_owner=role.may_write,
        pods=pods,
    )


def _set_metrics(metrics: Metrics, jobs: JobLog, role: Role[OwnersTerm], table: KindTable) -> None:
    """Gauges of what a replica does with jobs are 0 on those that have none."""
    metrics.jobs.set_function(lambda: sum(jobs.store.count(each.plural) for each in table.now.resources))
    metrics.is_owner.set_function(lambda: role.may_write())
    metrics.probed_jobs.set_function(lambda: len(role.working.prober) if role.working else 0)
    metrics.waiting_probes.set_function(lambda: role.working.prober.waiting if role.working else 0)
    metrics.stretch.set_function(lambda: role.working.prober.stretch if role.working else 1)
    _count_watches(metrics, role, table.now.collections)
    metrics.waiting_write_backs.set_function(
        lambda: role.working.waiting_write_backs() if role.working else 0
    )


def _count_watches(metrics: Metrics, role: Role[OwnersTerm], collections: Iterable[str]) -> None:
    """Whether the watches of each of these are down."""

    def is_down(collection: str) -> bool:
        return role.working is not None and role.working.why_down(collection) is not None

    for each in collections:
        metrics.watches_down.labels(each).set_function(partial(is_down, each))


async def _collect_garbage(is_synced: Callable[[], bool]) -> None:
    """Collect garbage once every job is known. What was made until then stays: to look through it was a
    thirtieth of a start's CPU, and is left out for good, unless the start takes long."""
    for _ in range(NO_GARBAGE_CHECKS):
        if is_synced():
            gc.freeze()
            break
        await asyncio.sleep(NO_GARBAGE_CHECK_S)
    gc.enable()


def _now() -> datetime:
    return datetime.now(UTC)
