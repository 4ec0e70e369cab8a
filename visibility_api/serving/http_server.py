"""uvicorn with this package's connection class, as one task among others in the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import uvicorn

from .connection import TlsConnection
from .listener import Listener
from .tls import ServingTls

# kube-apiserver's aggregator keeps idle connections for 90 s (IdleConnTimeout of Go's http.DefaultTransport).
# Longer here, or it would send a request on a connection that this server closes at that moment.
KEEP_ALIVE_S = 120
DRAIN_S = 60  # how long requests in flight may take at shutdown

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]  # the types of scope, receive and send are the caller's


class HttpServer(uvicorn.Server):
    """uvicorn with `Listener`, and without its signal handlers: server.py shuts down in order by its own."""

    _listeners: Sequence[Listener] = ()
    drain: Callable[[], None] = staticmethod(lambda: None)  # ends the open watches at shutdown

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on these sockets until `should_exit` is set."""
        config = self.config
        if not config.loaded:
            config.load()
        tls = config.ssl
        if tls is None:
            raise ValueError("this server speaks TLS only")
        self._listeners = [Listener(each, self._new_connection, tls) for each in sockets or ()]
        async with asyncio.TaskGroup() as handshakes:
            for listener in self._listeners:
                listener.start(handshakes)
            await super().serve(sockets=[])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end the open ones in order."""
        for listener in self._listeners:
            listener.close()
        # Called when uvicorn waits for the first time: by then each connection closes with its last response.
        # If watches ended before, their clients would begin the next one on the same connection, in vain.
        asyncio.get_running_loop().call_soon(self.drain)
        await super().shutdown(sockets)

    def _new_connection(self) -> asyncio.Protocol:
        return TlsConnection(config=self.config, server_state=self.server_state, app_state={})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: AsgiApp, tls: ServingTls) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            app,
            http=TlsConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            ssl_context_factory=lambda _config, _default: tls.context,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            proxy_headers=False,  # X-Forwarded-For is not used, and reading it would cost every request
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
        )
    )
