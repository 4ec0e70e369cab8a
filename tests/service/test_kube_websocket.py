"""exec's WebSocket against servers that follow the protocol, and that do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes_asyncio.client import Configuration

from tests.websocket_frames import BINARY, CONTINUATION, PING, PONG, TEXT, accepting, frame, unmasked
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.exec import OutputTooLarge, execute

from .websocket_server import DEADLINE_S, OUTPUT, Script, ScriptedServer, scripted_server

Change = Callable[[bytes], bytes]


@asynccontextmanager
async def client_of(
    script: Script, *, prefix: str = "", token: str | None = None
) -> AsyncIterator[tuple[KubeClient, ScriptedServer]]:
    async with scripted_server(script) as server:
        configuration = Configuration(host=f"http://127.0.0.1:{server.port}{prefix}")
        if token is not None:
            configuration.api_key["BearerToken"] = token
        async with KubeClient(configuration) as client:
            yield client, server


async def run(client: KubeClient) -> bytes:
    return await execute(
        client,
        namespace="team-a",
        pod="bert",
        container="node",
        argv=("cat", "--", "/tmp/a&b=c#d%e f"),
        max_bytes=1000,
        timeout_s=DEADLINE_S,
    )


def answering(make: Change) -> Script:
    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(make(head))
        await writer.drain()
        await reader.read()  # until the client hangs up

    return script


def replacing(old: bytes, new: bytes) -> Change:
    return lambda head: accepting(head).replace(old, new) + OUTPUT


async def test_an_exchange_is_one_request_below_the_servers_own_path() -> None:
    async with client_of(answering(lambda head: accepting(head) + OUTPUT), prefix="/k8s/clusters/c-1/") as (
        client,
        server,
    ):
        for _ in range(2):
            assert await run(client) == b"hello"
    line, *headers = server.seen[0].head.decode().split("\r\n")
    assert line == (
        "GET /k8s/clusters/c-1/api/v1/namespaces/team-a/pods/bert/exec?command=cat&command=--"
        "&command=/tmp/a%26b%3Dc%23d%25e+f&container=node&stdout=true&stderr=true HTTP/1.1"
    )
    assert f"Host: 127.0.0.1:{server.port}" in headers
    assert "Sec-WebSocket-Protocol: v5.channel.k8s.io,v4.channel.k8s.io" in headers
    assert server.seen[0].head != server.seen[1].head  # the key is never the same


async def test_a_message_in_parts_is_one_message_and_pings_between_them_are_answered() -> None:
    answers: list[tuple[int, bytes]] = []

    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head) + frame(BINARY, b"\x01he", is_final=False) + frame(PING, b"there?"))
        answers.append(unmasked(await reader.readexactly(6 + len(b"there?"))))
        writer.write(frame(CONTINUATION, b"y ") + OUTPUT)
        await reader.read()

    async with client_of(script) as (client, _):
        assert await run(client) == b"hey hello"
    assert answers == [(0x80 | PONG, b"there?")]


@pytest.mark.parametrize(
    "answer",
    [
        replacing(b"Accept: ", b"Accept: x"),
        replacing(b"v5.channel", b"v9.channel"),
        replacing(b"Sec-WebSocket-Protocol", b"X"),
        replacing(b"Upgrade: websocket", b"Upgrade: SPDY/3.1"),
        lambda _: b"SSH-2.0-s3cr3t\r\n",
        lambda _: b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: s3cr3t\r\n" * 65536,
        lambda head: accepting(head) + frame(TEXT, b"\x01s3cr3t"),
        lambda head: accepting(head) + b"s3cr3t",
    ],
    ids=range(8),
)
async def test_an_invalid_answer_is_refused_and_never_quoted(answer: Change) -> None:
    async with client_of(answering(answer)) as (client, _):
        with pytest.raises(Unreachable) as raised:
            await run(client)
    assert "s3cr3t" not in str(raised.value)


async def test_an_upgrade_is_refused_without_waiting_for_the_body() -> None:
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\n{"
    async with client_of(answering(lambda _: head)) as (client, _):
        with pytest.raises(ApiError) as raised:
            await run(client)
    assert raised.value.status == 403


async def test_a_connection_that_closes_without_a_response_is_not_a_refusal() -> None:
    async def script(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head)[:30])

    async with client_of(script) as (client, _):
        with pytest.raises(Unreachable, match=r"ServerDisconnectedError$"):
            await run(client)


async def test_a_redirect_is_not_followed() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with client_of(answering(lambda _: head)) as (client, server):
        with pytest.raises(ApiError) as raised:
            await run(client)
        with pytest.raises(ApiError):
            await client.get("/version")
    assert raised.value.status == 302
    assert len(server.seen) == 2


async def test_output_stands_when_the_server_leaves_without_a_close_frame() -> None:
    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = b'\x03{"metadata":{},"status":"Success"}'
        writer.write(accepting(head) + frame(BINARY, b"\x01hello") + frame(BINARY, status) + frame(PING))
        await reader.readexactly(6)  # all has arrived

    async with client_of(script) as (client, _):
        assert await run(client) == b"hello"


async def test_a_flood_of_control_frames_ends_at_a_limit() -> None:
    flood = frame(PONG, b"x" * 100) * 100_000
    async with client_of(answering(lambda head: accepting(head) + flood)) as (client, _):
        with pytest.raises(OutputTooLarge):
            await run(client)


async def test_the_client_hangs_up_when_its_time_is_over() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(_head: bytes, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        left.set()

    async with client_of(script) as (client, _), asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(run(client))
        await asked.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await running
        await left.wait()


@pytest.mark.parametrize("token", ["Bearer a\r\nX-Remote-User: root", "Bearer a\nb", "Bearer \u20ac"])
async def test_a_token_that_would_begin_a_header_of_its_own_is_never_sent(token: str) -> None:
    async with client_of(answering(accepting), token=token) as (client, server):
        with pytest.raises(Unreachable) as raised:
            await run(client)
    assert server.seen == []
    assert "Bearer" not in str(raised.value)
