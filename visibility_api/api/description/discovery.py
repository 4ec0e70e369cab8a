"""What is served, as clients discover it: resource list, group, and the aggregated document (D1 to D13).

Everything is encoded once: the aggregator asks several times a minute, and five parallel calls of its decide
whether the whole API counts as available (D1, P15).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from visibility_api.api.message import Handler, Request, Response
from visibility_api.api.negotiation import JSON, Representation, Target, negotiate_request, parse_accept
from visibility_api.api.rendering import render
from visibility_api.api.resources import GROUP, GROUP_VERSION, VERSION, Resource

AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"  # D9: all three


def resource_list(resources: Sequence[Resource]) -> dict[str, Any]:
    """APIResourceList of our group version (D3, D4), with verbs sorted and none promised in vain (D5)."""
    entries: list[dict[str, Any]] = []
    for resource in resources:
        entry = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": sorted(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        entries.append(entry)
        entries.extend(
            {
                "name": f"{resource.plural}/{subresource.name}",
                "singularName": "",
                "namespaced": resource.namespaced,  # the parent's, or the aggregator cannot convert it (D4)
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


def group() -> dict[str, Any]:
    """APIGroup (D8)."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_body()}


def group_list() -> dict[str, Any]:
    """APIGroupList (D8); only direct clients see it."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group_body()]}


def aggregated(resources: Sequence[Resource]) -> dict[str, Any]:
    """APIGroupDiscoveryList, apidiscovery.k8s.io/v2 (D10)."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": GROUP},
                "versions": [
                    {
                        "version": VERSION,
                        "resources": [_aggregated_entry(resource) for resource in resources],
                        "freshness": "Current",
                    }
                ],
            }
        ],
    }


class Discovery:
    """The discovery endpoints, all from memory."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._group_list = _Document(group_list())
        self._group = _Document(group())
        self._resources = _Document(resource_list(resources))
        self._aggregated = _Document(aggregated(resources))

    def endpoints(self) -> dict[str, Handler]:
        """By exact path. `/api` is not among them: a 404 there is what clients expect (D8)."""
        return {
            "/apis": self._show_groups,
            f"/apis/{GROUP}": self._group.show,
            f"/apis/{GROUP_VERSION}": self._resources.show,
        }

    async def _show_groups(self, request: Request) -> Response:
        if _wants_aggregated(request.header(b"accept") or ""):
            return self._aggregated.answer_tagged(request)
        return await self._group_list.show(request)


class _Document:
    """One document, its forms encoded at the first need; there are four at most."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._json = msgspec.json.encode(content)
        self._forms: dict[Representation, bytes] = {}
        # D12: strong, quoted, and different whenever the document is.
        self._etag = f'"{hashlib.sha512(self._json).hexdigest().upper()}"'

    async def show(self, request: Request) -> Response:
        """The document in the form the client accepts. Raises NotAcceptable."""
        representation = negotiate_request(request, Target.PLAIN)
        return Response(content_type=representation.media_type, body=self._encoded(representation))

    def answer_tagged(self, request: Request) -> Response:
        """The document under its ETag; 304 without a body to whoever has it already (D12)."""
        headers = ((b"etag", self._etag.encode()), (b"vary", b"Accept"), (b"cache-control", b"public"))
        if request.header(b"if-none-match") == self._etag:
            return Response(status=304, content_type=AGGREGATED_TYPE, headers=headers)
        return Response(content_type=AGGREGATED_TYPE, body=self._json + b"\n", headers=headers)

    def _encoded(self, representation: Representation) -> bytes:
        body = self._forms.get(representation)
        if body is None:
            body = self._forms[representation] = render(self._json, representation)
        return body


def _wants_aggregated(accept: str) -> bool:
    """Whether the most wanted clause we can serve is the aggregated form in v2 (D9, D11).

    v2beta1 is gone from servers; other parameters, such as `profile=nopeer`, are ignored.
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


def _group_body() -> dict[str, Any]:
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _kind(resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": s.name, "responseKind": _kind(s.kind), "verbs": sorted(s.verbs)}
            for s in resource.subresources
        ]
    return entry


def _kind(kind: str) -> dict[str, str]:
    """A responseKind; an entry whose own is empty is dropped by clients (D10)."""
    return {"group": GROUP, "version": VERSION, "kind": kind}
