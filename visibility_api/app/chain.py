"""The one chain that every request passes: authentication, a place in flight, authorisation, routing.

Authorisation comes before routing, so that a caller without rights does not learn which paths exist. Requests
of the Kubernetes resource path are answered here, and so are pushes and other replicas, which have
authentications of their own. All others go on to FastAPI's router.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

from starlette.types import ASGIApp

from visibility_api.auth.access_review import OPEN_PATHS
from visibility_api.auth.authenticator import FORWARDED, WARNING
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.identity import ANONYMOUS, MASTERS_GROUP, client_in, client_of
from visibility_api.errors.status import (
    BadRequest,
    Forbidden,
    PageNotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownRoute,
)
from visibility_api.flowcontrol.deadline import within
from visibility_api.kubeapi.disconnect import ClientGone
from visibility_api.kubeapi.message import (
    Receive,
    ResourceRequest,
    ResourceResponse,
    ResourceStream,
    Scope,
    Send,
)
from visibility_api.kubeapi.turns import Turns
from visibility_api.pushing.body import ClientGone as PusherGone
from visibility_api.replication.forwarding import Push, Pushes
from visibility_api.replication.requests import LogRequests

from .dependencies import Parts
from .exchange import CLIENT_CLOSED_REQUEST, Exchange
from .limits import Shares, hold_back, over_share
from .request_info import DEFAULT_TIMEOUT_S, RequestInfo, read_request
from .request_metrics import Series
from .resource_routes import ResourceRoutes, Route, method_labels

# Of path and query of a caller without credentials: longer ones cost milliseconds, before anything is known.
MAX_ANONYMOUS_TARGET_BYTES = 2048
MAX_KNOWN_LINES, MAX_KNOWN_PATH = 2048, 256  # request lines that are remembered, and their characters
_ROOT = read_request("GET", "/", b"")


class RequestChain:
    """ASGI middleware around FastAPI. Its only state is who has requests and watches open."""

    def __init__(self, inner: ASGIApp, parts: Parts) -> None:
        """`inner`: FastAPI's layers and router."""
        self._inner = inner
        self._authenticator, self._authorizer = parts.authenticator, parts.authorizer
        self.serve(ResourceRoutes(resources=(), handlers={}))
        self._pushes, self._log_streams = parts.pushes, parts.log_streams
        self._metrics = metrics = parts.metrics
        self._is_synced, self._is_absent = parts.is_synced, parts.is_absent
        self._why_empty, self._is_draining = parts.why_empty, parts.is_draining
        self._limits, self._shares = limits, shares = parts.limits, parts.shares
        self._over_share = over_share(shares, limits)
        self._forwarded_over_share = over_share(shares, limits, is_forwarded=True)
        self._turns = Turns()
        self._unparsed = metrics.series(("other", "", ""))
        self._requests = Shares(
            most=limits.in_flight,
            most_of_user=limits.in_flight_of_user,
            forwarded_lists_of_user=limits.forwarded_lists_of_user,
        )
        self._watches = Shares(most=limits.watches, most_of_user=limits.watches_of_user)
        metrics.watch_in_flight(requests=self._requests.count, watches=self._watches.count)

    def serve(self, routes: ResourceRoutes) -> None:
        """Serve these from now on."""
        self._routes = routes
        # What most clients send again and again. The hash of its attributes, by which access reviews are
        # cached, is worked out once.
        self._known_lines = lru_cache(MAX_KNOWN_LINES)(self._read_line)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope["type"] != "http":
            return self._pass_on(scope, receive, send)
        exchange = Exchange(
            scope,
            receive,
            send,
            _ROOT,
            self._unparsed,
            limits=self._limits,
            shares=self._shares,
            turns=self._turns,
        )
        method, path = scope["method"], scope["path"]
        if self._pushes is not None and self._pushes.takes(method, path):
            return self._answer_push(exchange, self._pushes)
        if self._log_streams is not None and self._log_streams.takes(method, path):
            return self._answer_replica(exchange, self._log_streams)
        return self._answer(exchange)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._inner(scope, receive, send)

    async def _answer(self, exchange: Exchange) -> None:
        """Any request of a user: who sends it and may they, then the response."""
        try:
            try:
                scope = exchange.scope
                if len(scope["path"]) + len(scope["query_string"]) > MAX_ANONYMOUS_TARGET_BYTES:
                    await self._refuse_anonymous(scope)
                route = self._parse(exchange)
                handling = self._handle(exchange, route)
                outcome = await exchange.within(exchange.info.timeout_s, handling)
            except ClientGone:
                exchange.record(CLIENT_CLOSED_REQUEST)
                return
            except Exception as error:
                outcome = exchange.refuse(error)
                exchange.leave()  # the refusal may be held back
            if self._is_held_back(exchange, outcome):
                await hold_back(exchange.scope, self._limits)
            if outcome is None:
                await exchange.forward(self._inner)
            elif isinstance(outcome, ResourceResponse):
                await exchange.deliver(outcome)
            else:
                exchange.end_turn()  # a stream has a share of its own: that of a client's watches
                await exchange.stream(outcome)
        finally:
            exchange.leave()

    async def _refuse_anonymous(self, scope: Scope) -> None:
        """Raises BadRequest for a long request line without credentials, before it is read."""
        identity = await within(DEFAULT_TIMEOUT_S, self._authenticator.authenticate(scope))
        if identity is ANONYMOUS:
            raise BadRequest(
                f"without credentials the request URI must not exceed {MAX_ANONYMOUS_TARGET_BYTES} bytes"
            )

    def _parse(self, exchange: Exchange) -> Route | None:
        """Read the request line. Raises BadRequest."""
        scope = exchange.scope
        is_short = not scope["query_string"] and len(scope["path"]) <= MAX_KNOWN_PATH
        read = self._known_lines if is_short else self._read_line
        exchange.info, route, exchange.series = read(scope["method"], scope["path"], scope["query_string"])
        return route

    def _read_line(self, method: str, path: str, query: bytes) -> tuple[RequestInfo, Route | None, Series]:
        info = read_request(method, path, query)
        route = self._routes.find(method, info)
        labels = route.labels if route is not None else method_labels(method)
        return info, route, self._metrics.series(labels)

    async def _handle(
        self, exchange: Exchange, route: Route | None
    ) -> ResourceResponse | ResourceStream | None:
        """The response of the resource handler; None when FastAPI responds. Raises what refuses the
        request."""
        scope, info = exchange.scope, exchange.info
        if scope["path"] in OPEN_PATHS:  # a kubelet's probe must not depend on a review or on overload
            info.check_timeout()
            return None
        identity = scope["identity"] = await self._authenticator.authenticate(scope)
        client, is_forwarded = client_of(identity), FORWARDED in scope["state"]
        if info.is_watch:
            places = self._watches.of(identity, is_forwarded=is_forwarded)
        else:
            is_list = info.attributes.verb == "list"
            places = self._requests.of(identity, is_forwarded=is_forwarded, is_list=is_list)
        exchange.enter(places, client)
        if MASTERS_GROUP not in identity.groups:
            exchange.client = client
            if self._shares.is_over(client):
                queue = self._forwarded_over_share if is_forwarded else self._over_share
                await queue.enter(client)
                exchange.turn = queue
        await self._authorizer.authorize(identity, info.attributes)
        info.check_timeout()
        if route is not None and route.needs_documents:
            if self._is_absent(info.attributes.resource):
                raise UnknownRoute
            if info.attributes.verb != "get" and (why := self._why_empty(info.attributes.resource)):
                scope["state"][WARNING] = b'299 - "%s"' % why.encode()
            if not self._is_synced(info.attributes.namespace):
                # 404 would mean that the job is absent.
                raise Unavailable(
                    "the server does not know all jobs yet; /readyz?verbose says what it waits for"
                )
        if route is None or route.handler is None:
            scope["path"] = _router_path(scope["path"], is_resource=info.attributes.is_resource)
            return None
        if info.is_watch and self._is_draining():
            raise Unavailable("apiserver is shutting down")
        return await route.handler(
            ResourceRequest(
                query=info.query,
                headers=scope["headers"],
                attributes=info.attributes,
                receive=exchange.receive,
                identity=identity,
                client=client,
                charge=exchange.charge,
                opened=exchange.opened,
            )
        )

    def _is_held_back(self, exchange: Exchange, outcome: ResourceResponse | ResourceStream | None) -> bool:
        """Whether the response is delayed; else the connection's sender is known from now on. Adds a warning
        to the response."""
        scope = exchange.scope
        if (warning := scope.get("state", {}).get(WARNING)) is not None:
            exchange.own_headers = (*exchange.own_headers, (b"warning", warning))
        if scope.get("identity", ANONYMOUS) is ANONYMOUS:
            return True
        # Also of one that was refused: with its connection closed it would need another handshake.
        if (peer := _peer(scope)) is not None and not peer.is_known:
            peer.is_known, peer.is_front_proxy = True, FORWARDED in scope["state"]
            peer.client = client_of(scope["identity"])
        # As long as Retry-After asks for, if it is ignored.
        return isinstance(outcome, ResourceResponse) and outcome.status == TooManyRequests.code

    async def _answer_push(self, exchange: Exchange, pushes: Pushes) -> None:
        """A push, which authenticates by its own token (`pushing/`).

        FastAPI's layers and router would add 25 us to it, a typed operation 55 (decision 0032).
        """
        scope = exchange.scope
        exchange.series = self._metrics.series(("POST", pushes.resource(scope["path"]), "status"))
        peer = _peer(scope)
        if peer is not None and pushes.is_forwarded(scope["headers"]):
            peer.is_known = True  # another replica: unknown clients must not take its connection away
        push: Push | None = None
        try:
            response, push = await _take_push(pushes, scope, exchange.receive)
            if peer is not None and not peer.is_known:
                peer.is_known, peer.client = True, client_in(push.target.namespace)
        except PusherGone:
            exchange.record(CLIENT_CLOSED_REQUEST)
            return
        except Exception as error:
            response = exchange.refuse(error)
            if isinstance(error, (Forbidden, TooManyRequests)):
                await hold_back(scope, self._limits, unless_known=True)
        await exchange.deliver(response)
        if push is not None:
            await pushes.renew(push)  # the next request on the connection does not wait for that

    async def _answer_replica(self, exchange: Exchange, log_streams: LogRequests) -> None:
        """The log, for another replica, which is recognised by its proof."""
        scope = exchange.scope
        try:
            log_streams.recognise(scope)
        except Unauthorized as error:
            await hold_back(scope, self._limits)
            await exchange.deliver(exchange.refuse(error))
            return
        if (peer := _peer(scope)) is not None:
            peer.is_known = peer.is_replica = True
        await log_streams(scope, exchange.receive, exchange.send)


async def _take_push(pushes: Pushes, scope: Scope, receive: Receive) -> tuple[ResourceResponse, Push]:
    """The response, and what it is to. Raises what refuses the push, and PusherGone."""
    client = scope.get("client")
    push = await pushes.admit(scope["method"], scope["path"], scope["headers"], client[0] if client else "")
    body = await pushes.take(push, receive)
    return ResourceResponse(content_type="application/json", body=body), push


def _peer(scope: Scope) -> Peer | None:
    peer: Peer | None = scope["state"].get(PEER)
    return peer


def _router_path(sent: str, *, is_resource: bool) -> str:
    """The path as FastAPI's router has it: both spellings are served, without a redirect.

    Raises NotFound for control characters, since regular expressions match before a last newline.
    """
    path = "/" + sent.strip("/")
    if not path.isprintable():
        raise UnknownRoute if is_resource else PageNotFound
    return path
