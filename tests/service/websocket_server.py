"""A server that is scripted byte by byte, with or without TLS, and clients of it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.websocket_frames import BINARY, CLOSE, accepting, frame

DEADLINE_S = 90.0
OUTPUT = (
    frame(BINARY, b"\x01")
    + frame(BINARY, b"\x01hello")
    + frame(BINARY, b"\x03" + json.dumps({"metadata": {}, "status": "Success"}).encode())
    + frame(CLOSE, b"\x03\xe8")
)

Script = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Seen:
    """One connection."""

    head: bytes
    is_resumed: bool | None  # None without TLS
    peer: Any  # its certificate, as `getpeercert` has it


@dataclass(slots=True)
class ScriptedServer:
    port: int
    seen: list[Seen] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)


async def execs(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A command that says hello and succeeds."""
    writer.write(accepting(head) + OUTPUT)
    await writer.drain()


@asynccontextmanager
async def scripted_server(
    script: Script = execs, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[ScriptedServer]:
    """`script` gets the head of the request, and both ways of the connection; it ends with the script."""
    found = ScriptedServer(port)
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            ssl_object = writer.get_extra_info("ssl_object")
            found.seen.append(
                Seen(
                    head,
                    ssl_object.session_reused if ssl_object else None,
                    ssl_object.getpeercert() if ssl_object else None,
                )
            )
            await script(head, reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over; asyncio would report it
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # the client has gone
        except Exception as error:
            found.broken.append(error)
        finally:
            writer.close()
            with suppress(OSError):  # the client hangs up without a word
                await writer.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in tasks.copy():
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
    assert not found.broken, found.broken
