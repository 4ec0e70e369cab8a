"""The process: connects, listens, and owns the one task group until SIGTERM or SIGINT.

Watches, prober and HTTP server are siblings in it: when one ends unexpectedly, the process ends and the
kubelet restarts it, instead of a server that answers 200 while its loops are dead.
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
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import structlog
import uvloop

from visibility_api import __version__
from visibility_api.archive.bucket import Unusable
from visibility_api.assembly import Assembly, Clients, assemble
from visibility_api.auth.errors import AuthError
from visibility_api.auth.request_header_config import RequestHeaderConfig
from visibility_api.auth.trusted_proxy import ProxyRules, TrustedProxyFile
from visibility_api.certificates.expiry import Expiry
from visibility_api.certificates.files import CertificateFiles
from visibility_api.certificates.making import provide_certificate
from visibility_api.certificates.secret import CertificateSecret
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ClusterError
from visibility_api.replication.nats_client import Unusable as StoreUnusable
from visibility_api.replication.role import Loop
from visibility_api.serving.http_server import HttpServer
from visibility_api.serving.tls import ServingTls
from visibility_api.settings import Settings, shown
from visibility_api.telemetry import set_up_logs

log = structlog.get_logger("visibility.server")


class StartFailed(Exception):
    """The server cannot start; the message says why and what to do."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartFailed."""
    set_up_logs(settings.v)
    log.info("settings", **shown(settings))
    # Documents live long and form no cycles: frequent full collections would find nothing. A collection of
    # younger objects stops everybody: of 10,000 for 4 ms, of 100,000 for 40. The assembly switches it on.
    gc.set_threshold(1_000, 10, 10_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        set_up_threads(runner.get_loop())
        runner.run(_serve(settings))


def set_up_threads(loop: asyncio.AbstractEventLoop) -> None:
    """What pods have printed is read in one thread, which gives way to the loop soon: by default Python's
    lock is handed on after 5 ms, and each thread more is waited for as well."""
    sys.setswitchinterval(0.0005)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside"))


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as stack:
        try:
            clients = await _connect(settings, stack)
            certificate = _certificate(settings, clients.cluster)
            pair = (
                certificate.read() if isinstance(certificate, CertificateFiles) else await certificate.load()
            )
            # Without other replicas nobody has to be told first.
            tls = ServingTls(pair, settle_s=certificate.settle_s if settings.peers or settings.store else 0.0)
            expiry = Expiry(lambda: tls.pairs[0])
            expiry.require_valid()
            trust = RequestHeaderConfig(on_change=lambda trust: tls.trust(trust.ca_pem))
            proxy_file = _trusted_proxy(settings, trust)
            await trust.load(
                clients.authentication, tolerate_failure=settings.authentication_tolerate_lookup_failure
            )
            listener = stack.enter_context(_listen(settings))
        except (AuthError, ClusterError, OSError) as error:
            raise StartFailed(str(error)) from error
        try:
            assembly = assemble(
                settings,
                clients,
                trust,
                stopping,
                certificates=lambda: tls.pairs,
                expiry=expiry,
                certificate_fault=lambda: certificate.fault,
            )
        except (Unusable, StoreUnusable) as error:
            raise StartFailed(str(error)) from error
        await assembly.load()
        followed: list[Loop] = [
            partial(certificate.follow, tls),
            expiry.remind,
            *([proxy_file.follow] if proxy_file else []),
        ]
        await _run(settings, assembly, followed, HttpServer(assembly.app, tls), listener, stopping)


async def _run(
    settings: Settings,
    assembly: Assembly,
    followed: Sequence[Loop],
    http: HttpServer,
    listener: socket.socket,
    stopping: asyncio.Event,
) -> None:
    """Run until `stopping` is set. When a task of the group fails, all end, with its error.

    `followed`: loops that renew certificates and reload files."""
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(run(), name=name) for name, run in assembly.loops]
        loops += [group.create_task(follow(), name="certificates") for follow in followed]
        serving = group.create_task(http.serve(sockets=[listener]), name="https")
        host, port = listener.getsockname()[:2]
        address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        log.info("serving", version=__version__, address=address)
        await stopping.wait()
        delay_s = settings.shutdown_delay_duration.total_seconds()
        log.info("shutting down", delay_s=delay_s)
        await assembly.leave()
        # Requests are still served while this pod is removed from the Service's endpoints; then watches end.
        await asyncio.sleep(delay_s)
        http.drain = assembly.drain
        http.should_exit = True
        await serving
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
        await assembly.end()
    log.info("stopped")


async def _connect(settings: Settings, stack: contextlib.AsyncExitStack) -> Clients:
    cluster = await stack.enter_async_context(await KubeClient.connect(settings.kubeconfig))

    async def other(kubeconfig: Path | None) -> KubeClient:
        if kubeconfig is None or kubeconfig == settings.kubeconfig:
            return cluster
        return await stack.enter_async_context(await KubeClient.connect(kubeconfig))

    return Clients(
        cluster=cluster,
        authentication=await other(settings.authentication_kubeconfig),
        authorization=await other(settings.authorization_kubeconfig),
        upstreams={
            file.name: await stack.enter_async_context(await KubeClient.connect(file, is_foreign=True))
            for file in _kubeconfigs(settings.upstreams)
        },
    )


def _kubeconfigs(directory: Path | None) -> list[Path]:
    """Those of other clusters. Raises StartFailed."""
    if directory is None:
        return []
    # A mounted Secret has links of its own, whose names begin with a dot.
    files = sorted(each for each in directory.glob("[!.]*") if each.is_file())
    if not files:
        raise StartFailed(f"--upstreams: there is no kubeconfig in {directory}")
    return files


def _certificate(settings: Settings, cluster: KubeClient) -> CertificateFiles | CertificateSecret:
    if settings.certificate_secret:
        return CertificateSecret(
            cluster,
            namespace=settings.lease_namespace,
            name=settings.certificate_secret,
            lifetime=settings.certificate_lifetime,
        )
    files = (settings.tls_cert_file, settings.tls_private_key_file)
    return CertificateFiles(
        *((files[0], files[1]) if files[0] and files[1] else provide_certificate(settings.cert_dir, ()))
    )


def _trusted_proxy(settings: Settings, trust: RequestHeaderConfig) -> TrustedProxyFile | None:
    """The proxy that authenticates users itself, put in force; None without one. Raises TrustUnusable."""
    if settings.trusted_proxy_client_ca_file is None:
        return None
    found = TrustedProxyFile(
        settings.trusted_proxy_client_ca_file,
        ProxyRules(
            allowed_names=settings.trusted_proxy_allowed_names,
            user_header=settings.trusted_proxy_user_header,
            group_header=settings.trusted_proxy_group_header,
            user_prefix=settings.trusted_proxy_user_prefix,
            group_prefix=settings.trusted_proxy_group_prefix,
        ),
        on_change=trust.trust_proxy,
    )
    found.load()
    return found


def _listen(settings: Settings) -> socket.socket:
    """As in Kubernetes' own servers, either unspecified address listens on both IPv4 and IPv6.

    The default must be reachable in clusters of any IP family.
    """
    address, port = settings.bind_address, settings.secure_port
    try:
        if ipaddress.ip_address(address).is_unspecified:
            try:
                return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                address = "0.0.0.0"  # noqa: S104 - this host has no IPv6
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise StartFailed(f"cannot listen on {address} port {port}: {why}") from error
