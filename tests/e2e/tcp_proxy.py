"""A TCP relay in front of servers, as a Service is, so that a test can cut what passes through."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

_CHUNK_BYTES = 64 * 1024


class TcpProxy:
    """Relays loopback connections to `targets`, ports, in turn; one that does not listen is passed by. TLS
    passes through untouched."""

    def __init__(self, *targets: int) -> None:
        self._targets = deque(targets)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._is_refusing = False
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Reset every open connection."""
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def refuse(self) -> None:
        """Cut what is open and close what comes, until `allow`."""
        self._is_refusing = True
        await self.cut()

    async def allow(self) -> None:
        self._is_refusing = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            if self._is_refusing:
                return
            upstream_reader, upstream = await self._connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, upstream))
                group.create_task(self._pump(upstream_reader, writer))
        except (asyncio.CancelledError, OSError, ExceptionGroup):  # cut by a test, or by either side
            pass
        finally:
            self._connections.discard(task)
            for side in (writer, upstream):
                if side is not None:
                    side.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(len(self._targets) - 1):
            self._targets.rotate(-1)
            with contextlib.suppress(ConnectionRefusedError):
                return await asyncio.open_connection("127.0.0.1", self._targets[0])
        self._targets.rotate(-1)
        return await asyncio.open_connection("127.0.0.1", self._targets[0])

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        with contextlib.suppress(OSError):
            sink.write_eof()
