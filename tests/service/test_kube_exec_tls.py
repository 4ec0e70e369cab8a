"""exec's WebSocket over TLS: what a server may do between the handshake and the end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.websocket_frames import BINARY, PING, PONG, accepting, frame, unmasked
from visibility_api.kube.errors import Unreachable
from visibility_api.kube.exec.execute import execute

from .test_kube_sessions import Run, client_of, probe, run, server_tls
from .websocket_server import DEADLINE_S, OUTPUT, Script, ScriptedServer, scripted_server

__all__ = ["run"]  # the fixture

STATUS = frame(BINARY, b'\x03{"metadata":{},"status":"Success"}')


async def ask(script: Script, directory: Path) -> bytes:
    async with (
        scripted_server(script, tls=server_tls(directory)) as server,
        client_of(server, directory) as client,
    ):
        return await execute(
            client, namespace="n", pod="p", container="c", argv=("cat",), max_bytes=200_000,
            timeout_s=DEADLINE_S,
        )  # fmt: skip


def test_pings_are_answered(run: Run, tmp_path: Path) -> None:
    answers: list[tuple[int, bytes]] = []

    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head) + frame(PING, b"there?"))
        answers.append(unmasked(await reader.readexactly(6 + len(b"there?"))))
        writer.write(OUTPUT)
        await reader.read()

    async def work() -> None:
        assert await ask(script, tmp_path) == b"hello"

    run(work())
    assert answers == [(0x80 | PONG, b"there?")]


def test_pings_whose_answers_are_never_read_take_no_memory(run: Run, tmp_path: Path) -> None:
    async def script(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(accepting(head) + frame(PING, b"x" * 125) * 100_000)
        await asyncio.Event().wait()

    async def work() -> None:
        with pytest.raises(Unreachable, match="does not read"):
            await ask(script, tmp_path)

    run(work())


def test_messages_of_many_records_are_read_completely(run: Run, tmp_path: Path) -> None:
    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head) + frame(BINARY, b"\x01" + b"x" * 150_000) + OUTPUT)
        await reader.read()

    async def work() -> None:
        assert await ask(script, tmp_path) == b"x" * 150_000 + b"hello"

    run(work())


@pytest.mark.parametrize("is_polite", [True, False])
def test_what_came_stands_when_the_server_leaves_without_a_close_frame(
    run: Run, tmp_path: Path, is_polite: bool
) -> None:
    async def script(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head) + frame(BINARY, b"\x01hello") + STATUS + frame(PING))
        await reader.readexactly(6)  # all has arrived
        if not is_polite:
            writer.transport.abort()

    async def work() -> None:
        assert await ask(script, tmp_path) == b"hello"

    run(work())


def test_a_server_that_leaves_before_its_answer_is_not_taken_for_one_that_ran_it(
    run: Run, tmp_path: Path
) -> None:
    async def script(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepting(head)[:30])

    async def work() -> None:
        with pytest.raises(Unreachable, match="before the WebSocket upgrade"):
            await ask(script, tmp_path)

    run(work())


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\nClient sent an HTTP request", b""])
def test_a_server_without_tls_is_reported(run: Run, tmp_path: Path, words: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(words)
        writer.close()

    async def work() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = ScriptedServer(server.sockets[0].getsockname()[1])
            async with client_of(address, tmp_path) as client:
                with pytest.raises(Unreachable):
                    await probe(client)

    run(work())
