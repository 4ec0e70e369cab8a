"""From what a request asks to the handler that answers it: by table, without regular expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .message import Handler, Request, Response
from .metrics import Labels
from .request_info import RequestInfo, timeout_fault
from .resources import GROUP, VERSION, Resource
from .status import MethodNotAllowed, UnknownRoute

RouteKey = tuple[str, str, str]  # resource, subresource or "", verb (get, list, watch)

_READING_METHODS = frozenset(("GET", "HEAD"))
_KNOWN_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one request line leads."""

    handler: Handler
    labels: Labels  # of its metrics
    needs_documents: bool = False  # to be refused while the caches are not filled (R3)


class Routes:
    """Everything that is served. Both tables are read only after construction."""

    def __init__(
        self,
        *,
        resources: Sequence[Resource],
        handlers: Mapping[RouteKey, Handler],
        endpoints: Mapping[str, Handler],
    ) -> None:
        """`handlers` answer under the group version, `endpoints` are exact paths outside it.

        Raises ValueError when a verb of `resources` has no handler, or a handler no resource.
        """
        self._namespaced = {resource.plural: resource.namespaced for resource in resources}
        self._handlers = dict(handlers)
        self._endpoints = dict(endpoints)
        promised = {(r.plural, "", verb) for r in resources for verb in r.verbs} | {
            (r.plural, s.name, verb) for r in resources for s in r.subresources for verb in s.verbs
        }
        if promised != set(handlers):
            raise ValueError(f"resources and handlers differ in {sorted(promised ^ set(handlers))}")
        self._paths = {(resource, subresource) for resource, subresource, _ in promised}

    def find(self, method: str, info: RequestInfo) -> Route:
        """The route of one request. What is not served leads to a handler that raises the refusal."""
        route = (
            self._find_resource(method, info)
            if info.attributes.is_resource
            else self._find_endpoint(method, info)
        )
        return replace(route, handler=_refuse_timeout) if info.has_timeout_fault else route

    def _find_endpoint(self, method: str, info: RequestInfo) -> Route:
        handler = self._endpoints.get("/" + info.attributes.path.strip("/"))  # both spellings (D15)
        if handler is None:
            return Route(handler=_page_not_found, labels=_labels(method))
        if method not in _READING_METHODS:
            return Route(handler=_refuse_method, labels=_labels(method))
        return Route(handler=handler, labels=_labels(method))

    def _find_resource(self, method: str, info: RequestInfo) -> Route:
        asked = info.attributes
        # The name of a list or watch is its selector's (Z8), not the path's.
        is_one = asked.name != "" and asked.verb not in ("list", "watch", "deletecollection")
        namespaced = self._namespaced.get(asked.resource, False)
        if (
            asked.group != GROUP
            or asked.version != VERSION
            or not info.is_routable
            or (asked.resource, asked.subresource) not in self._paths
            or (asked.namespace and not namespaced)
            or (is_one and namespaced and not asked.namespace)  # R4
        ):
            return Route(handler=_refuse_route, labels=_labels(method))
        handler = self._handlers.get((asked.resource, asked.subresource, asked.verb))
        if handler is None or method != "GET":  # R6: HEAD is authorised as get, and refused
            return Route(handler=_refuse_method, labels=_labels(method, asked.resource, asked.subresource))
        return Route(
            handler=handler,
            labels=(asked.verb.upper(), asked.resource, asked.subresource),
            needs_documents=True,
        )


def _labels(method: str, resource: str = "", subresource: str = "") -> Labels:
    """Words of our own only, so that no client can make new metrics."""
    return (method if method in _KNOWN_METHODS else "other", resource, subresource)


async def _refuse_route(_: Request) -> Response:
    raise UnknownRoute


async def _refuse_timeout(request: Request) -> Response:
    raise timeout_fault(request.query)


async def _refuse_method(_: Request) -> Response:
    raise MethodNotAllowed


async def _page_not_found(_: Request) -> Response:
    """Outside our group nobody reads the body; the API server's own text (R5)."""
    return Response(
        status=404,
        content_type="text/plain; charset=utf-8",
        body=b"404 page not found\n",
        headers=((b"x-content-type-options", b"nosniff"),),
    )


# Of a request line that could not be read: it only lends its labels.
UNREADABLE = Route(handler=_refuse_route, labels=("other", "", ""))
