"""exec's WebSocket against servers that follow the protocol, and that do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes_asyncio.client import Configuration

from tests.websocket_frames import BINARY, CONTINUATION, PING, PONG, TEXT, accepting, frame, unmasked
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.exec.execute import OutputTooLarge, execute
from visibility_api.kube.exec.upgrade import MAX_HEAD_BYTES

from .websocket_server import DEADLINE_S, OUTPUT, Script, ScriptedServer, scripted_server

Change = Callable[[bytes], bytes]


@asynccontextmanager
async def client_of(
    script: Script, *, prefix: str = "", host: str = "127.0.0.1", token: str | None = None
) -> AsyncIterator[tuple[KubeClient, ScriptedServer]]:
    async with scripted_server(script) as server:
        configuration = Configuration(host=f"http://{host}:{server.port}{prefix}")
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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["one address", "two addresses, one silent"])
async def test_an_exchange_is_one_request_below_the_servers_own_path(host: str) -> None:
    async with client_of(
        answering(lambda head: accepting(head) + OUTPUT), prefix="/k8s/clusters/c-1/", host=host
    ) as (client, server):
        for _ in range(2):
            assert await run(client) == b"hello"
    line, *headers = server.seen[0].head.decode().split("\r\n")
    assert line == (
        "GET /k8s/clusters/c-1/api/v1/namespaces/team-a/pods/bert/exec?command=cat&command=--"
        "&command=%2Ftmp%2Fa%26b%3Dc%23d%25e%20f&container=node&stdout=true&stderr=true HTTP/1.1"
    )
    assert f"Host: {host}:{server.port}" in headers
    assert server.seen[0].head != server.seen[1].head  # the key is never the same


async def test_an_answer_in_pieces_is_put_together() -> None:
    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in accepting(head) + OUTPUT:
            writer.write(bytes((byte,)))
            await writer.drain()
        await reader.read()

    async with client_of(script) as (client, _):
        assert await run(client) == b"hello"


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
        replacing(b"Sec-WebSocket-Accept", b"X"),
        replacing(b"v5.channel", b"v9.channel"),
        replacing(b"Sec-WebSocket-Protocol", b"X"),
        replacing(b"Upgrade: websocket", b"Upgrade: SPDY/3.1"),
        replacing(b"Upgrade: websocket\r\n", b""),
        replacing(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
        lambda _: b"SSH-2.0-s3cr3t\r\n",
        lambda _: b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: s3cr3t\r\n" * MAX_HEAD_BYTES,
        lambda head: accepting(head) + frame(TEXT, b"\x01s3cr3t"),
        lambda head: accepting(head) + b"s3cr3t",
    ],
    ids=range(11),
)
async def test_what_is_no_right_answer_is_refused_at_once_and_not_repeated(answer: Change) -> None:
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
        with pytest.raises(Unreachable, match="before the WebSocket upgrade"):
            await run(client)


@pytest.mark.parametrize(
    "flood",
    [frame(PING), frame(PONG, b"x" * 100), frame(CONTINUATION, is_final=False)],
    ids=["pings", "pongs", "parts that never end"],
)
async def test_a_flood_of_empty_frames_ends_at_a_limit(flood: bytes) -> None:
    def answer(head: bytes) -> bytes:
        return accepting(head) + frame(BINARY, is_final=False) + flood * 100_000

    async with client_of(answering(answer)) as (client, _):
        with pytest.raises(OutputTooLarge):
            await run(client)


async def test_pings_whose_answers_are_never_read_take_no_memory() -> None:
    async def script(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(accepting(head) + frame(PING, b"x" * 125) * 100_000)
        await writer.drain()

    async with client_of(script) as (client, _):
        with pytest.raises(Unreachable, match="does not read"):
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
