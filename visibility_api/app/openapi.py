"""The OpenAPI documents, v3 and v2, and their responses: the part that describes what is served now.

`make openapi` has made the whole documents. Those that are sent stay in memory until a kind comes or goes:
the aggregator downloads v3 under a lock, so that a slow response would stall every OpenAPI v3 request in the
cluster (`kube-aggregator/pkg/controllers/openapiv3/aggregator`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from visibility_api.kubeapi.negotiation import JSON, parse_accept
from visibility_api.models.served import GROUP, GROUP_VERSION, Resource

from .documents import Document, whole

FOLDER = "openapi"  # in this package by a link: the folder itself stands at top level
_COPIED = ("jaxjobs", "JAXJob")  # names that are part of no other
_BASE = f"/apis/{GROUP_VERSION}"
_RESOURCE = re.compile(rf"{re.escape(_BASE)}/(?:namespaces/{{namespace}}/)?([a-z]+)")
ONE_YEAR_S = 365 * 24 * 3600


def read_published(name: str) -> bytes:
    """The document of this name, as compact JSON."""
    return msgspec.json.format(files("visibility_api").joinpath(FOLDER, name).read_bytes(), indent=-1)


@dataclass(frozen=True, slots=True)
class _Documents:
    v3: Document
    v2: Document
    index: Document  # where v3 is


def of_resources(document: dict[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
    """The part of a published document, v3 or v2, that describes these resources.

    One that is not in it has what one of the others has, under other names.
    """
    plurals = {each.plural for each in resources}
    kinds = {kind for each in resources for kind in (each.kind, each.list_kind)}
    kinds |= {below.kind for each in resources for below in each.subresources}

    def is_shown(schema: Mapping[str, Any]) -> bool:
        named = schema.get("x-kubernetes-group-version-kind", ())
        return all(each["kind"] in kinds for each in named if each["group"] == GROUP)

    is_v3 = "components" in document
    holder, part = (document["components"], "schemas") if is_v3 else (document, "definitions")
    all_paths, all_schemas = dict(document["paths"]), dict(holder[part])
    for resource in resources:
        if f"{_BASE}/{resource.plural}" not in all_paths:
            for found, name in ((all_paths, _COPIED[0]), (all_schemas, _COPIED[1])):
                found |= _copy({key: each for key, each in found.items() if name in key}, resource)
    schemas = {name: schema for name, schema in all_schemas.items() if is_shown(schema)}
    paths = {
        path: item
        for path, item in all_paths.items()
        if (found_in := _RESOURCE.match(path)) is None or found_in[1] in plurals
    }
    components = {"components": holder | {part: schemas}} if is_v3 else {part: schemas}
    return document | components | {"paths": paths}


def _copy(part: dict[str, Any], resource: Resource) -> dict[str, Any]:
    text = msgspec.json.encode(part)
    names = resource.plural, resource.kind.removesuffix("Progress")
    for before, after in zip(_COPIED, names, strict=True):
        text = text.replace(before.encode(), after.encode())
    copied: dict[str, Any] = msgspec.json.decode(text)
    return copied


@lru_cache(4)
def _documents(resources: tuple[Resource, ...]) -> _Documents:
    v3, v2 = (
        Document(msgspec.json.encode(of_resources(msgspec.json.decode(read_published(name)), resources)))
        for name in ("v3.json", "v2.json")
    )
    # No key but our own: the aggregator merges the maps of all servers in random order.
    url = f"/openapi/v3/apis/{GROUP_VERSION}?hash={v3.hash}"
    index = {"paths": {f"apis/{GROUP_VERSION}": {"serverRelativeURL": url}}}
    return _Documents(v3, v2, Document(msgspec.json.encode(index)))


class OpenApi:
    """The three documents. `served`: what exists now; `now_s`: seconds since the epoch, for Expires."""

    def __init__(
        self, served: Callable[[], tuple[Resource, ...]], *, now_s: Callable[[], float] = time.time
    ) -> None:
        self._served = served
        self._now_s = now_s

    def v2(self, request: Request) -> Response:
        """The Swagger 2.0 document."""
        return _json_only(_documents(self._served()).v2, request)

    def index(self, request: Request) -> Response:
        """Where the OpenAPI 3.0 document is."""
        return _json_only(_documents(self._served()).index, request)

    def v3(self, request: Request, known_hash: str | None) -> Response:
        """The document, cacheable for a year when the request has its hash. A stale hash gets the current
        document instead of a redirect, which the aggregator would turn into a 502."""
        document = _documents(self._served()).v3
        if known_hash != document.hash:
            return _json_only(document, request)
        expires = formatdate(self._now_s() + ONE_YEAR_S, usegmt=True)
        return _json_only(document, request, {"Cache-Control": "public, immutable", "Expires": expires})


def _json_only(document: Document, request: Request, headers: dict[str, str] | None = None) -> Response:
    """The document; 406 without a body for a client that accepts protobuf only."""
    if not any(clause.matches(JSON) for clause in parse_accept(request.headers.get("accept", ""))):
        return whole(b"", "text/plain; charset=utf-8", status=406)
    return document.tagged(request, headers=headers)
