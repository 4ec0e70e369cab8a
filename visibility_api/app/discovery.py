"""Discovery documents: resource list, group, group list, and the aggregated document.

All are encoded once. The aggregator requests them several times a minute: its availability controller makes
five requests at a time, and the whole API counts as unavailable when none succeeds within 5 s
(`kube-aggregator/pkg/controllers/status/remote`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from visibility_api.kubeapi.negotiation import JSON, parse_accept
from visibility_api.models.served import GROUP, GROUP_VERSION, VERSION, Resource

from .documents import Document

# With fewer parameters clients read the body as a legacy document.
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def resource_list(resources: Sequence[Resource]) -> dict[str, Any]:
    """Our group version. Verbs are sorted, and only those that are served: an untrue `delete` would make each
    deletion of a namespace call this server."""
    entries: list[dict[str, Any]] = []
    for resource in resources:
        entry = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": sorted(resource.verbs),
        }
        entries.append(entry | _names(resource))
        entries.extend(
            {
                "name": f"{resource.plural}/{subresource.name}",
                "singularName": "",
                "namespaced": resource.namespaced,  # as the parent, or the aggregator cannot convert it
                "kind": subresource.kind,
                "verbs": sorted(subresource.verbs),
            }
            for subresource in resource.subresources
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": entries,
    }


def aggregated(resources: Sequence[Resource]) -> dict[str, Any]:
    """The aggregated document (https://github.com/kubernetes/api/blob/v0.36.2/apidiscovery/v2/types.go)."""
    version = {
        "version": VERSION,
        "resources": [_aggregated_entry(resource) for resource in resources],
        "freshness": "Current",
    }
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version]}],
    }


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    entry = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": sorted(resource.verbs),
    }
    subresources = [
        {"subresource": s.name, "responseKind": _response_kind(s.kind), "verbs": sorted(s.verbs)}
        for s in resource.subresources
    ]
    return entry | _names(resource) | ({"subresources": subresources} if subresources else {})


def _names(resource: Resource) -> dict[str, Any]:
    """Other names that kubectl knows it by."""
    names = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: value for key, value in names.items() if value}


def _response_kind(kind: str) -> dict[str, str]:
    """client-go drops an entry whose own is empty."""
    return {"group": GROUP, "version": VERSION, "kind": kind}


_VERSION = {"groupVersion": GROUP_VERSION, "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}


class Discovery:
    """The discovery documents, all in memory. `served`: what exists now."""

    def __init__(self, served: Callable[[], tuple[Resource, ...]]) -> None:
        self._served = served
        # All groups, which is ours alone. Only direct clients see it, not those of kube-apiserver.
        self._group_list = _document({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]})
        self._group = _document({"kind": "APIGroup", "apiVersion": "v1", **_GROUP})

    def groups(self, request: Request) -> Response:
        """APIGroupList, or the aggregated document under its ETag for a client that accepts it."""
        if _wants_aggregated(request.headers.get("accept", "")):
            return _aggregated_document(self._served()).tagged(
                request, AGGREGATED_TYPE, {"Cache-Control": "public"}
            )
        return self._group_list.negotiated(request)

    def group(self, request: Request) -> Response:
        """APIGroup. Raises NotAcceptable."""
        return self._group.negotiated(request)

    def resources(self, request: Request) -> Response:
        """APIResourceList. Raises NotAcceptable."""
        return _resource_list_document(self._served()).negotiated(request)


@lru_cache(8)
def _resource_list_document(resources: tuple[Resource, ...]) -> Document:
    return _document(resource_list(resources))


@lru_cache(8)
def _aggregated_document(resources: tuple[Resource, ...]) -> Document:
    return _document(aggregated(resources))


def _wants_aggregated(accept: str) -> bool:
    """Whether the preferred clause that can be served is the aggregated form in v2.

    v2beta1 is off since Kubernetes 1.33. Other parameters, such as `profile=nopeer`, are ignored.
    """
    for clause in parse_accept(accept):
        if not clause.matches(JSON):
            continue
        kind = clause.parameter("as")
        if not kind:
            return False
        if (
            kind == "APIGroupDiscoveryList"
            and clause.parameter("g") == "apidiscovery.k8s.io"
            and clause.parameter("v") == "v2"
        ):
            return True
    return False


def _document(content: dict[str, Any]) -> Document:
    return Document(msgspec.json.encode(content))
