"""uvicorn with this package's connection class, as one task among others in the process."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from .connection import TlsConnection
from .tls import ServingTls

# kube-apiserver's aggregator keeps idle connections for 90 s (IdleConnTimeout of Go's http.DefaultTransport).
# Longer here, or it would send a request on a connection that this server closes at that moment.
KEEP_ALIVE_S = 120
# Connections that wait to be accepted. All of them are accepted in one turn of the loop, at 0.1 ms each.
BACKLOG = 256
DRAIN_S = 60  # how long requests in flight may take at shutdown

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]  # the types of scope, receive and send are the caller's


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: server.py installs its own, which shut down in order."""

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
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
            proxy_headers=False,  # X-Forwarded-For is not used, and reading it would cost every request
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
        )
    )
