"""Routes requests of the Kubernetes resource path to their handlers by one dictionary look-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from visibility_api.errors.status import MethodNotAllowed
from visibility_api.kubeapi.message import Handler, ResourceRequest, ResourceResponse
from visibility_api.models.served import GROUP, VERSION, Resource

from .request_info import RequestInfo
from .request_metrics import Labels

RouteKey = tuple[str, str, str]  # resource, subresource or "", verb (get, list, watch)

_KNOWN_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who answers a request for one of the resources."""

    handler: Handler | None  # None: an operation of FastAPI's router
    labels: Labels  # of its metrics
    needs_documents: bool = False  # refused with 503 while the caches are not filled


class ResourceRoutes:
    """The routes of all served resources; never changed after construction."""

    def __init__(self, *, resources: Sequence[Resource], handlers: Mapping[RouteKey, Handler]) -> None:
        """Raises ValueError when a verb of `resources` has no handler, or a handler no resource."""
        self._namespaced = {resource.plural: resource.namespaced for resource in resources}
        archived = frozenset(resource.plural for resource in resources if resource.is_archived)
        self._routes = {
            key: Route(
                handler=handler, labels=(key[2].upper(), *key[:2]), needs_documents=key[0] not in archived
            )
            for key, handler in handlers.items()
        }
        below = [(r.plural, s) for r in resources for s in r.subresources]
        self._operations = {(plural, s.name) for plural, s in below if s.is_operation}
        expected = {(r.plural, "", verb) for r in resources for verb in (*r.verbs, *r.unlisted_verbs)} | {
            (plural, s.name, verb) for plural, s in below if not s.is_operation for verb in s.verbs
        }
        if expected != set(handlers):
            raise ValueError(f"resources and handlers differ in {sorted(expected ^ set(handlers))}")
        self._paths = {(resource, subresource) for resource, subresource, _ in expected} | self._operations

    def find(self, method: str, info: RequestInfo) -> Route | None:
        """The route of a request; None when it is not of the resource path, so that FastAPI responds."""
        attributes = info.attributes
        # The name of a list or watch comes from its field selector, not from the path.
        is_one = attributes.name != "" and attributes.verb not in ("list", "watch", "deletecollection")
        namespaced = self._namespaced.get(attributes.resource, False)
        if (
            not attributes.is_resource
            or attributes.group != GROUP
            or attributes.version != VERSION
            or not info.is_routable
            or (attributes.resource, attributes.subresource) not in self._paths
            or (attributes.namespace and not namespaced)
            or (is_one and namespaced and not attributes.namespace)
        ):
            return None
        if (attributes.resource, attributes.subresource) in self._operations:
            labels = method_labels(method, attributes.resource, attributes.subresource)
            return Route(handler=None, labels=labels, needs_documents=True)
        route = self._routes.get((attributes.resource, attributes.subresource, attributes.verb))
        if route is None or method not in ("GET", "DELETE"):  # HEAD is authorised as get, and refused
            return Route(
                handler=_refuse_method,
                labels=method_labels(method, attributes.resource, attributes.subresource),
            )
        return route


def method_labels(method: str, resource: str = "", subresource: str = "") -> Labels:
    """Labels of any other request: known values only, so that no client can create new series."""
    return (method if method in _KNOWN_METHODS else "other", resource, subresource)


async def _refuse_method(_: ResourceRequest) -> ResourceResponse:
    raise MethodNotAllowed
