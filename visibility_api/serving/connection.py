"""One HTTP connection: passes the client's certificate on to the application, and enforces limits.

uvicorn puts no certificate into the ASGI scope. It copies the application's state into the scope of every
request, of pipelined ones and of those that ask for an upgrade too. So the certificate is put there, once per
connection.
"""

from __future__ import annotations

import asyncio
import math
import ssl

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.review_admission import site_of
from visibility_api.errors.status import TooManyRequests, encode_status

from .connections import CONNECTION_BYTES, Connections
from .tls import peer_of
from .writer import Response, Writer

# Request line and headers: Go's http.DefaultMaxHeaderBytes. The second of a client without a certificate that
# is not known yet: a long token and a long selector, escaped.
MAX_HEAD_BYTES, MAX_STRANGERS_HEAD_BYTES = 1024 * 1024, 128 * 1024
# Each of a user's groups is one header, and the shortest headers take thirty times their bytes in memory.
# Each costs a microsecond.
MAX_HEADERS, MAX_STRANGERS_HEADERS = 8192, 128
# No part of this server reads these, and FastAPI would take each cookie apart. kube-apiserver sends the rest.
UNREAD_HEADERS = frozenset(
    (b"cookie", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-uri")
)
HEADER_BYTES = 200  # that one header takes beside its own bytes
FREE_HEAD_BYTES = 24 * 1024  # what each head may hold beside what all may hold together
STRANGERS_PIECE_BYTES = 32 * 1024  # parsed in one turn of the loop
MAX_PATH_BYTES = 4096  # the longest that is served has 450, three times that when all of it is escaped
MAX_PIPELINED = 8  # requests sent before an earlier one is answered; no Kubernetes client sends any
MAX_BODY_PIECES = 2048  # of one body: 0.4 ms to take apart
# What waits to be parsed or sent before reading or writing pauses. A connection keeps as much memory as was
# ever waiting in either direction.
MAX_UNPARSED_BYTES, MAX_UNSENT_BYTES = 32 * 1024, 64 * 1024
MAX_REQUEST_BYTES = 3 * 1024 * 1024  # head, body and trailers; kube-apiserver limits bodies to this
HEALTH_PATHS = frozenset((b"/healthz", b"/livez", b"/readyz"))  # answered also then


class TlsConnection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the client's certificate in `scope["state"]`."""

    peer: Peer
    site = ""
    was_asked = True
    head_deadline = math.inf
    answered_at = math.inf  # loop time of the last response; before its first one it is not idle
    _is_in_head = False
    _is_surplus = False  # one of the last that may be open: its first request is answered 429
    _request_bytes = 0
    _body_pieces = 0
    _chunk_bytes = 0  # what is being parsed
    _unread = b""  # waits for its turn: of a client that was not known, within a large head, or of a crowd
    _writer: Writer

    def __init__(self, *, config: Config, server_state: ServerState, connections: Connections) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._all = connections
        self._body: list[bytes] = []  # pieces that came together

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        if (set_read_buffer_limits := getattr(transport, "set_read_buffer_limits", None)) is not None:
            set_read_buffer_limits(MAX_UNPARSED_BYTES)  # of TLS, in asyncio and uvloop
        self._writer = Writer(transport, self.loop)
        super().connection_made(self._writer)
        tls = transport.get_extra_info("ssl_object")
        self.peer = peer_of(tls)
        self.was_asked = tls is None or tls.context.verify_mode != ssl.CERT_NONE
        self.site = site_of(self.client[0] if self.client else "")
        self.app_state = {PEER: self.peer}
        self._await_head()
        self._all.enter(self)
        limits = self._all.limits
        self._is_surplus = len(self._all) > limits.connections - limits.reserve
        if len(self._all) > limits.connections:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close at once."""
        self.transport.abort()

    @property
    def kept_bytes(self) -> int:
        return CONNECTION_BYTES + self._writer.kept_bytes

    @property
    def idle_since(self) -> float | None:
        is_busy = self._is_answering() or self._is_in_head or self._unread or self.answered_at == math.inf
        return None if is_busy else self.answered_at

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        is_in_large_head = self._is_in_head and self._request_bytes > FREE_HEAD_BYTES
        peer = self.peer
        may_parse = (peer.is_front_proxy or peer.is_replica) or (
            self._is_known() and not is_in_large_head and self._all.may_read(self.loop.time(), peer.client)
        )
        if may_parse and not self._unread:
            self._parse(data)
            return
        self._unread += data
        self._writer.hold()
        self._all.read_in_turn(self)

    def read_on(self) -> None:
        """Parse a piece of what was held back; after the last one more is read."""
        if self.transport.is_closing():
            return
        size = STRANGERS_PIECE_BYTES
        piece, self._unread = self._unread[:size], self._unread[size:]
        if self._unread:
            self._all.read_in_turn(self)
        else:
            self._writer.release()  # before the piece: if that is a request too early, it is paused again
        if piece:
            self._parse(piece)

    def _parse(self, data: bytes) -> None:
        self._chunk_bytes = len(data)
        if not self.peer.is_replica:  # which confirms for as long as it follows
            self._request_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._pass_body()
        if self._is_in_head and not self._may_hold_head():
            self.send_400_response("The request's headers are too large.")
        elif not self._is_in_head and self._request_bytes > MAX_REQUEST_BYTES:
            self.drop()  # a response was sent or started already
        elif not self._is_in_head and self._is_answering():
            self.head_deadline = math.inf
        elif self.head_deadline == math.inf:  # further bytes of a head do not give it more time
            self._await_head()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._request_bytes, self._body_pieces = self._chunk_bytes, 0
        self._body.clear()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As in uvicorn, but for headers only, not trailers."""
        if not self._is_in_head:
            # The parser reports trailers through the same callback, perhaps before the application has
            # started. A client could send X-Remote-User as a trailer: the aggregator forwards trailers as
            # they are, and strips such names only from headers.
            return
        number = len(self.headers)
        if number >= MAX_STRANGERS_HEADERS and (number >= MAX_HEADERS or not self._is_known()):
            raise ValueError("too many headers")
        if (name := name.lower()) not in UNREAD_HEADERS:
            if name == b"expect":
                super().on_header(name, value)
            else:
                self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """As in uvicorn, within limits."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many pipelined requests")
        if not self._may_hold_head():
            raise ValueError("too many large heads")
        if len(self.url.partition(b"?")[0]) > MAX_PATH_BYTES:
            raise ValueError("the path is too long")
        self._is_in_head = False
        if self._is_surplus and self.url not in HEALTH_PATHS:
            self.app = refuse_surplus
        super().on_headers_complete()
        self.cycle.__class__ = Response

    def on_body(self, body: bytes) -> None:
        """Within a limit."""
        self._body_pieces += 1
        if self._body_pieces > MAX_BODY_PIECES and not self.peer.is_replica:
            raise ValueError("the body comes in too many pieces")
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._pass_body()
        super().on_message_complete()

    def _pass_body(self) -> None:
        """As uvicorn's `on_body`, which copies all that is there for each piece: once for all."""
        if self._body:
            body, self._body = b"".join(self._body), []
            super().on_body(body)

    def on_response_complete(self) -> None:
        """As in uvicorn, but without a timer for each request: `Connections.sweep` closes idle ones."""
        self.answered_at = self.loop.time()
        if not self.pipeline and not self._is_in_head:
            self._all.release_head(self)
            if self._request_bytes > FREE_HEAD_BYTES:
                self.headers.clear()  # else the connection keeps them until its next request
        if not self._is_known() and self.peer.unknown is not None:
            # A thousand who are answered at the same moment would be read from at the same moment.
            self._writer.hold()
            self._all.read_in_turn(self)
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def send_400_response(self, msg: str) -> None:
        """As in uvicorn, but never instead of, or inside, the response to an earlier request.

        That response is still sent and is the last one on the connection.
        """
        cycle = self.cycle
        if self._is_answering() and (self.pipeline or cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            return
        super().send_400_response(msg)
        self._all.release_head(self)
        self.headers, self._unread = [], b""

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn only logs here. The parser accepts nothing after such a request, so a kept-alive connection
        # would swallow the next request and stay open for ever.
        self.cycle.keep_alive = False

    def _is_answering(self) -> bool:
        # uvicorn's type does not say that there is no cycle before the first request.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _is_known(self) -> bool:
        return bool(self.peer.chain) or self.peer.is_known

    def _may_hold_head(self) -> bool:
        """Whether there is memory for a head of this size."""
        size = self._request_bytes + HEADER_BYTES * len(self.headers)
        if size <= FREE_HEAD_BYTES:
            return True
        if not self._is_known():
            return self._request_bytes <= MAX_STRANGERS_HEAD_BYTES
        return self._request_bytes <= MAX_HEAD_BYTES and (
            self.peer.is_front_proxy or self._all.hold_head(self, size - FREE_HEAD_BYTES)
        )

    def _await_head(self) -> None:
        self.head_deadline = self.loop.time() + self._all.limits.head_timeout_s


async def refuse_surplus(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The application of connections beyond the bound."""
    error = TooManyRequests("too many connections are open; try again after the time in Retry-After")
    body = encode_status(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % error.retry_after_s),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
