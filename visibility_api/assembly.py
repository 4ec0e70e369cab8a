"""The composition root: builds every object once and hands it its collaborators.

`assemble` follows the way of the data, from the sources to the application.
"""

from __future__ import annotations

import asyncio
import gc
import random
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from visibility_api.app import Application, Parts, create_app
from visibility_api.app.dependencies import Found, HistorySource, LogTails
from visibility_api.app.health import Check
from visibility_api.app.page import read_page
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.resource_routes import RouteKey
from visibility_api.auth.access_review import PATH as ACCESS_REVIEWS, AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.auth.review_admission import ReviewAdmission
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH as TOKEN_REVIEWS, TokenReviewer
from visibility_api.continuity import Continuity
from visibility_api.errors.faults import describe_fault
from visibility_api.events.announcer import Announcer
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import REFRESH, Tracker
from visibility_api.kube.client import KubeClient
from visibility_api.kube.lease import Lease
from visibility_api.kube.watch import Watch
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import Handler
from visibility_api.kubeapi.watch import Watches
from visibility_api.models.served import RESOURCES, TRAINJOBS
from visibility_api.probing.exec_source import ExecSource
from visibility_api.probing.http_source import HttpSource
from visibility_api.probing.initializers import InitializerReads
from visibility_api.probing.log_end import LogEnds
from visibility_api.probing.logs_source import LogsSource
from visibility_api.probing.probe import Source
from visibility_api.probing.prober import Prober
from visibility_api.pushing.admission import Admission
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.pushing.ownership import Owners
from visibility_api.pushing.replication import Relay
from visibility_api.settings import Settings
from visibility_api.store import Store
from visibility_api.store.memory import MemoryStore
from visibility_api.telemetry import Metrics
from visibility_api.workloads.collections import trainjob_watches
from visibility_api.workloads.inspection import Inspector
from visibility_api.workloads.inventory import TrainJobInventory
from visibility_api.writeback.writer import WriteBack

log = structlog.get_logger("visibility.server")

SOURCE_GRACE_S = 5.0  # beyond a source's own time-out; then the prober cancels it
EVENTS_LEASE = "trainjob-visibility-events"
EVALUATION_S = 1.0  # between two shares of the jobs, whose conditions are evaluated
NO_GARBAGE_CHECK_S, NO_GARBAGE_CHECKS = 0.1, 200  # until every job is known: twenty seconds at most
STUCK_S = 60.0  # a loop without an iteration for so long is stuck: liveness fails

Loop = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of kube-apiserver for each purpose; the same one unless other kubeconfigs are given."""

    cluster: KubeClient
    authentication: KubeClient
    authorization: KubeClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The application to serve and the loops to run."""

    app: Application
    loops: Sequence[tuple[str, Loop]]  # by name; each runs until it is cancelled
    drain: Callable[[], None]  # end the open watches and refuse new ones
    load: Loop  # read what an earlier process has kept; ends before the loops begin


