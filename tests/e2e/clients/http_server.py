"""The API over a store that the test writes to, on a real socket; it can be exchanged as by a restart."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from tests.unit.resource_server import ResourceServer


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the test runner's own stay


class HttpServer:
    """`url` stays, whichever `current` answers. `max_changes`: how long a history each one keeps."""

    def __init__(self, *, max_changes: int) -> None:
        self._max_changes = max_changes
        # asyncio switches Nagle's algorithm off only for what says that it is TCP; else lists wait 40 ms.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.current = ResourceServer(max_changes=max_changes)

    def restart(self, *, base_revision: int) -> None:
        """Another process has the same documents and revisions of its own (L9); all watches end."""
        old = self.current
        self.current = ResourceServer(max_changes=self._max_changes, base_revision=base_revision)
        for entry in old.store.list("trainjobs").entries:
            self.current.store.put(entry.document)
        old.watches.drain()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.current.app(scope, receive, send)

        server = _Server(
            uvicorn.Config(answer, lifespan="off", log_config=None, ws="none", proxy_headers=False)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([self._listener]))
            try:
                yield
            finally:
                self.current.watches.drain()
                server.should_exit = server.force_exit = True
