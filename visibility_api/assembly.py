"""What the server is made of: every object, built once and handed its collaborators.

Read from top to bottom it is the way of the data. Only this module knows both ends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from visibility_api.api.app import Api
from visibility_api.api.description.discovery import Discovery
from visibility_api.api.description.openapi import OpenApi
from visibility_api.api.documents.collection import Collection
from visibility_api.api.documents.watch import Watches
from visibility_api.api.health import Check, Health
from visibility_api.api.message import Handler, Receive, Scope, Send
from visibility_api.api.metrics import RequestMetrics, metrics_endpoint
from visibility_api.api.resources import RESOURCES
from visibility_api.api.routing import RouteKey, Routes
from visibility_api.api.version import version_endpoint
from visibility_api.auth.access_review import PATH as ACCESS_REVIEWS, AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.auth.review import Reviews
from visibility_api.auth.token_review import PATH as TOKEN_REVIEWS, TokenReviewer
from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.collections import trainjob_watches
from visibility_api.cluster.inventory import TRAINJOBS, TrainJobInventory
from visibility_api.cluster.watch import Watch
from visibility_api.cluster.write_back import WriteBack
from visibility_api.faults import describe_fault
from visibility_api.ingest.app import Ingest
from visibility_api.ingest.gate import Gate
from visibility_api.ingest.ownership import Owners
from visibility_api.ingest.relay import Relay
from visibility_api.probe.exec_source import ExecSource
from visibility_api.probe.http_source import HttpSource
from visibility_api.probe.logs_source import LogsSource
from visibility_api.probe.prober import Prober
from visibility_api.probe.source import Source
from visibility_api.progress.job import JobRef, TrainingJob
from visibility_api.progress.summary import JobProgress
from visibility_api.progress.tracker import REFRESH, Tracker
from visibility_api.settings import Settings
from visibility_api.store import Store
from visibility_api.store.memory import MemoryStore
from visibility_api.telemetry import Metrics

log = structlog.get_logger("visibility.server")

SOURCE_GRACE_S = 5.0  # a source keeps its own time-out; past this it is cut off
REVIEW_S = 1.0  # between two shares of the jobs that are judged anew
STUCK_S = 60.0  # a loop that has not turned for so long is stuck: liveness fails

App = Callable[[Scope, Receive, Send], Awaitable[None]]
Loop = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """One user of kube-apiserver a purpose; the same one where no other kubeconfig is given."""

    cluster: KubeClient
    authentication: KubeClient
    authorization: KubeClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What is to be served and kept running."""

    app: App
    loops: Sequence[tuple[str, Loop]]  # by name; each runs until it is cancelled
    drain: Callable[[], None]  # from now on watches are ended, and new ones refused


