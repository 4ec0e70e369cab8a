"""Replicas that make and renew their own certificate, with what deploy/base has for it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import (
    APISERVICE_PATH,
    NAMESPACE,
    ROOT,
    SERVICE_NAME,
    path_of,
    register,
    server_flags,
)
from tests.e2e.processes import Daemon, free_port, wait_until
from tests.e2e.visibility_server import PREFIX, VisibilityServer, service_account_kubeconfig

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/visibility-api-certificate"
PATH = f"{PREFIX}/trainjobs"
LIFETIME_S, RENEWALS, WATCHES = 30, 3, 50
REQUESTS_A_SECOND = 200  # at most; as many as the machine answers


class Installation:
    """Two replicas, of which the first is behind the aggregator."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
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
                    f"--certificate-lifetime={LIFETIME_S}s",
                    *(f"--peers=127.0.0.1:{other}" for other in self.ports),
                    *("--shutdown-delay-duration=0s", *server_flags()),
                ],
                log=directory / f"{port}.log",
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory)},
            )
            for port in self.ports
        ]

    def start(self) -> None:
        for each in self.replicas:
            each.start()
        register(self._cluster.admin, port=self.ports[0], ca_bundle=None)
        wait_until(self.is_available, what="the APIService is Available")

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


@pytest.fixture
def installation(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Installation]:
    if cluster.kind != "real":
        pytest.skip("the stand-in has no Secrets; the replicas' part is tested without it")
    found = Installation(cluster, tmp_path)
    try:
        yield found
    finally:
        found.stop()
        server.register()


def test_no_request_and_no_watch_is_lost_while_certificates_are_renewed(
    cluster: Cluster, installation: Installation
) -> None:
    """Certificates of half a minute, so that three are renewed while the test looks."""
    installation.start()
    asyncio.run(_drill(cluster, installation))
    for each in installation.replicas:
        each.check_alive()
    told = [each.log.read_text() for each in installation.replicas]
    assert all(log.count("serving certificate renewed") >= RENEWALS for log in told), told
    assert all("owner of the log lost" not in log for log in told)


async def _drill(cluster: Cluster, installation: Installation) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.load_cert_chain(*cluster.admin_pair)
    limits = httpx.Limits(max_connections=None)
    seen = {await asyncio.to_thread(installation.certificate)}
    sent = 0

    async def ask(client: httpx.AsyncClient) -> None:
        nonlocal sent
        answer = await client.get(PATH, params={"limit": 1})
        assert answer.status_code == 200, answer.text
        sent += 1

    async def watch(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> None:
        query = {"watch": "1", "timeoutSeconds": "600", "allowWatchBookmarks": "1"}
        async with client.stream("GET", PATH, params=query) as answer:
            assert answer.status_code == 200
            begun.release()
            async for line in answer.aiter_lines():
                assert json.loads(line)["type"] != "ERROR", line
        raise AssertionError("a watch has ended")

    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=cluster.url, verify=context, limits=limits, timeout=None, trust_env=False
            )
        )
        group = await stack.enter_async_context(_cancelled_at_the_end())
        begun = asyncio.Semaphore(0)
        for _ in range(WATCHES):
            group.create_task(watch(client, begun))
        for _ in range(WATCHES):
            await begun.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while len(seen) <= RENEWALS or loop.time() - began < RENEWALS * LIFETIME_S * 2 / 3 + 5:
            assert loop.time() - began < 3 * RENEWALS * LIFETIME_S, "no certificate is renewed"
            for _ in range(REQUESTS_A_SECOND // 10):
                group.create_task(ask(client))
            await asyncio.sleep(0.1)
            if int(loop.time() - began) % 3 == 0:
                seen.add(await asyncio.to_thread(installation.certificate))
    assert sent > 5 * LIFETIME_S  # on a busy machine too


@contextlib.asynccontextmanager
async def _cancelled_at_the_end() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group
        await asyncio.sleep(1)  # the last requests
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def test_the_name_of_the_service_is_in_the_certificate_and_its_ca_is_published_for_jobs(
    cluster: Cluster, installation: Installation
) -> None:
    installation.start()
    published = cluster.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/visibility-api-ca")["data"]
    bundle = base64.b64decode(cluster.admin.get(APISERVICE_PATH)["spec"]["caBundle"])
    assert published["ca.crt"].encode() == bundle
    context = ssl.create_default_context(cadata=published["ca.crt"])
    for port in installation.ports:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname=SERVICE_NAME),
        ):
            pass
