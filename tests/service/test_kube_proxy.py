"""exec and other requests through an HTTP proxy, and without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from kubernetes_asyncio.client import Configuration

from tests.certificates import SERVER, Authority
from tests.websocket_frames import BINARY, accepting, frame
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.exec import OutputTooLarge, execute

from .websocket_server import DEADLINE_S, OUTPUT, scripted_server

SERVING = Authority("serving")
CERTIFICATE = SERVING.issue("kube-apiserver", usages=[SERVER], hosts=["127.0.0.1"])


async def answer(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if b"/pods/gone/" in head:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
    elif b"/pods/floods/" in head:
        writer.write(accepting(head) + frame(BINARY) * 100_000)
    elif b"websocket" in head:
        writer.write(accepting(head) + OUTPUT)
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()


@asynccontextmanager
async def connect_proxy() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Its port, and the first lines it was sent."""
    asked: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        asked.append(line)
        host, _, port = line.split()[1].decode().rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for each in (pump(reader, to_writer), pump(to_reader, writer)):
            tasks.add(asyncio.create_task(each))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*tasks)
        await server.wait_closed()


async def run(client: KubeClient, pod: str = "bert") -> bytes:
    return await execute(
        client, namespace="n", pod=pod, container="c", argv=("cat",), max_bytes=100, timeout_s=DEADLINE_S
    )


Settle = Callable[[pytest.MonkeyPatch, Configuration, str], None]


def by_kubeconfig(_: pytest.MonkeyPatch, configuration: Configuration, url: str) -> None:
    configuration.proxy = url


def by_environment(environment: pytest.MonkeyPatch, _: Configuration, url: str) -> None:
    environment.setenv("HTTPS_PROXY", url)


def past_it(environment: pytest.MonkeyPatch, _: Configuration, url: str) -> None:
    environment.setenv("HTTPS_PROXY", url)
    environment.setenv("NO_PROXY", "10.0.0.1,127.0.0.1")


@pytest.mark.parametrize(("settle", "connections"), [(by_kubeconfig, 5), (by_environment, 5), (past_it, 0)])
async def test_all_goes_through_the_proxy_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settle: Settle, connections: int
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*CERTIFICATE.write(tmp_path, "server"))
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    async with scripted_server(answer, tls=context) as server, connect_proxy() as (port, asked):
        configuration = Configuration(host=f"https://127.0.0.1:{server.port}")
        configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
        settle(monkeypatch, configuration, f"http://127.0.0.1:{port}")
        async with KubeClient(configuration) as client:
            for _ in range(2):
                assert await run(client) == b"hello"
            with pytest.raises(ApiError) as raised:
                await run(client, "gone")
            assert raised.value.status == 404
            with pytest.raises(OutputTooLarge):
                await run(client, "floods")
            assert await client.get("/version") == b"{}"
    assert asked == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode()] * connections


async def test_the_password_of_a_proxy_that_refuses_is_never_repeated() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with asyncio.timeout(DEADLINE_S), await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        configuration = Configuration()
        configuration.host = "https://kube-apiserver.example:6443"
        configuration.proxy = f"http://user:hunter2@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with KubeClient(configuration) as client:
            with pytest.raises(Unreachable, match="407 Proxy Authentication Required") as by_get:
                await client.get("/version")
            with pytest.raises(Unreachable, match="407 Proxy Authentication Required") as by_exchange:
                await client.exchange(
                    "/", query=(), protocols=(), max_message_bytes=1, on_message=lambda _: True
                )
    assert "hunter2" not in f"{by_get.value} {by_exchange.value}"
