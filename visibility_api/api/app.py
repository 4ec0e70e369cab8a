"""The ASGI application: one fixed chain in front of the handlers.

Audit-Id → in-flight bound → authentication → authorisation → route → handler → answer. Authorisation comes
before routing: whoever has no right learns nothing of what exists (Z2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import structlog

from visibility_api.auth.authenticator import WARNING
from visibility_api.auth.identity import MASTERS_GROUP
from visibility_api.deadline import within

from .audit_id import AuditIds
from .delivery import DEFAULT_CACHE_CONTROL, ReaderTooSlow, deliver
from .message import Authenticator, Authorizer, Headers, Receive, Request, Response, Scope, Send, Stream
from .metrics import RequestMetrics, Series
from .protocols import answer_other_protocol
from .refusal import refuse
from .request_info import RequestInfo, read_request
from .routing import UNREADABLE, Route, Routes
from .status import (
    InternalError,
    RequestError,
    Timeout,
    TooManyRequests,
    Unavailable,
    to_request_error,
)
from .warnings import warning_header

log = structlog.get_logger(__name__)

SEND_TIMEOUT_S = 60.0  # for one whole answer to a slow reader, as the Go server's request limit
CHUNK_TIMEOUT_S = 10.0  # for one piece of a watch: a reader this slow is cut (W20)
MAX_PLANS = 4096
# Longer request lines are read each time instead of being kept: a parameter takes forty times its bytes.
MAX_PLANNED_PATH_CHARACTERS, MAX_PLANNED_QUERY_BYTES = 512, 128
_EXEMPT_PATHS = frozenset(("/healthz", "/livez", "/readyz"))  # overload must not get us restarted
_LOGGED_CHARACTERS = 200

OwnHeaders = list[tuple[bytes, bytes]]  # of every answer: Audit-Id first, then warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be under way at once (P11)."""

    in_flight: int = 400  # requests that are no running watch; system:masters may exceed it
    watches: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """All that follows from a request line alone; kept, because the same lines come again and again."""

    info: RequestInfo
    route: Route
    series: Series  # of its metrics
    is_watch: bool
    is_exempt: bool  # from the in-flight bound


