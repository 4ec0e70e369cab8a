"""One HTTP connection: passes the client's certificate on to the application, and enforces limits.

uvicorn puts no certificate into the ASGI scope. It does copy the application's state into the scope of every
request, including pipelined ones and those that ask for an upgrade, so the certificate is put there, once per
connection.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.review_admission import site_of

from .coalescing_writer import CoalescingWriter
from .exchange import Exchange
from .flow import Flow
from .idle_timeout import IdleTimeout
from .strangers import FREE_HEAD_BYTES, HEADER_BYTES, Strangers
from .tls import CONNECTION_LIMITS, ConnectionLimits, ServingContext, peer_of

MAX_HEAD_BYTES = 1024 * 1024  # request line and headers: Go's http.DefaultMaxHeaderBytes
# Of a client without a certificate that is not known yet: a long token and a long selector, escaped.
MAX_STRANGERS_HEAD_BYTES = 128 * 1024
STRANGERS_PIECE_BYTES = 32 * 1024  # parsed in one turn of the loop
# Each of a user's groups is one header, and the shortest headers take thirty times their bytes in memory.
MAX_HEADERS = 8192
# Of a client without a certificate that is not known yet: each header costs a microsecond.
MAX_STRANGERS_HEADERS = 128
MAX_PATH_BYTES = 4096  # the longest that is served has 450, three times that when all of it is escaped
# At shutdown uvloop waits 30 s for the client to answer the end of TLS, which pooled connections of blocked
# or dead clients never do. The kubelet would kill the process before its shutdown is complete.
CLOSE_TIMEOUT_S = 2.0
LINGER_S = 0.5  # between the refusal of bytes and the end, for clients that are still sending
# Requests sent before an earlier one is answered; no Kubernetes client sends any. Of a client without a
# certificate: each is parsed before it is known who sent the first.
MAX_PIPELINED, MAX_STRANGERS_PIPELINED = 128, 8
# What waits to be parsed or sent before reading or writing pauses. A connection keeps for ever as much memory
# as was ever waiting in either direction.
MAX_UNPARSED_BYTES, MAX_UNSENT_BYTES = 32 * 1024, 64 * 1024
MAX_REQUEST_BYTES = 3 * 1024 * 1024  # head, body and trailers; kube-apiserver limits bodies to this


class TlsConnection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the client's certificate in `scope["state"]`: `http=TlsConnection`."""

    _is_in_head = False
    _is_head_charged = False  # by `Strangers`
    _is_head_due = False  # head_timeout_s is running; further bytes of the head do not restart it
    _request_bytes = 0
    _timeout: IdleTimeout  # of the head, or between two requests
    _writer: CoalescingWriter
    _close_timer: asyncio.TimerHandle | None = None
    _is_refused = False  # and will be closed
    _context: ServingContext | None = None
    _strangers: Strangers | None = None  # None: the client has a certificate
    _chunk_bytes = 0  # what is being parsed; not in _request_bytes yet
    _unread = b""  # waits for its turn: of a client that was not known when it came, or within a large head
    flow: Flow
    _max_headers = MAX_HEADERS
    _max_pipelined = MAX_PIPELINED
    peer: Peer
    site = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        if (set_read_buffer_limits := getattr(transport, "set_read_buffer_limits", None)) is not None:
            set_read_buffer_limits(MAX_UNPARSED_BYTES)  # of TLS, in asyncio and uvloop
        self.flow = Flow(transport, self._count_memory)
        self._timeout = IdleTimeout(self.loop, transport.close)
        self._writer = CoalescingWriter(self.loop, transport)
        context = transport.get_extra_info("sslcontext")
        if isinstance(context, ServingContext):
            self._context = context
        tls = transport.get_extra_info("ssl_object")
        self.peer = peer_of(tls)
        self.site = site_of(self.client[0] if self.client else "")
        self._count_memory()
        if len(self.connections) > self._limits.connections:
            transport.abort()  # cheaper than a response, and clients retry
            return
        self.app_state = {**self.app_state, PEER: self.peer}
        self._await_head()
        if tls is not None and self._context is not None:
            context = self._context
            context.track(self, tls)
            if not self.peer.chain:
                self._strangers = context.strangers
                self._max_headers = MAX_STRANGERS_HEADERS
                self._max_pipelined = MAX_STRANGERS_PIPELINED
                self._strangers.enter(self)

    @property
    def _limits(self) -> ConnectionLimits:
        return CONNECTION_LIMITS if self._context is None else self._context.limits

    def connection_lost(self, exc: Exception | None) -> None:
        if self._context is not None:
            self._context.without_certificate.discard(self)
            self._context.memory.leave(self)
            self._context.strangers.leave(self)
        self._release_head()
        self._timeout.close()
        if self._close_timer is not None:
            self._close_timer.cancel()
        super().connection_lost(exc)
        self.flow.end()  # or both would be kept, with all that a head took, until a full collection

    def drop(self) -> None:
        """Close at once, for `Strangers` and `ConnectionMemory`."""
        self.transport.abort()

    @property
    def kept_bytes(self) -> int:
        """For `ConnectionMemory`."""
        return self.flow.kept_bytes

    @property
    def idle_since(self) -> float | None:
        """For `ConnectionMemory`: None while a request is read or answered."""
        if self._is_answering() or self._is_in_head or self._unread:
            return None
        waits = self._limits.head_timeout_s if self._is_head_due else self.timeout_keep_alive
        return self._timeout.deadline - waits

    def _count_memory(self) -> None:
        if self._context is not None:
            self._context.memory.count(self)

    def shutdown(self) -> None:
        """As in uvicorn, closes now or after the response in progress; waits for the client briefly."""
        self._writer.flush()
        super().shutdown()
        self._end_closing(was_closing=False)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return  # nothing more is read
        is_known = self._strangers is None or self.peer.is_known
        is_in_large_head = self._is_in_head and self._request_bytes > FREE_HEAD_BYTES
        if self._context is None or (
            is_known and not self._unread and (not is_in_large_head or self.peer.is_front_proxy)
        ):
            self._parse(data)
            return
        self._unread += data
        self._hold(self._context.strangers)

    def _hold(self, strangers: Strangers) -> None:
        """Read no more before it is this connection's turn."""
        self.flow.is_held = True
        self.flow.pause_reading()
        strangers.read_in_turn(self, self._read_on)

    def _read_on(self) -> None:
        """Parse a piece of what was held back; after the last one more is read."""
        if self._is_refused or self.transport.is_closing():
            return
        size = STRANGERS_PIECE_BYTES
        piece, self._unread = self._unread[:size], self._unread[size:]
        if self._unread and self._context is not None:
            self._context.strangers.read_in_turn(self, self._read_on)
        else:
            self.flow.is_held = False
            self.flow.resume_reading()  # before the piece: if that is a request too early, it is paused again
        if piece:
            self._parse(piece)

    def _parse(self, data: bytes) -> None:
        self._chunk_bytes = len(data)
        super().data_received(data)
        if self._is_refused:
            return
        if not self.peer.is_replica:  # which confirms for as long as it follows
            self._request_bytes += self._chunk_bytes
        self._chunk_bytes = 0
        most = self._max_head_bytes() if self._is_in_head else MAX_REQUEST_BYTES
        if self._request_bytes > most or (self._is_in_head and not self._may_hold_head()):
            self._refuse_size()
        elif self._is_in_head or not self._is_answering():
            if not self._is_head_due:
                self._await_head()
        else:
            self._is_head_due = False
            self._timeout.stop()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._request_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As in uvicorn, but for headers only, not trailers."""
        if not self._is_in_head:
            # The parser reports trailers through the same callback, perhaps before the application has
            # started. A client could send X-Remote-User as a trailer: the aggregator forwards trailers as
            # they are, and strips such names only from headers.
            return
        if len(self.headers) >= self._max_headers:
            if self._max_headers == MAX_HEADERS or not self.peer.is_known:
                raise ValueError("too many headers")
            self._max_headers = MAX_HEADERS
        name = name.lower()
        if name == b"cookie":
            return  # no part of this server reads one, and FastAPI would take each apart
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """As in uvicorn, without what is not used here: WebSockets, a root path, a concurrency limit."""
        if len(self.pipeline) >= self._max_pipelined:
            raise ValueError("too many pipelined requests")
        if not self._may_hold_head():
            raise ValueError("too many large heads of clients that are not known")
        self._is_in_head = False
        scope, parser, url = self.scope, self.parser, httptools.parse_url(self.url)
        http_version = parser.get_http_version()
        path = url.path.decode("ascii")
        if len(path) > MAX_PATH_BYTES:
            raise ValueError("the path is too long")
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
        self.cycle.writer = self._writer
        # uvicorn's type does not say that there is no cycle before the first request.
        if before is None or before.response_complete:  # type: ignore[redundant-expr]
            self._start_asgi_task(self.cycle, self.app)
        else:  # pipelined
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_response_complete(self) -> None:
        """As in uvicorn, with one timer for all timeouts of a connection."""
        self.server_state.total_requests += 1
        if self._is_head_charged and not (self.pipeline or self._is_answering() or self._is_in_head):
            self.headers.clear()  # else the connection keeps them until its next request
        self._release_head()
        if self.transport.is_closing():
            return
        if self._strangers is not None and self.peer.unknown is not None and not self.peer.is_known:
            self._hold(self._strangers)
        else:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._is_head_due:
            self._timeout.start(self.timeout_keep_alive)

    def send_400_response(self, msg: str) -> None:
        """As in uvicorn, but never instead of, or inside, the response to an earlier request.

        That response is still sent and is the last one on the connection.
        """
        cycle = self.cycle
        if self._is_answering() and (self.pipeline or cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            return
        self._writer.flush()
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(msg), msg.encode("ascii"))
        )
        self._linger()

    def _linger(self) -> None:
        """Close soon, without reading: to end TLS in order, all would be read that the client still sends."""
        self._is_refused = self.flow.is_held = True
        self.flow.pause_reading()
        if self._is_answering():  # the body of this request cannot be read
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._release_head()
        self.headers, self._unread = [], b""
        self._close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn only logs here. The parser accepts nothing after such a request, so a kept-alive connection
        # would swallow the next request and stay open for ever.
        self.cycle.keep_alive = False

    def _is_answering(self) -> bool:
        # uvicorn's type does not say that there is no cycle before the first request.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _max_head_bytes(self) -> int:
        is_known = self._strangers is None or self.peer.is_known
        return MAX_HEAD_BYTES if is_known else MAX_STRANGERS_HEAD_BYTES

    def _may_hold_head(self) -> bool:
        """Whether there is memory for a head of this size of a client that may not be known."""
        size, number = self._request_bytes + self._chunk_bytes, len(self.headers)
        if self._context is None or size + HEADER_BYTES * number <= FREE_HEAD_BYTES:
            return True
        self._is_head_charged = True
        return self._context.strangers.charge(self, size, number)

    def _release_head(self) -> None:
        if self._is_head_charged and self._context is not None:
            self._is_head_charged = False
            self._context.strangers.release(self)

    def _refuse_size(self) -> None:
        if self._is_in_head and not self._is_answering():
            self.send_400_response("The request's headers are too large.")
        else:
            self.transport.abort()  # a response was sent or started already

    def _end_closing(self, was_closing: bool) -> None:
        if was_closing and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:  # a response, or the end of TLS, is still being written
            is_closing = self.transport.is_closing()
            self._close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self._end_closing, is_closing)

    def _await_head(self) -> None:
        self._is_head_due = True
        self._timeout.start(self._limits.head_timeout_s)
