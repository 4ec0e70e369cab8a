"""The one chain that every request passes: audit id, authentication, bounds, authorisation, routing.

Authorisation comes before routing, so that a caller without rights does not learn which paths exist. Requests
of the Kubernetes resource path are answered here; all others go on to FastAPI's router.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import structlog
from starlette.types import ASGIApp, Message

from visibility_api.auth.authenticator import FORWARDED, OWN_CERTIFICATE, WARNING
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.identity import ANONYMOUS
from visibility_api.errors.faults import describe_fault
from visibility_api.errors.status import (
    BadRequest,
    Forbidden,
    PageNotFound,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownRoute,
)
from visibility_api.flowcontrol.deadline import within
from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.kubeapi.delivery import DEFAULT_CACHE_CONTROL, ReaderTooSlow, deliver
from visibility_api.kubeapi.disconnect import ClientGone
from visibility_api.kubeapi.message import (
    Authenticator,
    Authorizer,
    Headers,
    Receive,
    ResourceRequest,
    ResourceResponse,
    ResourceStream,
    Scope,
    Send,
)
from visibility_api.kubeapi.turns import Turns
from visibility_api.pushing.body import ClientGone as PusherGone
from visibility_api.replication.forwarding import Pushes
from visibility_api.replication.requests import LogRequests

from .places import Shares
from .refusal import is_unforeseen, log_failure, refuse
from .request_info import RequestInfo, read_request, timeout_fault
from .request_metrics import RequestMetrics, Series
from .resource_routes import ResourceRoutes, Route, method_labels

log = structlog.get_logger(__name__)

CLIENT_CLOSED_REQUEST = 499  # as nginx counts it; the client has gone
# Of path and query of a caller without credentials: longer ones cost milliseconds, before anything is known.
MAX_ANONYMOUS_TARGET_BYTES = 2048
MAX_AUDIT_ID_BYTES = 128  # of one that comes with the request
MAX_WARNING_BYTES = 4096  # of one response, as the API server's own limit
# Public, so no credentials are read: a kubelet's probe must not depend on a review or on overload.
_HEALTH_PATHS = frozenset(("/healthz", "/livez", "/readyz"))
_PRINTABLE = bytes(range(0x21, 0x7F))

OwnHeaders = list[tuple[bytes, bytes]]  # of every response: Audit-Id first, then warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on concurrent requests, and on the time to send responses.

    `in_flight` and `watches` are of direct callers, of forwarded ones and of system:masters each.
    """

    in_flight: int = 400  # requests other than open watches
    in_flight_of_user: int = 100
    watches: int = 2_000
    # Ten users with all of theirs take some 70 MiB (decision 38).
    watches_of_user: int = 100
    push_timeout_s: float = 30.0  # admission and body
    # Of responses on one connection to requests whose sender is not known, or is over a limit: further ones
    # wait, so that endless retries cost little. A kubelet sends one request on each connection.
    unknown_per_s: float = 1.0
    unknown_burst: float = 4.0
    send_timeout_s: float = 60.0  # for a whole response to a slow reader, as the Go server's request limit
    chunk_timeout_s: float = 10.0  # for one chunk of a watch; a slower reader is disconnected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """All that follows from a request line alone."""

    info: RequestInfo
    route: Route | None  # None: not of the resource path; FastAPI's router answers
    series: Series  # of its metrics
    is_watch: bool = False
    is_health: bool = False


