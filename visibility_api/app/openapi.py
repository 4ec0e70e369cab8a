"""The OpenAPI documents, v3 and v2, and their responses: as `make openapi` has made them.

All are in memory from the start. The aggregator downloads v3 under a lock, so that a slow response would
stall every OpenAPI v3 request in the cluster (`kube-aggregator/pkg/controllers/openapiv3/aggregator`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from importlib.resources import files

import msgspec
from fastapi import Request
from starlette.responses import Response

from visibility_api.kubeapi.negotiation import JSON, parse_accept
from visibility_api.models.served import GROUP_VERSION, Resource

from .documents import Document, whole

FOLDER = "openapi"  # in this package by a link: the folder itself stands at top level
_COPIED = ("jaxjobs", "JAXJob")  # names that are part of no other
ONE_YEAR_S = 365 * 24 * 3600


def read_published(name: str) -> bytes:
    """The document of this name, as compact JSON."""
    return msgspec.json.format(files("visibility_api").joinpath(FOLDER, name).read_bytes(), indent=-1)


class OpenApi:
    """The three documents. `now_s` gives seconds since the epoch, for the Expires header."""

    def __init__(self, described: Iterable[Resource] = (), *, now_s: Callable[[], float] = time.time) -> None:
        """`described`: resources beside the published ones."""
        more = tuple(described)
        self._now_s = now_s
        self._v3 = Document(with_kinds(more, read_published("v3.json")))
        self._v2 = Document(with_kinds(more, read_published("v2.json")))
        # No key but our own: the aggregator merges the maps of all servers in random order.
        url = f"/openapi/v3/apis/{GROUP_VERSION}?hash={self._v3.hash}"
        index = {"paths": {f"apis/{GROUP_VERSION}": {"serverRelativeURL": url}}}
        self._index = Document(msgspec.json.encode(index))

    def v2(self, request: Request) -> Response:
        """The Swagger 2.0 document."""
        return _json_only(self._v2, request)

    def index(self, request: Request) -> Response:
        """Where the OpenAPI 3.0 document is."""
        return _json_only(self._index, request)

    def v3(self, request: Request, known_hash: str | None) -> Response:
        """The document, cacheable for a year when the request has its hash. A stale hash gets the current
        document instead of a redirect, which the aggregator would turn into a 502."""
        if known_hash != self._v3.hash:
            return _json_only(self._v3, request)
        expires = formatdate(self._now_s() + ONE_YEAR_S, usegmt=True)
        return _json_only(self._v3, request, {"Cache-Control": "public, immutable", "Expires": expires})


def with_kinds(described: Sequence[Resource], document: bytes) -> bytes:
    """The document with these resources as well, each as that of one kind under other names."""
    if not described:
        return document
    found = msgspec.json.decode(document)
    schemas = found["components"]["schemas"] if "components" in found else found["definitions"]
    for part, name in ((found["paths"], _COPIED[0]), (schemas, _COPIED[1])):
        copied = msgspec.json.encode({key: value for key, value in part.items() if name in key})
        for resource in described:
            names = resource.plural, resource.kind.removesuffix("Progress")
            text = copied
            for before, after in zip(_COPIED, names, strict=True):
                text = text.replace(before.encode(), after.encode())
            part |= msgspec.json.decode(text)
    return msgspec.json.encode(found)


def _json_only(document: Document, request: Request, headers: dict[str, str] | None = None) -> Response:
    """The document; 406 without a body for a client that accepts protobuf only."""
    if not any(clause.matches(JSON) for clause in parse_accept(request.headers.get("accept", ""))):
        return whole(b"", "text/plain; charset=utf-8", status=406)
    return document.tagged(request, headers=headers)