def assemble(
    settings: Settings,
    clients: Clients,
    trust: RequestHeaderConfig,
    stopping: asyncio.Event,
    *,
    certificate: Callable[[], bytes],
    proof: Callable[[], str],
) -> Assembly:
    """Build everything for these settings; nothing runs yet. `stopping` makes /readyz fail; `certificate`
    returns the serving certificate, DER, and `proof` what other replicas recognise this one by."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(registry)
    sources = settings.sources

    store = MemoryStore(base_revision=_first_revision())
    write_back = WriteBack(clients.cluster, count=metrics.count_write_back) if settings.write_back else None
    continuity = Continuity(settings, metrics)
    announcer, lease = _announcing(settings, clients.cluster, metrics)

    def publish(document: JobProgress) -> None:
        store.put(document)
        continuity.changed(document.job.ref)
        if write_back is not None:
            write_back.changed(document)
        if announcer is not None:
            announcer.changed(document)

    tracker = Tracker(
        publish=publish,
        retract=store.delete,
        now=_now,
        interval_s=settings.probe_interval.total_seconds(),
        recall=continuity.recall,
        recall_history=continuity.recall_history,
    )
    sources_to_probe = _sources(settings, clients.cluster)
    prober = Prober(
        sources_to_probe,
        record=tracker.observed,
        now=_now,
        interval_s=settings.probe_interval.total_seconds(),
        concurrency=settings.probe_concurrency,
        deadline_s=settings.probe_timeout.total_seconds() + SOURCE_GRACE_S,
        passive=[source for source in ("push", "status") if source in sources],
        on_probe=metrics.count_probe,
    )

    def on_job(job: TrainingJob, status: Observation | None) -> None:
        if write_back is not None:
            write_back.seen(job.ref, status)
        is_new = job.ref not in tracker
        before = _find_job(store, job.ref.namespace, job.ref.name)
        tracker.job_changed(job, status if "status" in sources else None)
        prober.job_changed(job, source=tracker.source_of(job.ref) if is_new else "")
        initializers.job_changed(job)
        inspector.job_changed(before, job)
        if is_new and tracker.lacks_final_report(job.ref):
            prober.job_found(job)

    def on_gone(ref: JobRef) -> None:
        prober.job_gone(ref)
        initializers.job_gone(ref)
        inspector.job_gone(ref)
        tracker.job_gone(ref)
        continuity.gone(ref)
        if write_back is not None:
            write_back.gone(ref)
        if announcer is not None:
            announcer.gone(ref)

    inventory = TrainJobInventory(on_job=on_job, on_gone=on_gone)
    inspector = Inspector(clients.cluster, replica_jobs=inventory.replica_jobs, found=tracker.failed)
    logs = sources_to_probe.get("logs")
    initializers = InitializerReads(
        logs if isinstance(logs, LogsSource) else None,
        said=inventory.initializers_said,
        interval_s=settings.probe_interval.total_seconds(),
        on_probe=metrics.count_probe,
    )
    watches = trainjob_watches(clients.cluster, inventory, settings.namespaces)
    metrics.jobs.set_function(lambda: len(inventory))
    metrics.probed_jobs.set_function(lambda: len(prober))
    metrics.waiting_probes.set_function(lambda: prober.waiting)
    metrics.stretch.set_function(lambda: prober.stretch)
    if write_back is not None:
        metrics.waiting_write_backs.set_function(partial(len, write_back))

    is_synced = partial(_is_synced, watches)
    token_reviews = ReviewClient(clients.authentication, TOKEN_REVIEWS, count=metrics.count_review("authn"))
    review_admission = ReviewAdmission()  # kube-apiserver is asked by pushes and by the API alike
    relay: Relay | None = None
    if "push" in sources and settings.peers:
        relay = Relay(
            settings.peers,
            port=settings.secure_port,
            certificate=certificate,
            proof=proof,
            count=metrics.count_relayed,
        )
    continuity.connect(
        tracker,
        certificate=certificate,
        proof=proof,
        met=relay.introduce if relay is not None else lambda _address: None,
        recalled=lambda ref: prober.recalled(ref, tracker.source_of(ref)),
    )
    pushes: PushEndpoint | None = None
    if "push" in sources:
        pushes = PushEndpoint(
            Admission(
                # One of its own: the many tokens of pods, which are cached as grants, must not push those of
                # API users out of the cache.
                TokenReviewer(token_reviews),
                Owners(clients.cluster),
                find_job=partial(_find_job, store),
                is_synced=is_synced,
                reviews=review_admission,
            ),
            record=tracker.observed,
            pushed=prober.postpone,
            count=metrics.count_push,
            relay=relay.pushed if relay is not None else None,
            now=_now,
        )

    def find_history(namespace: str, name: str) -> Found | None:
        entry = store.get(TRAINJOBS.plural, namespace, name)
        return None if entry is None else (entry, tracker.history(entry.document.job.ref))

    request_metrics = RequestMetrics(registry)
    handlers, open_watches = _resource_handlers(store, request_metrics)
    draining = asyncio.Event()

    def drain() -> None:
        draining.set()
        for each in open_watches:
            each.drain()

    authorizer = AccessReviewer(
        ReviewClient(clients.authorization, ACCESS_REVIEWS, count=metrics.count_review("authz"))
    )
    log_tails = LogTails(
        find=partial(store.get, TRAINJOBS.plural),
        authorizer=authorizer,
        logs=LogEnds(clients.cluster, timeout_s=settings.probe_timeout.total_seconds())
        if "logs" in sources
        else None,
    )
    app = create_app(
        Parts(
            authenticator=RequestAuthenticator(
                lambda: trust.trust, TokenReviewer(token_reviews, admission=review_admission)
            ),
            authorizer=authorizer,
            log_tails=log_tails,
            handlers=handlers,
            registry=registry,
            metrics=request_metrics,
            checks=[*_checks(watches, prober, stopping), *continuity.checks(partial(is_synced, ""))],
            pushes=pushes,
            peers=continuity.giver,
            page=read_page(),
            histories=HistorySource(find=find_history, now=_now),
            is_synced=is_synced,
            is_draining=draining.is_set,
        )
    )

    async def follow(watch: Watch[Any]) -> None:
        await continuity.taken()
        await watch.run()

    loops: list[tuple[str, Loop]] = [(f"watch {watch.path}", partial(follow, watch)) for watch in watches]
    loops += [
        ("watch of the client CAs", trust.watch(clients.authentication).run),
        ("prober", prober.run),
        ("inspection", inspector.run),
        ("initializers", initializers.run),
        ("evaluation", partial(_evaluate, tracker)),
        ("garbage collection", partial(_collect_garbage, partial(is_synced, ""))),
        *continuity.loops(partial(is_synced, "")),
    ]
    if write_back is not None:
        loops.append(("write-back", write_back.run))
    if relay is not None:
        loops.append(("relay", relay.run))
    if announcer is not None and lease is not None:
        loops += [("lease", lease.run), ("events", announcer.run)]
    return Assembly(app=app, loops=loops, drain=drain, load=continuity.load)


def _sources(settings: Settings, client: KubeClient) -> dict[str, Source]:
    timeout_s = settings.probe_timeout.total_seconds()
    known: dict[str, Callable[[], Source]] = {
        "exec": lambda: ExecSource(client, timeout_s=timeout_s),
        "http": lambda: HttpSource(timeout_s=timeout_s),
        "logs": lambda: LogsSource(client, timeout_s=timeout_s),
    }
    return {name: make() for name, make in known.items() if name in settings.sources}


def _announcing(
    settings: Settings, client: KubeClient, metrics: Metrics
) -> tuple[Announcer, Lease] | tuple[None, None]:
    """What writes Events, and the Lease of the one replica that does."""
    if not settings.events:
        return None, None
    # The host's name is the pod's. A restarted container is another process, which must not hold its lease.
    identity = f"{socket.gethostname()[:100]}_{secrets.token_hex(4)}"
    lease = Lease(client, namespace=settings.lease_namespace, name=EVENTS_LEASE, identity=identity)
    announcer = Announcer(
        client, instance=identity, may_write=lambda: lease.is_held, count=metrics.count_event
    )
    return announcer, lease


def _resource_handlers(
    store: Store, metrics: RequestMetrics
) -> tuple[dict[RouteKey, Handler], list[Watches]]:
    """The resource path's handlers, and the watches among them, to be drained at shutdown."""
    handlers: dict[RouteKey, Handler] = {}
    open_watches: list[Watches] = []
    for resource in RESOURCES:
        documents = Collection(resource, store, now=_now)
        changes = Watches(
            resource, store, now=_now, count_events=partial(metrics.count_watch_events, resource.plural)
        )
        open_watches.append(changes)
        handlers[resource.plural, "", "get"] = documents.get
        handlers[resource.plural, "", "list"] = documents.list
        handlers[resource.plural, "", "watch"] = changes.watch
        for subresource in resource.subresources:
            if not subresource.is_operation:
                handlers[resource.plural, subresource.name, "get"] = documents.get
    return handlers, open_watches


