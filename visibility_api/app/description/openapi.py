"""The OpenAPI documents, v3 and v2, and their responses.

All are encoded at start. The aggregator downloads v3 under a lock, so that a slow response would stall every
OpenAPI v3 request in the cluster (`kube-aggregator/pkg/controllers/openapiv3/aggregator`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Any

import msgspec
from fastapi import Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from visibility_api.app.documents import Document, whole
from visibility_api.app.routers import push
from visibility_api.models import training_document
from visibility_api.models.served import GROUP_VERSION, VERSION, Resource
from visibility_api.resources.negotiation import JSON, parse_accept

from .operations import paths
from .schemas import component_schemas
from .swagger import to_swagger

ONE_YEAR_S = 365 * 24 * 3600
_SECURITY = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}


def v3_document(resources: Sequence[Resource]) -> dict[str, Any]:
    """The OpenAPI 3.0 document of our group version."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Training job visibility", "version": VERSION},
        "paths": paths(resources),
        "components": {"schemas": component_schemas(resources), "securitySchemes": _SECURITY},
    }


def push_document() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the push protocol, as FastAPI describes its operations."""
    document = get_openapi(title="Push", version=VERSION, routes=push.router.routes)
    document["components"]["securitySchemes"] = {
        "BearerToken": {
            "type": "http",
            "scheme": "bearer",
            "description": "The training pod's own service account token, for the path's audience.",
        }
    }
    return document


def published(resources: Sequence[Resource]) -> dict[str, bytes]:
    """The files of `openapi/`, by name: what is served, what may be pushed, and what training writes."""
    v3 = v3_document(resources)
    documents = {
        "v2.json": to_swagger(v3),
        "v3.json": v3,
        "push.json": push_document(),
        training_document.NAME: training_document.published_schema(),
    }
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in documents.items()
    }


class OpenApi:
    """The three documents. `now_s` gives seconds since the epoch, for the Expires header."""

    def __init__(self, resources: Sequence[Resource], *, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        v3 = v3_document(resources)
        self._v3 = Document(msgspec.json.encode(v3))
        # It has our own group version alone; the aggregator drops all else.
        self._v2 = Document(msgspec.json.encode(to_swagger(v3)))
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


def _json_only(document: Document, request: Request, headers: dict[str, str] | None = None) -> Response:
    """The document; 406 without a body for a client that accepts protobuf only."""
    if not any(clause.matches(JSON) for clause in parse_accept(request.headers.get("accept", ""))):
        return whole(b"", "text/plain; charset=utf-8", status=406)
    return document.tagged(request, headers=headers)
