"""The server under measurement and what it needs around it: certificates, a cluster, somebody who asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from pathlib import Path

import trustme

from . import kubernetes
from .processes import Server, process

API = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
ALL = f"{API}/trainjobs"


def serving(
    directory: Path, tls: tuple[str, ...], kubeconfig: Path, port: int, *arguments: str
) -> contextlib.AbstractAsyncContextManager[Server]:
    return process(
        "visibility_api", "serve", "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1",
        "--secure-port", str(port), "--tls-cert-file", tls[1], "--tls-private-key-file", tls[3],
        "--probe-interval", "3600s", "--shutdown-delay-duration", "0s", *arguments,
        port=port, log=directory / "server.log",
    )  # fmt: skip


async def fetch(server: Server, ca: Path, path: str) -> bytes:
    context = ssl.create_default_context(cafile=ca)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {kubernetes.TOKEN}\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"GET {path}: {head.splitlines()[0].decode()} {body[:300]!r}")
    return body


async def until_all_probed(server: Server, ca: Path, jobs: int) -> None:
    async with asyncio.timeout(180):
        while True:
            try:
                items = json.loads(await fetch(server, ca, ALL))["items"]
            except RuntimeError:
                items = []  # 503 until the caches are filled
            if sum("progressPercentage" in item["status"] for item in items) == jobs:
                return
            await asyncio.sleep(0.5)


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
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
