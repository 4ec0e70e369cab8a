"""Watches over real connections: W1, W3, W20, W24."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from tests.unit.resource_server import ALL, ResourceServer
from visibility_api.app import Limits

_PATIENCE_S = 90.0


class Served(uvicorn.Server):
    """uvicorn without its signal handlers: the test runner has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def serving(server: ResourceServer) -> AsyncIterator[int]:
    """The port it is served on."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        server.app, http="httptools", lifespan="off", log_config=None, timeout_graceful_shutdown=5
    )
    uvicorn_server = Served(config)
    task = asyncio.create_task(uvicorn_server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.watches.drain()
        uvicorn_server.should_exit = True
        async with asyncio.timeout(_PATIENCE_S):
            await task


class Connection:
    """One watch over one connection, read as HTTP/1.1 chunks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.head = self.begun = b""
        self.events: list[dict[str, Any]] = []

    @classmethod
    async def open(cls, port: int, query: str = "watch=1") -> Connection:
        connection = cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))
        connection.writer.write(f"GET {ALL}?{query} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        async with asyncio.timeout(_PATIENCE_S):
            connection.head = await connection.reader.readuntil(b"\r\n\r\n")
        return connection

    async def event(self) -> dict[str, Any] | None:
        """The next event; None at the stream's proper end."""
        async with asyncio.timeout(_PATIENCE_S):
            while not self.events:
                size = int(await self.reader.readline(), 16)
                chunk = await self.reader.readexactly(size + 2)
                if not size:
                    return None
                *lines, self.begun = (self.begun + chunk[:-2]).split(b"\n")
                self.events.extend(json.loads(line) for line in lines)
        return self.events.pop(0)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def test_a_client_that_reads_nothing_is_cut_and_the_others_miss_nothing() -> None:
    """W20: no final chunk, so that it knows the stream is not complete."""
    server = ResourceServer(limits=Limits(chunk_timeout_s=0.2))
    async with serving(server) as port:
        stuck, quick = await Connection.open(port), await Connection.open(port)
        stuck.reader._limit = 1024  # reads no further than that
        message = "x" * 1000
        metrics = tuple((f"metric-{n:03}", "9" * 64) for n in range(256))
        step = 0
        async with asyncio.timeout(_PATIENCE_S):
            while len(server.watches) > 1:
                server.put(step=(step := step + 1), message=message, metrics=metrics)
                event = await quick.event()
                assert event is not None
                assert event["object"]["status"]["steps"]["current"] == step
        assert step > 1
        told = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(_PATIENCE_S):
                while part := await stuck.reader.read(2**16):
                    told += part
        assert not told.endswith(b"0\r\n\r\n")
        await stuck.close()
        await quick.close()
