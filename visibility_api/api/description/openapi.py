"""The OpenAPI documents, v3 and v2, and their endpoints (O1 to O10).

All bytes are made at construction: the aggregator downloads under a lock, so that a slow answer of ours
would stall every OpenAPI request in the cluster (O3).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Any

import msgspec

from visibility_api.api.message import Handler, Request, Response
from visibility_api.api.negotiation import JSON, parse_accept
from visibility_api.api.resources import GROUP_VERSION, VERSION, Resource

from .operations import paths
from .schemas import component_schemas
from .swagger import to_swagger

ONE_YEAR_S = 365 * 24 * 3600
_VARY = (b"vary", b"Accept")
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


def v2_document(resources: Sequence[Resource]) -> dict[str, Any]:
    """The Swagger 2.0 document; only our own group version, or the aggregator filters it out (O7)."""
    return to_swagger(v3_document(resources))


def published(resources: Sequence[Resource]) -> dict[str, bytes]:
    """The files of `openapi/`, by name: what the server says, indented."""
    documents = {"v2.json": v2_document(resources), "v3.json": v3_document(resources)}
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in documents.items()
    }


class OpenApi:
    """The three endpoints. `now_s` gives seconds since the epoch, for the Expires header."""

    def __init__(self, resources: Sequence[Resource], *, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._v3 = _Tagged(v3_document(resources))
        self._v2 = _Tagged(v2_document(resources))
        # No key but our own: the aggregator overlays the maps of all servers in random order (O1).
        url = f"/openapi/v3/apis/{GROUP_VERSION}?hash={self._v3.hash}"
        self._root = _Tagged({"paths": {f"apis/{GROUP_VERSION}": {"serverRelativeURL": url}}})

    def endpoints(self) -> dict[str, Handler]:
        """By exact path. They answer from the first moment: a 404 here would be remembered (O2)."""
        return {
            "/openapi/v2": self._v2.show,
            "/openapi/v3": self._root.show,
            f"/openapi/v3/apis/{GROUP_VERSION}": self._show_v3,
        }

    async def _show_v3(self, request: Request) -> Response:
        """The document; a stale hash gets the present one and no redirect, which would become a 502 (O5)."""
        if request.parameter("hash") != self._v3.hash:
            return await self._v3.show(request)
        expires = formatdate(self._now_s() + ONE_YEAR_S, usegmt=True).encode()
        return self._v3.answer(request, ((b"cache-control", b"public, immutable"), (b"expires", expires)))


class _Tagged:
    """One JSON document under the hash of its bytes."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._body = msgspec.json.encode(content)
        self.hash = hashlib.sha512(self._body).hexdigest().upper()
        self._etag = f'"{self.hash}"'

    async def show(self, request: Request) -> Response:
        return self.answer(request, ())

    def answer(self, request: Request, more: Sequence[tuple[bytes, bytes]]) -> Response:
        """The document, 304 to whoever has it, or a bare 406 to whoever wants protobuf alone (O4)."""
        if not any(clause.matches(JSON) for clause in parse_accept(request.header(b"accept") or "")):
            return Response(status=406, content_type="text/plain; charset=utf-8")
        headers = ((b"etag", self._etag.encode()), _VARY, *more)
        if request.header(b"if-none-match") == self._etag:
            return Response(status=304, headers=headers)
        return Response(body=self._body, headers=headers)
