"""The server under measurement and what it needs around it: certificates, a cluster, somebody who asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme

from . import kubernetes
from .processes import Server, free_port, process

API = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
ALL = f"{API}/trainjobs"
ONE = f"{API}/namespaces/{kubernetes.namespace(0)}/trainjobs/{kubernetes.job_name(0)}/progress"


def serving(
    directory: Path, tls: tuple[str, ...], kubeconfig: Path, port: int, *arguments: str
) -> contextlib.AbstractAsyncContextManager[Server]:
    return process(
        "visibility_api", "serve", "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1",
        "--secure-port", str(port), "--tls-cert-file", tls[1], "--tls-private-key-file", tls[3],
        "--probe-interval", "3600s", "--shutdown-delay-duration", "0s", *arguments,
        port=port, log=directory / "server.log",
    )  # fmt: skip


async def fetch(server: Server, ca: Path, path: str, *, token: str = kubernetes.TOKEN) -> bytes:
    context = ssl.create_default_context(cafile=ca)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"GET {path}: {head.splitlines()[0].decode()} {body[:2000]!r}")
    return body


async def until_ready(server: Server, ca: Path) -> None:
    """Until /readyz says that every job is known. Each question takes the server 1.4 ms."""
    async with asyncio.timeout(180):
        while True:
            with contextlib.suppress(RuntimeError):
                await fetch(server, ca, "/readyz")
                return
            await asyncio.sleep(0.1)


async def until_all_probed(server: Server, ca: Path, jobs: int, *, token: str = kubernetes.TOKEN) -> None:
    async with asyncio.timeout(180):
        while True:
            try:
                items = json.loads(await fetch(server, ca, ALL, token=token))["items"]
            except RuntimeError:
                items = []  # 503 until the caches are filled
            if sum("progressPercentage" in item["status"] for item in items) == jobs:
                return
            await asyncio.sleep(0.5)


def certificates(directory: Path, *names: str) -> tuple[Path, Path, Path]:
    """A serving certificate for this machine and other names, its key, and the CA's."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1", *names)
    cert, key, ca = directory / "tls.crt", directory / "tls.key", directory / "ca.crt"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    return cert, key, ca


def kubeconfig_for(directory: Path, port: int, ca: Path) -> Path:
    path = directory / "kubeconfig"
    cluster = {"server": f"https://localhost:{port}", "certificate-authority": str(ca)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "b", "cluster": cluster}],
                "users": [{"name": "b", "user": {"token": kubernetes.TOKEN}}],
                "contexts": [{"name": "b", "context": {"cluster": "b", "user": "b"}}],
                "current-context": "b",
            }
        )
    )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Our server, the cluster behind it, and what is needed to ask it."""

    directory: Path
    ours: Server
    cluster: Server
    ca_file: Path
    tls: tuple[str, ...]  # arguments of another server with the same certificate
    by_token: tuple[tuple[str, str], ...]  # headers
    by_proxy: tuple[tuple[str, str], ...]  # headers, as kube-apiserver's aggregator sends them
    proxy_certificate: tuple[Path, Path]


@contextlib.asynccontextmanager
async def scene(
    jobs: int,
    *,
    changes_per_s: float = 0,
    earlier: int = 0,
    of_server: tuple[str, ...] = (),
    of_cluster: tuple[str, ...] = (),
) -> AsyncIterator[Scene]:
    """All jobs have a document, with so many earlier values of each metric, and nobody looks for another."""
    of_cluster = ("--changes-per-s", str(changes_per_s), "--earlier", str(earlier), *of_cluster)
    async with started(jobs, of_cluster=of_cluster, of_server=of_server) as at:
        await until_all_probed(at.ours, at.ca_file, jobs)
        yield at


@contextlib.asynccontextmanager
async def started(
    jobs: int,
    *,
    of_cluster: tuple[str, ...] = (),
    of_server: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    proxies: bytes = b"",
) -> AsyncIterator[Scene]:
    """Everything by itself, in processes and a directory that are gone at the end.

    Arguments of both processes; other names that our server has, and CAs of other front proxies (PEM).
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory, *names)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, our_port = free_port(), free_port()
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        trust, proxy_certificate = _front_proxy(directory, proxies)
        async with (
            process(
                "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs),
                "--trust", str(trust), *tls, *of_cluster,
                port=kube_port, log=directory / "kubernetes.log",
            ) as cluster,
            serving(directory, tls, kubeconfig, our_port, *of_server) as ours,
        ):  # fmt: skip
            yield Scene(
                directory=directory,
                ours=ours,
                cluster=cluster,
                ca_file=ca,
                tls=tls,
                by_token=(("Authorization", f"Bearer {kubernetes.TOKEN}"),),
                by_proxy=_PROXY_HEADERS,
                proxy_certificate=proxy_certificate,
            )


@contextlib.asynccontextmanager
async def bare(tls: tuple[str, ...], directory: Path, bodies: Mapping[str, bytes]) -> AsyncIterator[Server]:
    """The ceiling: what a bare ASGI application takes to send these bodies, by path."""
    port = free_port()
    arguments = []
    for number, (path, body) in enumerate(bodies.items()):
        file = directory / f"body-{number}"
        file.write_bytes(body)
        arguments += ["--body", f"{path}={file}"]
    async with process(
        "benchmarks.bare", "--port", str(port), *tls, *arguments, port=port, log=directory / "bare.log"
    ) as server:
        yield server


_PROXY_HEADERS = (
    ("User-Agent", "kubectl/v1.36.0 (linux/amd64) kubernetes/0000000"),
    ("Accept", "application/json"),
    ("Audit-Id", "5f7c2b0e-6b64-4a57-9d8a-0d9d2f6f4a11"),
    ("X-Forwarded-For", "10.0.0.7"),
    ("X-Forwarded-Host", "kubernetes.default.svc"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Uri", "/"),
    ("X-Remote-User", "alice"),
    ("X-Remote-Group", "researchers"),
    ("X-Remote-Group", "system:authenticated"),
)


def _front_proxy(directory: Path, others: bytes) -> tuple[Path, tuple[Path, Path]]:
    """What kube-apiserver publishes about its front proxy, and that one's own certificate; other CAs too."""
    authority = trustme.CA()
    issued = authority.issue_cert("front-proxy-client", common_name="front-proxy-client")
    cert, key, trust = directory / "proxy.crt", directory / "proxy.key", directory / "trust.json"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    names = {
        "requestheader-client-ca-file": (authority.cert_pem.bytes() + others).decode(),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    trust.write_text(json.dumps(names))
    return trust, (cert, key)