def _find_job(store: Store, namespace: str, name: str) -> TrainingJob | None:
    entry = store.get(TRAINJOBS.plural, namespace, name)
    return entry.document.job if entry is not None else None


def _first_revision() -> int:
    """The start time in nanoseconds with random last digits, so that no two replicas start alike.

    Revisions grow by thousands a second, nanoseconds by a thousand million: an older process never counts up
    to the start of a younger one. So a resourceVersion of another replica or of an earlier process is
    recognised, and answered with 410 instead of a watch that silently misses changes.
    """
    return time.time_ns() // 1_000_000 * 1_000_000 + random.randrange(1_000_000)


def _checks(watches: list[Watch[Any]], prober: Prober, stopping: asyncio.Event) -> list[Check]:
    def untried() -> str | None:
        waiting = [w.path for w in watches if not w.health.attempted]
        return f"not listed yet: {', '.join(waiting)}" if waiting else None

    def stuck() -> str | None:
        if not prober.last_turn:
            return None
        age_s = asyncio.get_running_loop().time() - prober.last_turn
        return f"the probe loop has been stuck for {age_s:.0f}s" if age_s > STUCK_S else None

    return [
        Check(name="informer-sync", run=untried, is_readiness_only=True),
        Check(name="probe-loop", run=stuck),
        Check(
            name="shutdown",
            run=lambda: "the server is shutting down" if stopping.is_set() else None,
            is_readiness_only=True,
        ),
    ]


def _is_synced(watches: Sequence[Watch[Any]], namespace: str) -> bool:
    """Whether a namespace ("" = every one) is listed: a missing right in one does not block the others."""
    for watch in watches:  # called for each request, so without a generator
        if not watch.health.synced and (not namespace or watch.scope in (None, namespace)):
            return False
    return True


async def _evaluate(tracker: Tracker) -> None:
    """Evaluate the conditions of each job once in REFRESH, whether or not a report comes."""
    while True:
        await asyncio.sleep(EVALUATION_S)
        try:
            tracker.review(EVALUATION_S / REFRESH.total_seconds())
        except Exception as error:  # of one job; the next share goes on after it: docs/decisions/0005
            log.error("job not evaluated", **describe_fault(error))


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