class RequestChain:
    """ASGI middleware around FastAPI. Its only state is who has requests and watches open."""

    def __init__(
        self,
        inner: ASGIApp,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        routes: ResourceRoutes,
        pushes: Pushes | None,
        log_streams: LogRequests | None,
        metrics: RequestMetrics,
        is_synced: Callable[[str], bool],
        is_draining: Callable[[], bool],
        limits: Limits,
    ) -> None:
        """`inner`: FastAPI's layers and router.

        `is_synced`: the jobs of a namespace are listed, or for "" those of all namespaces.

        `is_draining`: open watches are ending, new ones are refused.
        """
        self._inner = inner
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._routes = routes
        self._pushes = pushes
        self._log_streams = log_streams
        self._metrics = metrics
        self._is_synced = is_synced
        self._is_draining = is_draining
        self._limits = limits
        self._new_audit_id = _audit_ids().__next__
        self._unparsed = _Plan(
            info=read_request("GET", "/", b""), route=None, series=metrics.series(("other", "", ""))
        )
        self._push_plan = _Plan(
            info=read_request("POST", "/", b""),
            route=None,
            series=metrics.series(("POST", "trainjobs", "status")),
        )
        self._turns = Turns()
        self._requests = Shares(most=limits.in_flight, most_of_user=limits.in_flight_of_user)
        self._watches = Shares(most=limits.watches, most_of_user=limits.watches_of_user)
        metrics.watch_in_flight(lambda: (self._requests.taken, self._watches.taken))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = perf_counter()
        headers: Headers = scope["headers"]
        own: OwnHeaders = [(b"audit-id", self._audit_id(headers))]
        pushes = self._pushes
        if pushes is not None and pushes.takes(scope["method"], scope["path"]):
            if pushes.is_forwarded(headers):
                self._recognise(scope)
            await self._answer_push(pushes, scope, receive, send, own, began)
            return
        plan = self._unparsed
        if self._log_streams is not None and self._log_streams.takes(scope["method"], scope["path"]):
            try:
                self._log_streams.recognise(scope)
            except Unauthorized as error:
                await self._hold_back(scope)
                await self._deliver(self._refuse(error, plan, scope, own), send, own, headers)
                return
            self._recognise(scope)
            if (peer := scope["state"].get(PEER)) is not None:
                peer.is_replica = True
            await self._log_streams(scope, receive, send)
            return
        try:
            try:
                if len(scope["path"]) + len(scope["query_string"]) > MAX_ANONYMOUS_TARGET_BYTES:
                    await self._check_has_credentials(scope)
                plan = self._make_plan(scope["method"], scope["path"], scope["query_string"])
                outcome = await within(plan.info.timeout_s, self._answer(plan, scope, receive))
            except ClientGone:
                plan.series.record(CLIENT_CLOSED_REQUEST, perf_counter() - began)
                return
            except Exception as error:
                outcome = self._refuse(error, plan, scope, own)
            if scope.get("identity", ANONYMOUS) is ANONYMOUS:
                await self._hold_back(scope)
            elif isinstance(outcome, ResourceResponse) and outcome.status == TooManyRequests.code:
                await self._hold_back(scope)  # as long as Retry-After asks for, if it is ignored
            if "place" in scope and (peer := scope["state"].get(PEER)) is not None and not peer.is_known:
                peer.is_known, peer.is_front_proxy = True, FORWARDED in scope["state"]
            if (state := scope.get("state")) and WARNING in state:  # about the caller's credentials
                own.append(warning_header(state[WARNING]))
            if outcome is None:
                limit_s = min(plan.info.timeout_s, self._limits.send_timeout_s)
                await self._forward(limit_s, plan, scope, receive, send, own, began)
            elif isinstance(outcome, ResourceResponse):
                await self._deliver(outcome, send, own, headers)
                plan.series.record(outcome.status, perf_counter() - began)
            else:
                plan.series.count(200)
                await self._stream(outcome, send, own)
        finally:
            if "place" in scope:
                places, user = scope["place"]
                places.leave(user)

    def _audit_id(self, headers: Headers) -> bytes:
        """The request's own id, which kube-apiserver always sets, else a new one."""
        for name, value in headers:
            if name == b"audit-id":
                if 0 < len(value) <= MAX_AUDIT_ID_BYTES and not value.translate(None, _PRINTABLE):
                    return value
                break
        return self._new_audit_id()

    def _make_plan(self, method: str, path: str, query_string: bytes) -> _Plan:
        info = read_request(method, path, query_string)
        route = self._routes.find(method, info)
        return _Plan(
            info=info,
            route=route,
            series=self._metrics.series(route.labels if route is not None else method_labels(method)),
            is_watch=info.is_watch,
            is_health=path in _HEALTH_PATHS,
        )

    async def _check_has_credentials(self, scope: Scope) -> None:
        """Authenticate before the request is parsed. Raises BadRequest when there are no credentials."""
        limit_s = self._unparsed.info.timeout_s
        if await within(limit_s, self._authenticator.authenticate(scope)) is ANONYMOUS:
            raise BadRequest(
                f"without credentials the request URI must not exceed {MAX_ANONYMOUS_TARGET_BYTES} bytes"
            )

    async def _answer(
        self, plan: _Plan, scope: Scope, receive: Receive
    ) -> ResourceResponse | ResourceStream | None:
        """The response of health or of the resource handler; None when FastAPI responds. Raises what refuses
        the request."""
        info = plan.info
        if plan.is_health:
            if info.has_timeout_fault:
                raise timeout_fault(info.query)
            return None
        identity = scope["identity"] = await self._authenticator.authenticate(scope)
        shares = self._watches if plan.is_watch else self._requests
        places = shares.of(identity, is_forwarded=FORWARDED in scope["state"])
        places.enter(identity.user)
        scope["place"] = places, identity.user
        await self._authorizer.authorize(identity, info.attributes)
        if info.has_timeout_fault:
            raise timeout_fault(info.query)
        route = plan.route
        if route is not None and route.needs_documents and not self._is_synced(info.attributes.namespace):
            raise Unavailable("the caches are not filled yet")  # 404 would mean that the job is absent
        if route is None or route.handler is None:
            scope["path"] = self._router_path(scope, info)
            return None
        if plan.is_watch and self._is_draining():
            raise Unavailable("apiserver is shutting down")
        return await route.handler(
            ResourceRequest(
                query=info.query,
                headers=scope["headers"],
                attributes=info.attributes,
                receive=receive,
                user=identity.user,
            )
        )

    def _recognise(self, scope: Scope) -> None:
        """Another replica: unknown clients must not take its connection away, nor is it made to wait."""
        if (peer := scope["state"].get(PEER)) is not None:
            peer.is_known = True

    async def _answer_push(
        self,
        pushes: Pushes,
        scope: Scope,
        receive: Receive,
        send: Send,
        own: OwnHeaders,
        began: float,
    ) -> None:
        """A push, which authenticates by its own token (`pushing/`).

        FastAPI's layers and router would add 25 us to it, a typed operation 55 (decision 0032).
        """
        plan, peer = self._push_plan, scope["state"].get(PEER)
        try:
            response = await within(self._limits.push_timeout_s, _take_push(pushes, scope, receive))
            if peer is not None:
                peer.is_known = True
        except PusherGone:
            plan.series.record(CLIENT_CLOSED_REQUEST, perf_counter() - began)
            return
        except Exception as error:
            response = self._refuse(error, plan, scope, own)
            if isinstance(error, (Forbidden, TooManyRequests)):
                await self._hold_back(scope, unless_known=True)
        await self._deliver(response, send, own, scope["headers"])
        plan.series.record(response.status, perf_counter() - began)

    async def _hold_back(self, scope: Scope, *, unless_known: bool = False) -> None:
        """Delay the response to a request of someone unknown or over a limit, when its connection had many.

        One with a certificate is delayed only if that is the caller's own: a proxy's are shared by users.
        `unless_known`: neither is one that was authenticated before, such as a pod that pushes too often.
        """
        peer: Peer | None = scope["state"].get(PEER)
        if peer is None or (unless_known and peer.is_known):
            return
        if peer.chain and OWN_CERTIFICATE not in scope["state"]:
            return
        limits, loop = self._limits, asyncio.get_running_loop()
        bucket = peer.unknown
        if bucket is None:
            bucket = peer.unknown = Bucket(
                per_s=limits.unknown_per_s, burst=limits.unknown_burst, now=loop.time()
            )
        if not bucket.take(loop.time()):
            await asyncio.sleep(bucket.wait_s(loop.time()))
            bucket.take(loop.time())

    def _router_path(self, scope: Scope, info: RequestInfo) -> str:
        """The path as FastAPI's router has it: both spellings are served, without a redirect.

        Raises NotFound for control characters, since regular expressions match before a last newline.
        """
        sent: str = scope["path"]
        path = "/" + sent.strip("/")
        if not path.isprintable():
            raise UnknownRoute if info.attributes.is_resource else PageNotFound
        return path

    async def _forward(
        self,
        limit_s: float,
        plan: _Plan,
        scope: Scope,
        receive: Receive,
        send: Send,
        own: OwnHeaders,
        began: float,
    ) -> None:
        """Let FastAPI respond within `limit_s` seconds, and add the headers of every response."""
        scope["request_info"] = plan.info
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message["headers"], *own]
                for name, _ in headers:
                    if name == b"cache-control":
                        break
                else:
                    headers.append(DEFAULT_CACHE_CONTROL)
            await send(message)

        try:
            await within(limit_s, self._inner(scope, receive, send_on))
        except Exception as error:
            if not status:
                refused = self._refuse(error, plan, scope, own)
                await self._deliver(refused, send, own, scope["headers"])
                status = refused.status
            elif isinstance(error, TimeoutError):
                log.info("client too slow, connection closed", audit_id=own[0][1].decode())
            else:  # Starlette has sent a 500 and raises it again
                log_failure(error, scope=scope, audit_id=own[0][1])
        plan.series.record(status, perf_counter() - began)

    def _refuse(self, error: Exception, plan: _Plan, scope: Scope, own: OwnHeaders) -> ResourceResponse:
        if isinstance(error, TimeoutError):
            error = Timeout("request did not complete within the allotted timeout")
        elif is_unforeseen(error):
            log_failure(error, scope=scope, audit_id=own[0][1])
        return refuse(error, scope=scope, query=plan.info.query)

    async def _deliver(
        self, response: ResourceResponse, send: Send, own: OwnHeaders, headers: Headers
    ) -> None:
        """Send a whole response. When the reader is too slow, uvicorn closes the connection."""
        sending = deliver(response, send=send, own_headers=own, headers=headers, turns=self._turns)
        try:
            await within(self._limits.send_timeout_s, sending)
        except TimeoutError:
            log.info("client too slow, connection closed", audit_id=own[0][1].decode())

    async def _stream(self, stream: ResourceStream, send: Send, own: OwnHeaders) -> None:
        """Send the headers at once (client-go's `Watch` returns with them), then what the handler writes."""
        audit_id = own[0][1].decode()
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
                    await within(self._limits.chunk_timeout_s, send(message))
                except TimeoutError as error:
                    raise ReaderTooSlow from error

            await stream.write(send_chunk)
            await send({"type": "http.response.body"})
        except ReaderTooSlow:
            log.info("watcher too slow, stream closed", audit_id=audit_id)
        except Exception as error:
            log.error("stream failed", audit_id=audit_id, **describe_fault(error))


async def _take_push(pushes: Pushes, scope: Scope, receive: Receive) -> ResourceResponse:
    """Raises what refuses the push, and PusherGone."""
    client = scope.get("client")
    admitted = await pushes.admit(
        scope["method"], scope["path"], scope["headers"], client[0] if client else ""
    )
    return ResourceResponse(content_type="application/json", body=await pushes.take(admitted, receive))


def warning_header(text: str) -> tuple[bytes, bytes]:
    """`Warning: 299 - "text"`, which kubectl prints: one line, quotes escaped, cut when too long."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    kept = printable.encode()[: MAX_WARNING_BYTES // 2].decode(errors="ignore")  # escaping may double it
    quoted = kept.replace("\\", "\\\\").replace('"', '\\"')
    return b"warning", f'299 - "{quoted}"'.encode()


def _audit_ids() -> Iterator[bytes]:
    """Ids for the responses of one process.

    Each is a version 4 UUID whose last part is a counter: unique by the random rest, and cheap to make.
    """
    form = str(uuid.uuid4())[:24].encode() + b"%012x"
    return (form % number for number in itertools.count(1))
