"""The process: connects, listens, and owns the one task group until it is told to end.

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
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn
import uvloop

from visibility_api import __version__
from visibility_api.auth.errors import AuthError
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.errors import ClusterError
from visibility_api.serving.certificate import provide_certificate
from visibility_api.serving.connection import TlsConnection
from visibility_api.serving.tls import ServingTls
from visibility_api.settings import Settings, shown
from visibility_api.telemetry import set_up_logs

from .assembly import App, Assembly, Clients, assemble

log = structlog.get_logger("visibility.server")

KEEP_ALIVE_S = 120  # above the aggregator's 90 s, or its requests race with our closes (P12)
DRAIN_S = 60  # requests under way at shutdown may take this long (P10)
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
        assembly = assemble(settings, clients, trust, stopping, certificate=lambda: tls.certificate)
        await _run(settings, assembly, tls, listener, stopping)


async def _run(
    settings: Settings, assembly: Assembly, tls: ServingTls, listener: socket.socket, stopping: asyncio.Event
) -> None:
    """Until `stopping` is set. A task of the group that fails ends them all, with its error."""
    http = _http_server(assembly.app, tls)
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(run(), name=name) for name, run in assembly.loops]
        loops.append(group.create_task(tls.follow_files(), name="serving certificate"))
        serving = group.create_task(http.serve(sockets=[listener]), name="https")
        host, port = listener.getsockname()[:2]
        address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        log.info("serving", version=__version__, address=address)
        await stopping.wait()
        log.info("shutting down", delay_s=settings.serving.shutdown_delay_s)
        # Everything is still served while the endpoints forget us, then the watches end cleanly.
        await asyncio.sleep(settings.serving.shutdown_delay_s)
        assembly.drain()
        http.should_exit = True
        await serving
        for loop in loops:
            loop.cancel()
    log.info("stopped")


async def _connect(settings: Settings, stack: contextlib.AsyncExitStack) -> Clients:
    cluster = await stack.enter_async_context(await KubeClient.connect(settings.kubeconfig))

    async def other(kubeconfig: Path | None) -> KubeClient:
        if kubeconfig is None or kubeconfig == settings.kubeconfig:
            return cluster
        return await stack.enter_async_context(await KubeClient.connect(kubeconfig))

    return Clients(
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


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: ours come first and shut down in order (P10)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _http_server(app: App, tls: ServingTls) -> _HttpServer:
    return _HttpServer(
        uvicorn.Config(
            app,
            http=TlsConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            ssl_context_factory=lambda _config, _default: tls.context,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            proxy_headers=False,  # X-Forwarded-For is nothing to us, and reading it costs every request
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
        )
    )
