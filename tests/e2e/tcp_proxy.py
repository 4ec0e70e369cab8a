"""A TCP relay in front of an API server, so that a test can cut what passes through."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 64 * 1024


class TcpProxy:
    """Relays loopback connections to `target_port`. TLS passes through untouched."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
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
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._target_port)
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

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        with contextlib.suppress(OSError):
            sink.write_eof()
