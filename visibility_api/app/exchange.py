"""One request and its response: the headers of every response, time limits of sending, metrics, the log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import TypeVar

import structlog
from starlette.types import ASGIApp, Message

from visibility_api.errors.status import Overloaded
from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.deadline import within
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.kubeapi.delivery import DEFAULT_CACHE_CONTROL, ReaderTooSlow, deliver
from visibility_api.kubeapi.message import (
    Headers,
    Receive,
    ResourceResponse,
    ResourceStream,
    Scope,
    Send,
)
from visibility_api.kubeapi.turns import Turns

from .limits import FEW_RESPONSES, MIN_CHUNK_TIMEOUT_S, REQUEST_S, Limits, Places
from .refusal import is_unforeseen, log_failure, refuse
from .request_info import RequestInfo
from .request_metrics import Series

log = structlog.get_logger(__name__)

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499  # as nginx counts it; the client has gone
# Of a stream, in one write: small for `serving.writer`, so that the connection keeps less memory.
PIECE_BYTES = 16 * 1024 - 64
MAX_AUDIT_ID_BYTES = 128  # of one that comes with the request
_PRINTABLE = bytes(range(0x21, 0x7F))


class Exchange:
    """A response is sent by one of `deliver`, `stream` and `forward`, which counts it."""

    info: RequestInfo  # of "/" until the request line is parsed
    series: Series  # of its metrics
    # The class has the defaults: each field that is set takes time, and most requests need none of these.
    place: tuple[Places, str] | None = None  # among the requests in flight, and whose it is
    client: str = ""  # whose share of the event loop's time it takes; "": nobody's
    turn: ClientQueues | None = None  # the client is over its share: one of its requests is served at a time
    limit: asyncio.Timeout | None = None  # of what it waited for last
    is_given_up = False  # it waited, and others needed its place
    unpaid_s: float = REQUEST_S  # used before the client was known, and for TLS and the headers

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        info: RequestInfo,
        series: Series,
        *,
        limits: Limits,
        shares: TimeShares,
        turns: Turns,
    ) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.info, self.series = info, series
        self.limits, self.shares, self.turns = limits, shares, turns
        self.began = perf_counter()
        self.audit_id = _audit_id(scope["headers"])
        self.own_headers: Headers = ((b"audit-id", self.audit_id),)  # of every response

    def refuse(self, error: Exception) -> ResourceResponse:
        """The response for `error`, which is logged when it is a fault of this server."""
        if self.is_given_up:
            error = Overloaded()
        if is_unforeseen(error):
            log_failure(error, scope=self.scope, audit_id=self.audit_id)
        return refuse(error, scope=self.scope, query=self.info.query)

    def charge(self, spent_s: float) -> None:
        """So many seconds of the event loop were used for this request."""
        self.unpaid_s += spent_s
        if self.client:
            self.shares.charge(self.client, self.unpaid_s)
            self.unpaid_s = 0.0

    def record(self, status: int) -> None:
        """Count the request as finished."""
        self.series.record(status, perf_counter() - self.began)

    def enter(self, places: Places, client: str) -> None:
        """Take a place in flight, until `leave`. Raises Overloaded or TooManyRequests."""
        places.enter(client)
        self.place = places, client
        if self.limit is not None:
            self.opened(self._give_up)

    def leave(self) -> None:
        """Give the place in flight back, and the turn, if they were taken."""
        self.end_turn()
        if self.place is not None:
            places, client = self.place
            places.leave(client, self)
            self.place = None

    def opened(self, end: Callable[[], None]) -> None:
        """A watch has begun, or the request waits, which `end` ends: others may need its place."""
        if self.place is not None:
            places, client = self.place
            places.note(client, self, end)

    def within(self, timeout_s: float, work: Awaitable[T], *, is_charged: bool = True) -> Awaitable[T]:
        """`flowcontrol.deadline.within`; over as well when it waits and others need its place."""
        return within(timeout_s, work, self.charge if is_charged else None, self._wait)

    def _wait(self, limit: asyncio.Timeout) -> None:
        self.limit = limit
        self.opened(self._give_up)

    def _give_up(self) -> None:
        with contextlib.suppress(RuntimeError):  # it waits no longer
            assert self.limit is not None  # noqa: S101 - set by `_wait`
            self.limit.reschedule(0.0)
            self.is_given_up = True

    def end_turn(self) -> None:
        """The next request of a client that is over its share may be served."""
        if self.turn is not None:
            self.turn.leave(self.client)
            self.turn = None

    async def deliver(self, response: ResourceResponse) -> None:
        """Send a whole response. When the reader is too slow, uvicorn closes the connection.

        It keeps its place meanwhile, and one of kube-apiserver's when that forwards the request.
        """
        sending = deliver(
            response,
            send=self.send if isinstance(response.body, bytes) else self._send_in_time,
            own_headers=self.own_headers,
            headers=self.scope["headers"],
            turns=self.turns,
        )
        try:
            # What it takes to send a small body is in `REQUEST_S`.
            is_charged = not isinstance(response.body, bytes)
            await self.within(self.limits.send_timeout_s, sending, is_charged=is_charged)
        except TimeoutError:
            self._log_slow_client()
        self.record(response.status)

    async def _send_in_time(self, message: Message) -> None:
        """Raises TimeoutError when the client reads nothing for so long: the less, the more of its responses
        are under way. Unread ones could take all seats that kube-apiserver has for this API."""
        limit_s = self.limits.chunk_timeout_s
        if self.place is not None:
            places, client = self.place
            share = FEW_RESPONSES / max(FEW_RESPONSES, places.taken_by(client))
            limit_s = max(limit_s * share, min(limit_s, MIN_CHUNK_TIMEOUT_S))
        await within(limit_s, self.send(message))

    async def stream(self, stream: ResourceStream) -> None:
        """Send the headers at once (client-go's `Watch` returns with them), then what the handler writes."""
        self.series.count(200)
        content_type = (b"content-type", stream.content_type.encode())
        headers = [content_type, *self.own_headers, DEFAULT_CACHE_CONTROL, *stream.headers]
        try:
            await self.send({"type": "http.response.start", "status": 200, "headers": headers})
            await stream.write(self._send_chunk)
            await self.send({"type": "http.response.body"})
        except ReaderTooSlow:
            self._log_slow_client()
        except Exception as error:
            log.error("stream failed", audit_id=self.audit_id.decode(), **describe_fault(error))

    async def forward(self, inner: ASGIApp) -> None:
        """Let FastAPI respond, and add the headers of every response."""
        self.scope["request_info"] = self.info
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message["headers"], *self.own_headers]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append(DEFAULT_CACHE_CONTROL)
            await self.send(message)

        try:
            limit_s = min(self.info.timeout_s, self.limits.send_timeout_s)
            await self.within(limit_s, inner(self.scope, self.receive, send_on))
        except Exception as error:
            if not status:
                await self.deliver(self.refuse(error))
                return
            if isinstance(error, TimeoutError):
                self._log_slow_client()
            else:  # Starlette has sent a 500 and raises it again
                log_failure(error, scope=self.scope, audit_id=self.audit_id)
        self.record(status)

    async def _send_chunk(self, chunk: bytes) -> None:
        try:
            await within(self.limits.chunk_timeout_s, self._send_pieces(chunk))
        except TimeoutError as error:
            raise ReaderTooSlow from error

    async def _send_pieces(self, chunk: bytes) -> None:
        """Small ones, of whole lines if they fit: before each of them `send` waits for the client to read."""
        start = 0
        while len(chunk) - start > PIECE_BYTES:
            end = chunk.rfind(b"\n", start, start + PIECE_BYTES) + 1 or start + PIECE_BYTES
            piece, start = chunk[start:end], end
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        rest = chunk[start:] if start else chunk
        await self.send({"type": "http.response.body", "body": rest, "more_body": True})

    def _log_slow_client(self) -> None:
        log.info("client too slow, connection closed", audit_id=self.audit_id.decode())


def _audit_id(headers: Headers) -> bytes:
    """The request's own id, which kube-apiserver always sets, else a new one."""
    for name, sent in headers:
        if name == b"audit-id":
            if 0 < len(sent) <= MAX_AUDIT_ID_BYTES and not sent.translate(None, _PRINTABLE):
                return sent
            break
    return next(_new_audit_ids)


def _count_audit_ids() -> Iterator[bytes]:
    """Each is a version 4 UUID whose last part is a counter: unique by the random rest, and cheap to make."""
    form = str(uuid.uuid4())[:24].encode() + b"%012x"
    return (form % number for number in itertools.count(1))


_new_audit_ids = _count_audit_ids()
