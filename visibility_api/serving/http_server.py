"""uvicorn with this package's connection class, as one task among others in the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from .connection import TlsConnection
from .connections import ConnectionLimits, Connections
from .listener import Listener
from .tls import ServingTls

DRAIN_S = 60  # how long requests in flight may take at shutdown

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]  # the types of scope, receive and send are the caller's


class HttpServer(uvicorn.Server):
    """uvicorn with `Listener`, and without its signal handlers: server.py shuts down in order by its own."""

    drain: Callable[[], None] = staticmethod(lambda: None)  # ends the open watches at shutdown

    def __init__(self, app: AsgiApp, tls: ServingTls) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=TlsConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                timeout_graceful_shutdown=DRAIN_S,
                proxy_headers=False,  # X-Forwarded-For is not used, and reading it would cost every request
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=True,
            )
        )
        self.connections = Connections(ConnectionLimits())
        self._tls = tls
        self._listeners: list[Listener] = []

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on these sockets until `should_exit` is set."""
        self._listeners = [
            Listener(each, self._new_connection, lambda: self._tls.context, self.connections)
            for each in sockets or ()
        ]
        async with asyncio.TaskGroup() as handshakes:
            for listener in self._listeners:
                listener.start(handshakes)
            await super().serve(sockets=[])

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn every 0.1 s."""
        now = asyncio.get_running_loop().time()
        await self.connections.sweep(now, has_client_ca=self._tls.has_client_ca)
        for listener in self._listeners:
            listener.sweep(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end the open ones in order."""
        for listener in self._listeners:
            listener.close()
        # Called when uvicorn waits for the first time: by then each connection closes with its last response.
        # If watches ended before, their clients would begin the next one on the same connection, in vain.
        asyncio.get_running_loop().call_soon(self.drain)
        await super().shutdown(sockets)

    def _new_connection(self) -> asyncio.Protocol:
        return TlsConnection(config=self.config, server_state=self.server_state, connections=self.connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
