"""Two replicas that make and renew their own certificate, and clients that lose nothing meanwhile."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import APISERVICE_PATH, NAMESPACE, ROOT, path_of, register, server_flags
from tests.e2e.pki import Authority
from tests.e2e.processes import Daemon, free_port, wait_until
from tests.e2e.visibility_server import PREFIX, service_account_kubeconfig

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/visibility-api-certificate"
EXTENSION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
PATH = f"{PREFIX}/trainjobs"
TICK_S = 0.1
MOST_WAITING = 400  # requests; a machine that cannot answer so many gets fewer
SEEN_S = 5.0  # kube-apiserver sees a changed file at once, and takes it into use after that
LAST_S = 30.0  # for the requests that are under way at the end


class Installation:
    """Two replicas, of which the first is behind the aggregator."""

    def __init__(
        self, cluster: Cluster, directory: Path, *, lifetime_s: float, env: Mapping[str, str] | None = None
    ) -> None:
        self._cluster = cluster
        kubeconfig = service_account_kubeconfig(cluster, directory)
        self.objects = list(yaml.safe_load_all((ROOT / "deploy/base/certificate.yaml").read_text()))
        for thing in self.objects:
            cluster.admin.apply(path_of(thing), thing)
        self.ports = [free_port() for _ in range(2)]
        self.replicas = [
            Daemon(
                f"visibility-api-{port}",
                [
                    *(sys.executable, "-m", "visibility_api", "serve", f"--kubeconfig={kubeconfig}"),
                    *("--bind-address=127.0.0.1", f"--secure-port={port}"),
                    "--certificate-secret=visibility-api-certificate",
                    f"--certificate-lifetime={lifetime_s:.0f}s",
                    *(f"--peers=127.0.0.1:{other}" for other in self.ports),
                    *("--shutdown-delay-duration=0s", *server_flags()),
                ],
                log=directory / f"{port}.log",
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory), **(env or {})},
            )
            for port in self.ports
        ]

    def start(self) -> None:
        for each in self.replicas:
            each.start()
        register(self._cluster.admin, port=self.ports[0], ca_bundle=None)
        wait_until(self.is_available, what="the APIService is Available")

    def restart(self) -> None:
        """As `kubectl rollout restart` lets it happen, at once."""
        for each in self.replicas:
            each.stop(grace_s=20)
            each.start()

    def stop(self) -> None:
        for each in self.replicas:
            each.stop(grace_s=20)
        for thing in self.objects:
            self._cluster.admin.delete(path_of(thing))

    def is_available(self) -> bool:
        for each in self.replicas:
            each.check_alive()
        found = self._cluster.admin.get(APISERVICE_PATH)
        kept = self._cluster.admin.get(SECRET).get("data", {})
        if found["spec"].get("caBundle", "") != kept.get("ca.crt"):
            return False
        conditions = found.get("status", {}).get("conditions", [])
        is_available = any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
        return is_available and self._cluster.admin.raw("GET", PATH).status_code == 200

    def certificate(self) -> bytes:
        return base64.b64decode(self._cluster.admin.get(SECRET)["data"]["tls.crt"])

    def front_proxy_cas(self) -> int:
        """How many kube-apiserver publishes."""
        found: str = self._cluster.admin.get(EXTENSION)["data"]["requestheader-client-ca-file"]
        return found.count("BEGIN CERTIFICATE")


@dataclass
class Drilled:
    """What clients met."""

    sent: int = 0
    elapsed_s: float = 0.0
    slowest_s: float = 0.0
    certificates: set[bytes] = field(default_factory=set)
    has_rotated: bool = False
    lost: Counter[str] = field(default_factory=Counter)  # requests and watches, by what became of them
    lost_at: list[str] = field(default_factory=list)  # the first of each kind

    def lose(self, what: str) -> None:
        if what not in self.lost:
            self.lost_at.append(f"{datetime.now(UTC):%H:%M:%S} {what}")
        self.lost[what] += 1


async def drill(
    cluster: Cluster,
    installation: Installation,
    front_proxy: Authority,
    *,
    seconds: float,
    renewals: int,
    per_s: int,
    watches: int,
) -> Drilled:
    """So many requests a second, and watches that stay open, for at least these seconds and renewals. In
    the middle kube-apiserver's front proxy gets another CA."""
    told = Drilled()
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.load_cert_chain(*cluster.admin_pair)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    begun = asyncio.Semaphore(0)

    async def get() -> None:
        began = time.monotonic()
        try:
            async with client.get(f"{cluster.url}{PATH}?limit=1") as answer:
                body = await answer.read()
                if answer.status != 200:
                    told.lose(f"GET: {answer.status} {body[:200]!r}")
        except (aiohttp.ClientError, TimeoutError) as error:
            told.lose(f"GET: {error!r}")
        told.sent += 1
        told.slowest_s = max(told.slowest_s, time.monotonic() - began)

    async def watch() -> None:
        url = f"{cluster.url}{PATH}?watch=1&timeoutSeconds={int(seconds * 4) + 600}&allowWatchBookmarks=1"
        try:
            async with client.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                answer.raise_for_status()
                begun.release()
                async for line in answer.content:
                    if (event := msgspec.json.decode(line))["type"] == "ERROR":
                        told.lose(f"watch: {event}")
            told.lose("watch: it ended")
        except (aiohttp.ClientError, TimeoutError) as error:
            told.lose(f"watch: {error!r}")
            begun.release()

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        streams = [asyncio.create_task(watch()) for _ in range(watches)]
        for _ in streams:
            await begun.acquire()
        began = time.monotonic()
        rotation = asyncio.create_task(
            _rotate_front_proxy(cluster, installation, front_proxy, after_s=seconds / 4)
        )
        waiting: set[asyncio.Task[None]] = set()
        ticks = 0
        try:
            while not rotation.done() or len(told.certificates) <= renewals or told.elapsed_s < seconds:
                if told.elapsed_s > 3 * seconds:
                    raise AssertionError(f"{len(told.certificates)} certificates after {told.elapsed_s:.0f}s")
                if len(waiting) < MOST_WAITING:
                    for _ in range(int(per_s * TICK_S)):
                        task = asyncio.create_task(get())
                        waiting.add(task)
                        task.add_done_callback(waiting.discard)
                ticks += 1
                await asyncio.sleep(max(0.0, began + ticks * TICK_S - time.monotonic()))
                told.elapsed_s = time.monotonic() - began
                if ticks % int(3 / TICK_S) == 0:
                    told.certificates.add(await asyncio.to_thread(installation.certificate))
            await rotation
            told.has_rotated = True
            if waiting:
                await asyncio.wait(list(waiting), timeout=LAST_S)
        finally:
            for each in (*streams, *waiting, rotation):
                each.cancel()
            await asyncio.gather(*streams, *waiting, rotation, return_exceptions=True)
    return told


async def _rotate_front_proxy(
    cluster: Cluster, installation: Installation, ca: Authority, *, after_s: float
) -> None:
    """As an operator does: both CAs are trusted, then the new one signs, then it alone is trusted.
    kube-apiserver adds its CA to those that the ConfigMap has, and takes none away that has not expired."""
    await asyncio.sleep(after_s)
    ca.publish_successor()
    await _until(lambda: installation.front_proxy_cas() == 2, "both CAs are published")
    await asyncio.sleep(SEEN_S)
    ca.succeed()
    ca.issue_client("front-proxy-client")  # in the place of the former one
    await asyncio.sleep(SEEN_S)
    ca.retire()
    patch = {"data": {"requestheader-client-ca-file": ca.bundle.read_text()}}
    await asyncio.to_thread(cluster.admin.patch, EXTENSION, patch)
    await _until(lambda: installation.front_proxy_cas() == 1, "the new CA alone is published")
    await asyncio.sleep(SEEN_S)


async def _until(is_so: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, is_so, what=what, timeout_s=150)  # kube-apiserver looks each minute