class Api:
    """The application. Holds no state of a request; counts what is under way."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        routes: Routes,
        metrics: RequestMetrics,
        is_synced: Callable[[str], bool] = lambda _namespace: True,
        is_draining: Callable[[], bool] = lambda: False,
        limits: Limits = Limits(),
    ) -> None:
        """`is_synced`: the caches are filled for a namespace, or for all of them when it is "".

        `is_draining`: watches are being ended, new ones refused.
        """
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._routes = routes
        self._metrics = metrics
        self._is_synced = is_synced
        self._is_draining = is_draining
        self._limits = limits
        self._audit_ids = AuditIds()
        self._unreadable = _Plan(
            info=read_request("GET", "/", b""),
            route=UNREADABLE,
            series=metrics.series(UNREADABLE.labels),
            is_watch=False,
            is_exempt=False,
        )
        self._kept_plan = lru_cache(MAX_PLANS)(self._make_plan)
        self._in_flight = 0
        self._watches = 0
        metrics.watch_in_flight(lambda: (self._in_flight, self._watches))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await answer_other_protocol(scope, receive, send)
            return
        began = perf_counter()
        headers: Headers = scope["headers"]
        audit_id = self._audit_ids.find(headers)
        own: OwnHeaders = [(b"audit-id", audit_id)]
        plan = self._unreadable
        self._in_flight += 1
        try:
            try:
                plan = self._plan(scope["method"], scope["path"], scope["query_string"])
                outcome = await within(plan.info.timeout_s, self._answer(plan, scope, receive))
            except Exception as error:
                outcome = self._refuse(error, plan, scope, audit_id)
            if (state := scope.get("state")) and WARNING in state:  # A15: how the caller showed who they are
                own.append(warning_header(state[WARNING]))
            if isinstance(outcome, Response):
                await self._deliver(outcome, send, own, headers)
                plan.series.record(outcome.status, perf_counter() - began)
        finally:
            self._in_flight -= 1
        if isinstance(outcome, Stream):
            plan.series.count(200)
            await self._stream(outcome, send, own)

    def _plan(self, method: str, path: str, query_string: bytes) -> _Plan:
        if len(path) > MAX_PLANNED_PATH_CHARACTERS or len(query_string) > MAX_PLANNED_QUERY_BYTES:
            return self._make_plan(method, path, query_string)
        return self._kept_plan(method, path, query_string)

    def _make_plan(self, method: str, path: str, query_string: bytes) -> _Plan:
        info = read_request(method, path, query_string)
        route = self._routes.find(method, info)
        return _Plan(
            info=info,
            route=route,
            series=self._metrics.series(route.labels),
            is_watch=info.is_watch,
            is_exempt=path in _EXEMPT_PATHS,
        )

    async def _answer(self, plan: _Plan, scope: Scope, receive: Receive) -> Response | Stream:
        """The handler's answer. Raises what any filter or the handler raises."""
        limits = self._limits
        # Who asks is not known yet, and to find out may take a review: twice the bound may wait here.
        if self._in_flight > 2 * limits.in_flight and not plan.is_exempt:
            raise TooManyRequests
        identity = await self._authenticator.authenticate(scope)
        if self._in_flight > limits.in_flight and not plan.is_exempt and MASTERS_GROUP not in identity.groups:
            raise TooManyRequests
        await self._authorizer.authorize(identity, plan.info.attributes)
        if plan.route.needs_documents and not self._is_synced(plan.info.attributes.namespace):
            raise Unavailable("the caches are not filled yet")  # never a 404 instead (R3)
        if plan.is_watch:
            if self._is_draining():
                raise Unavailable("apiserver is shutting down")  # W24
            if self._watches >= limits.watches:
                raise TooManyRequests
        return await plan.route.handler(
            Request(
                method=scope["method"],
                path=scope["path"],
                query=plan.info.query,
                headers=scope["headers"],
                identity=identity,
                attributes=plan.info.attributes,
                receive=receive,
            )
        )

    def _refuse(self, error: Exception, plan: _Plan, scope: Scope, audit_id: bytes) -> Response:
        refused: RequestError
        if isinstance(error, TimeoutError):
            refused = Timeout("request did not complete within the allotted timeout")
        else:
            refused = to_request_error(error, uri=_uri(scope))
        if isinstance(refused, InternalError):  # all others are told in full, or by `auth` itself
            log.error(
                "request failed",
                audit_id=audit_id.decode(),
                method=scope["method"][:16],
                path=scope["path"][:_LOGGED_CHARACTERS],
                exc_info=error,
            )
        return refuse(refused, headers=scope["headers"], query=plan.info.query)

    async def _deliver(self, response: Response, send: Send, own: OwnHeaders, headers: Headers) -> None:
        """A whole answer. A reader too slow for it is left: the server below closes the connection (R17)."""
        sending = deliver(response, send=send, own_headers=own, headers=headers)
        try:
            await within(SEND_TIMEOUT_S, sending)
        except TimeoutError:
            log.info("client too slow, connection closed", audit_id=own[0][1].decode())

    async def _stream(self, stream: Stream, send: Send, own: OwnHeaders) -> None:
        """Headers at once, before there is anything to tell (W3), then what the handler writes."""
        audit_id = own[0][1].decode()
        self._watches += 1
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", stream.content_type.encode()),
                        *own,
                        DEFAULT_CACHE_CONTROL,
                    ],
                }
            )

            async def send_chunk(chunk: bytes) -> None:
                message = {"type": "http.response.body", "body": chunk, "more_body": True}
                try:
                    await within(CHUNK_TIMEOUT_S, send(message))
                except TimeoutError as error:
                    raise ReaderTooSlow from error

            await stream.write(send_chunk)
            await send({"type": "http.response.body"})
        except ReaderTooSlow:
            log.info("watcher too slow, stream cut", audit_id=audit_id)
        except Exception:
            log.exception("stream failed", audit_id=audit_id)
        finally:
            self._watches -= 1


def _uri(scope: Scope) -> str:
    """Path and query as they were sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw + b"?" + query if query else raw).decode("latin-1")[:_LOGGED_CHARACTERS]
