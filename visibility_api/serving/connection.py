"""One HTTP connection: tells the application who is at its other end, and bounds what comes before a request.

uvicorn puts no certificate into the ASGI scope. It does copy the state of the application into the scope of
every request, also of those that are pipelined or upgraded; so the peer is put there, once a connection.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from visibility_api.auth.certificates import PEER

from .exchange import Exchange
from .outbox import Outbox
from .patience import Patience
from .tls import ServingContext, peer_of

HEAD_TIMEOUT_S = 32.0  # from connection or first byte to the end of the headers, as the Go server's
MAX_HEAD_BYTES = 1024 * 1024  # request line and headers, as the Go server's
MAX_HEADERS = 8192  # each of a user's groups is one, and the shortest take thirty times their bytes in memory
# At shutdown: uvloop waits 30 s for a peer to answer the end of TLS, and pooled connections of blocked or
# dead clients never do. The pod would be killed before it had ended in order (P10).
CLOSE_TIMEOUT_S = 2.0
MAX_PIPELINED = 128  # requests sent ahead of the answer to an earlier one; no client of Kubernetes sends any
MAX_CONNECTIONS = 16_384  # open at a time; at up to 100 kB each, more would not fit the pod's memory
MAX_REQUEST_BYTES = 3 * 1024 * 1024  # head, body and trailers, as the Go server's limit for bodies


class TlsConnection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the peer in `scope["state"]`; pass it as `http=TlsConnection`."""

    _is_in_head = False
    _is_head_due = False  # its time runs; what has come of it does not start that anew
    _request_bytes = 0
    _patience: Patience  # for a head, or between two requests
    _outbox: Outbox
    _close_timer: asyncio.TimerHandle | None = None
    _context: ServingContext | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._patience = Patience(self.loop, transport.close)
        self._outbox = Outbox(self.loop, transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()  # cheaper than an answer, and clients try again
            return
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, PEER: peer_of(tls)}
        self._await_head()
        context = transport.get_extra_info("sslcontext")
        if tls is not None and isinstance(context, ServingContext):
            self._context = context
            context.admit(self, tls)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._context is not None:
            self._context.unasked.discard(self)
        self._patience.end()
        if self._close_timer is not None:
            self._close_timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """As uvicorn's: closes now, or after the answer under way; but does not wait long for the peer."""
        self._outbox.flush()
        super().shutdown()
        self._end_closing(was_closing=False)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # refused or ended by us: nothing more is taken from it
        super().data_received(data)
        self._request_bytes += len(data)
        if self._request_bytes > (MAX_HEAD_BYTES if self._is_in_head else MAX_REQUEST_BYTES):
            self._refuse_size()
        elif self._is_in_head or not self._is_answering():
            if not self._is_head_due:
                self._await_head()
        else:
            self._is_head_due = False
            self._patience.lift()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._request_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, of the head alone."""
        if not self._is_in_head:
            # A trailer, which the parser reports likewise, perhaps before the application has begun. A client
            # could send identity headers so, and the aggregator would pass them on unfiltered.
            return
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """As uvicorn's, for what is served here: no WebSocket, no root path, no bound of its own."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests sent ahead")
        self._is_in_head = False
        scope, parser, url = self.scope, self.parser, httptools.parse_url(self.url)
        http_version = parser.get_http_version()
        path = url.path.decode("ascii")
        scope["http_version"] = http_version
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before, self.cycle = self.cycle, Exchange(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )  # fmt: skip
        self.cycle.outbox = self._outbox
        # uvicorn's type leaves out that there is no cycle before the first request.
        if before is None or before.response_complete:  # type: ignore[redundant-expr]
            self._start_asgi_task(self.cycle, self.app)
        else:  # pipelined
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_response_complete(self) -> None:
        """As uvicorn's, with one timer for all waits of a connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._is_head_due:
            self._patience.limit(self.timeout_keep_alive)

    def send_400_response(self, msg: str) -> None:
        """Never in place of the answer to an earlier request, nor within it: that is the last one then."""
        cycle = self.cycle
        if self._is_answering() and (self.pipeline or cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            return
        self._outbox.flush()
        super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn's place for two lines of log. The parser takes nothing more after such a request, so without
        # this a kept-alive connection would swallow the next one and stay for ever.
        self.cycle.keep_alive = False

    def _is_answering(self) -> bool:
        # uvicorn's type leaves out that there is no cycle before the first request.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _refuse_size(self) -> None:
        if self._is_in_head and not self._is_answering():
            self.send_400_response("The request's headers are too large.")
        else:
            self.transport.abort()  # it is being answered already, or was, or another one is

    def _end_closing(self, was_closing: bool) -> None:
        if was_closing and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:  # an answer is still under way, or its end
            is_closing = self.transport.is_closing()
            self._close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self._end_closing, is_closing)

    def _await_head(self) -> None:
        self._is_head_due = True
        self._patience.limit(HEAD_TIMEOUT_S)
