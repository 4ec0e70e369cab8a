"""The composition root: builds every object once, hands each its collaborators, and owns the one task group.

Watches, prober and HTTP server are siblings in it: when one ends unexpectedly the process ends, and the
kubelet starts it anew, instead of answering 200 from dead loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from visibility_api import __version__
from visibility_api.api.app import Api
from visibility_api.api.description.discovery import Discovery
from visibility_api.api.description.openapi import OpenApi
from visibility_api.api.documents.collection import Collection
from visibility_api.api.documents.watch import Watches
from visibility_api.api.health import Check, Health
from visibility_api.api.message import Handler
from visibility_api.api.metrics import RequestMetrics, metrics_endpoint
from visibility_api.api.resources import RESOURCES
from visibility_api.api.routing import RouteKey, Routes
from visibility_api.api.version import version_endpoint
from visibility_api.auth.access_review import PATH as ACCESS_REVIEWS, AccessReviewer
from visibility_api.auth.authenticator import RequestAuthenticator
from visibility_api.auth.errors import AuthError
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.auth.review import Reviews
from visibility_api.auth.token_review import PATH as TOKEN_REVIEWS, TokenReviewer
from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.collections import trainjob_watches
from visibility_api.cluster.errors import ClusterError
from visibility_api.cluster.inventory import TrainJobInventory
from visibility_api.cluster.watch import Watch
from visibility_api.cluster.write_back import WriteBack
from visibility_api.faults import describe_fault
from visibility_api.probe.exec_source import ExecSource
from visibility_api.probe.prober import Prober
from visibility_api.progress.job import JobRef, TrainingJob
from visibility_api.progress.summary import JobProgress
from visibility_api.progress.tracker import REFRESH, Tracker
from visibility_api.serving.certificate import provide_certificate
from visibility_api.serving.connection import TlsConnection
from visibility_api.serving.tls import ServingTls
from visibility_api.settings import Settings, shown
from visibility_api.store.memory import MemoryStore
from visibility_api.telemetry import Metrics, set_up_logs

log = structlog.get_logger("visibility.server")

KEEP_ALIVE_S = 120  # above the aggregator's 90 s, or its requests race with our closes (P12)
DRAIN_S = 60  # requests under way at shutdown may take this long (P10)
REVIEW_S = 1.0  # between two shares of the jobs that are judged anew
STUCK_S = 60.0  # a loop that has not turned for so long is stuck: liveness fails
BACKLOG = 2048


class StartFailed(Exception):
    """The server cannot start; the message says why and what to do."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartFailed."""
    set_up_logs(settings.verbosity)
    log.info("settings", **shown(settings))
    # Documents live long and form no cycles: looking through all of them often finds nothing.
    gc.set_threshold(50_000, 20, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as stack:
        try:
            clients = await _connect(settings, stack)
            tls = _serving_tls(settings)
            trust = RequestHeaderConfig(on_change=lambda trust: tls.trust(trust.ca_pem))
            await trust.load(clients.authentication, tolerate_failure=settings.auth.tolerate_lookup_failure)
            listener = stack.enter_context(_listen(settings))
        except (AuthError, ClusterError, OSError) as error:
            raise StartFailed(str(error)) from error
        server = _build(settings, clients, tls, trust, stopping)
        await server.run(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clients:
    """One user of kube-apiserver a purpose; the same one where no other kubeconfig is given."""

    cluster: KubeClient
    authentication: KubeClient
    authorization: KubeClient


async def _connect(settings: Settings, stack: contextlib.AsyncExitStack) -> _Clients:
    cluster = await stack.enter_async_context(await KubeClient.connect(settings.kubeconfig))

    async def other(kubeconfig: Path | None) -> KubeClient:
        if kubeconfig is None or kubeconfig == settings.kubeconfig:
            return cluster
        return await stack.enter_async_context(await KubeClient.connect(kubeconfig))

    return _Clients(
        cluster=cluster,
        authentication=await other(settings.auth.authentication_kubeconfig),
        authorization=await other(settings.auth.authorization_kubeconfig),
    )


def _serving_tls(settings: Settings) -> ServingTls:
    serving = settings.serving
    files = (serving.tls_cert_file, serving.tls_private_key_file)
    certificate, key = (
        (files[0], files[1]) if files[0] and files[1] else provide_certificate(serving.cert_dir, ())
    )
    return ServingTls(certificate_file=certificate, key_file=key)


def _listen(settings: Settings) -> socket.socket:
    """As in Kubernetes components, either unspecified address listens on IPv4 and IPv6 alike: the default
    must be reachable in a cluster of any IP family."""
    address, port = settings.serving.bind_address, settings.serving.secure_port
    try:
        if ipaddress.ip_address(address).is_unspecified:
            try:
                return socket.create_server(
                    ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
                )
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                address = "0.0.0.0"  # noqa: S104 - this host has no IPv6
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise StartFailed(f"cannot listen on {address} port {port}: {why}") from error


def _build(
    settings: Settings,
    clients: _Clients,
    tls: ServingTls,
    trust: RequestHeaderConfig,
    stopping: asyncio.Event,
) -> _Server:
    """Every object, once; read from top to bottom it is the way of the data."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics, request_metrics = Metrics(registry), RequestMetrics(registry)

    store = MemoryStore(base_revision=_first_revision())
    write_back = WriteBack(clients.cluster, count=metrics.count_write_back) if settings.write_back else None

    def publish(document: JobProgress) -> None:
        store.put(document)
        if write_back is not None:
            write_back.changed(document)

    tracker = Tracker(publish=publish, retract=store.delete, now=_now, interval_s=settings.probe.interval_s)
    prober = Prober(
        {"exec": ExecSource(clients.cluster, timeout_s=settings.probe.timeout_s)},
        record=tracker.observed,
        now=_now,
        interval_s=settings.probe.interval_s,
        concurrency=settings.probe.concurrency,
        on_look=metrics.count_look,
    )
    is_probing = "exec" in settings.probe.sources

    def on_job(job: TrainingJob) -> None:
        tracker.job_changed(job)
        if write_back is not None:
            write_back.seen(job)
        if is_probing:
            prober.job_changed(job)

    def on_gone(ref: JobRef) -> None:
        prober.job_gone(ref)
        tracker.job_gone(ref)
        if write_back is not None:
            write_back.gone(ref)

    inventory = TrainJobInventory(on_job=on_job, on_gone=on_gone)
    metrics.jobs.set_function(lambda: len(inventory))
    metrics.probed_jobs.set_function(lambda: len(prober))
    if write_back is not None:
        metrics.waiting_write_backs.set_function(partial(len, write_back))
    watches = trainjob_watches(clients.cluster, inventory, settings.namespaces)

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

    health = Health(_checks(watches, prober if is_probing else None, stopping))
    draining = asyncio.Event()
    api = Api(
        authenticator=RequestAuthenticator(
            lambda: trust.trust,
            TokenReviewer(
                Reviews(clients.authentication, TOKEN_REVIEWS, count=metrics.count_review("authn"))
            ),
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
        is_synced=partial(_is_synced, watches),
        is_draining=draining.is_set,
    )
    return _Server(
        settings=settings,
        api=api,
        tls=tls,
        prober=prober if is_probing else None,
        tracker=tracker,
        write_back=write_back,
        watches=[*watches, trust.watch(clients.authentication)],
        open_watches=open_watches,
        stopping=stopping,
        draining=draining,
    )


def _first_revision() -> int:
    """The start in nanoseconds, its last digits by chance, so that no two replicas begin alike.

    Revisions grow by thousands a second at most, nanoseconds by a thousand million: an older process never
    counts up to where a younger one began, and each tells the other's revisions from its own (L9).
    """
    return time.time_ns() // 1_000_000 * 1_000_000 + random.randrange(1_000_000)


def _checks(watches: list[Watch[Any]], prober: Prober | None, stopping: asyncio.Event) -> list[Check]:
    def untried() -> str | None:
        waiting = [w.path for w in watches if not w.health.attempted]
        return f"not listed yet: {', '.join(waiting)}" if waiting else None

    def stuck() -> str | None:
        if prober is None or not prober.last_turn:
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
    return all(w.health.synced for w in watches if not namespace or w.scope in (None, namespace))


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


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: ours come first and shut down in order (P10)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """Everything that runs, and how it starts and ends."""

    settings: Settings
    api: Api
    tls: ServingTls
    prober: Prober | None
    tracker: Tracker
    write_back: WriteBack | None
    watches: list[Watch[Any]]
    open_watches: list[Watches]
    stopping: asyncio.Event
    draining: asyncio.Event

    async def run(self, listener: socket.socket) -> None:
        """Until `stopping` is set. A task of the group that fails ends them all, with its error."""
        http = _HttpServer(
            uvicorn.Config(
                self.api,
                http=TlsConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                ssl_context_factory=lambda _config, _default: self.tls.context,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=DRAIN_S,
                proxy_headers=False,  # X-Forwarded-For is nothing to us, and reading it costs every request
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=True,
            )
        )
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self.tls.follow_files(), name="serving certificate"),
                group.create_task(_review(self.tracker), name="review"),
                *(group.create_task(watch.run(), name=f"watch {watch.path}") for watch in self.watches),
            ]
            if self.prober is not None:
                loops.append(group.create_task(self.prober.run(), name="prober"))
            if self.write_back is not None:
                loops.append(group.create_task(self.write_back.run(), name="write-back"))
            serving = group.create_task(http.serve(sockets=[listener]), name="https")
            host, port = listener.getsockname()[:2]
            address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
            log.info("serving", version=__version__, address=address)
            await self.stopping.wait()
            log.info("shutting down", delay_s=self.settings.serving.shutdown_delay_s)
            # Everything is still served while the endpoints forget us, then the watches end cleanly.
            await asyncio.sleep(self.settings.serving.shutdown_delay_s)
            self.draining.set()
            for watches in self.open_watches:
                watches.drain()
            http.should_exit = True
            await serving
            for loop in loops:
                loop.cancel()
        log.info("stopped")