def assemble(
    settings: Settings,
    clients: Clients,
    trust: RequestHeaderConfig,
    stopping: asyncio.Event,
    *,
    certificate: Callable[[], bytes],
) -> Assembly:
    """Everything, for these settings; nothing runs yet. `stopping` makes /readyz fail; `certificate` is the
    one that we serve with, DER."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(registry)
    sources = settings.probe.sources

    store = MemoryStore(base_revision=_first_revision())
    write_back = WriteBack(clients.cluster, count=metrics.count_write_back) if settings.write_back else None

    def publish(document: JobProgress) -> None:
        store.put(document)
        if write_back is not None:
            write_back.changed(document)

    tracker = Tracker(
        publish=publish,
        retract=store.delete,
        now=_now,
        interval_s=settings.probe.interval_s,
        reads_status="status" in sources,
    )
    prober = Prober(
        _sources(settings, clients.cluster),
        record=tracker.observed,
        now=_now,
        interval_s=settings.probe.interval_s,
        concurrency=settings.probe.concurrency,
        deadline_s=settings.probe.timeout_s + SOURCE_GRACE_S,
        passive=[source for source in ("push", "status") if source in sources],
        on_look=metrics.count_look,
    )

    def on_job(job: TrainingJob) -> None:
        tracker.job_changed(job)
        prober.job_changed(job)
        if write_back is not None:
            write_back.seen(job)

    def on_gone(ref: JobRef) -> None:
        prober.job_gone(ref)
        tracker.job_gone(ref)
        if write_back is not None:
            write_back.gone(ref)

    inventory = TrainJobInventory(on_job=on_job, on_gone=on_gone)
    watches = trainjob_watches(clients.cluster, inventory, settings.namespaces)
    metrics.jobs.set_function(lambda: len(inventory))
    metrics.probed_jobs.set_function(lambda: len(prober))
    metrics.waiting_probes.set_function(lambda: prober.waiting)
    metrics.stretch.set_function(lambda: prober.stretch)
    if write_back is not None:
        metrics.waiting_write_backs.set_function(partial(len, write_back))

    is_synced = partial(_is_synced, watches)
    token_reviews = Reviews(clients.authentication, TOKEN_REVIEWS, count=metrics.count_review("authn"))
    health = Health(_checks(watches, prober, stopping))
    draining = asyncio.Event()
    api, open_watches = _api(
        store,
        clients,
        trust,
        TokenReviewer(token_reviews),
        metrics,
        registry,
        health,
        is_synced=is_synced,
        draining=draining,
    )

    def drain() -> None:
        draining.set()
        for each in open_watches:
            each.drain()

    app: App = api
    relay: Relay | None = None
    if "push" in sources:
        gate = Gate(
            # One of its own: a flood of bad tokens must not push API users out of what is remembered.
            TokenReviewer(token_reviews),
            Owners(clients.cluster),
            find_job=partial(_find_job, store),
            is_synced=is_synced,
        )
        if settings.peers:
            relay = Relay(
                settings.peers,
                port=settings.serving.secure_port,
                certificate=certificate,
                count=metrics.count_relayed,
            )
        ingest = Ingest(
            gate,
            record=tracker.observed,
            pushed=prober.postpone,
            count=metrics.count_push,
            relay=relay.pushed if relay is not None else None,
            now=_now,
        )
        app = _in_front(ingest, api)
    loops: list[tuple[str, Loop]] = [(f"watch {watch.path}", watch.run) for watch in watches]
    loops += [
        ("watch of the front proxy's certificates", trust.watch(clients.authentication).run),
        ("prober", prober.run),
        ("review", partial(_review, tracker)),
    ]
    if write_back is not None:
        loops.append(("write-back", write_back.run))
    if relay is not None:
        loops.append(("relay", relay.run))
    return Assembly(app=app, loops=loops, drain=drain)


def _sources(settings: Settings, client: KubeClient) -> dict[str, Source]:
    timeout_s = settings.probe.timeout_s
    known: dict[str, Callable[[], Source]] = {
        "exec": lambda: ExecSource(client, timeout_s=timeout_s),
        "http": lambda: HttpSource(timeout_s=timeout_s),
        "logs": lambda: LogsSource(client, timeout_s=timeout_s),
    }
    return {name: make() for name, make in known.items() if name in settings.probe.sources}


def _api(
    store: Store,
    clients: Clients,
    trust: RequestHeaderConfig,
    tokens: TokenReviewer,
    metrics: Metrics,
    registry: CollectorRegistry,
    health: Health,
    *,
    is_synced: Callable[[str], bool],
    draining: asyncio.Event,
) -> tuple[Api, list[Watches]]:
    """The Kubernetes API over `store`, and the parts of it that have to be drained."""
    request_metrics = RequestMetrics(registry)

    handlers: dict[RouteKey, Handler] = {}
    open_watches: list[Watches] = []
    for resource in RESOURCES:
        documents = Collection(resource, store, now=_now)
        changes = Watches(
            resource,
            store,
            now=_now,
            count_events=partial(request_metrics.count_watch_events, resource.plural),
        )
        open_watches.append(changes)
        handlers[resource.plural, "", "get"] = documents.get
        handlers[resource.plural, "", "list"] = documents.list
        handlers[resource.plural, "", "watch"] = changes.watch
        for subresource in resource.subresources:
            handlers[resource.plural, subresource.name, "get"] = documents.get

    api = Api(
        authenticator=RequestAuthenticator(
            lambda: trust.trust,
            tokens,
        ),
        authorizer=AccessReviewer(
            Reviews(clients.authorization, ACCESS_REVIEWS, count=metrics.count_review("authz"))
        ),
        routes=Routes(
            resources=RESOURCES,
            handlers=handlers,
            endpoints={
                **Discovery(RESOURCES).endpoints(),
                **OpenApi(RESOURCES).endpoints(),
                **health.endpoints(),
                **metrics_endpoint(registry),
                **version_endpoint(),
            },
        ),
        metrics=request_metrics,
        is_synced=is_synced,
        is_draining=draining.is_set,
    )
    return api, open_watches


def _find_job(store: Store, namespace: str, name: str) -> TrainingJob | None:
    entry = store.get(TRAINJOBS, namespace, name)
    return entry.document.job if entry is not None else None


def _in_front(ingest: Ingest, api: Api) -> App:
    """Pushes have an authentication of their own; everything else is the API's."""

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (ingest if ingest.takes(scope) else api)(scope, receive, send)

    return app


def _first_revision() -> int:
    """The start in nanoseconds, its last digits by chance, so that no two replicas begin alike.

    Revisions grow by thousands a second at most, nanoseconds by a thousand million: an older process never
    counts up to where a younger one began, and each tells the other's revisions from its own (L9).
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
        return f"the probe loop has not turned for {age_s:.0f}s" if age_s > STUCK_S else None

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
    """Whether all is known of a namespace ("" = of every one): a missing right in one hides no other."""
    for watch in watches:  # for each request: no generator
        if not watch.health.synced and (not namespace or watch.scope in (None, namespace)):
            return False
    return True


async def _review(tracker: Tracker) -> None:
    """Each job is judged once in REFRESH, whether or not anything is heard of it."""
    while True:
        await asyncio.sleep(REVIEW_S)
        try:
            tracker.review(REVIEW_S / REFRESH.total_seconds())
        except Exception as error:  # about one job; the next share goes on after it (decision 0005)
            log.error("job not judged", **describe_fault(error))


def _now() -> datetime:
    return datetime.now(UTC)
