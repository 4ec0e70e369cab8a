"""Documents that are encoded once and served from memory, and helpers for Starlette responses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from visibility_api.errors.status import NotAcceptable
from visibility_api.kubeapi.message import ResourceResponse
from visibility_api.kubeapi.negotiation import JSON, YAML, Target, negotiate, parse_accept
from visibility_api.kubeapi.rendering import render

NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}


class Document:
    """A JSON document with a strong ETag."""

    def __init__(self, encoded: bytes) -> None:
        """`encoded`: compact JSON without a newline."""
        self._json = encoded
        self.hash = hashlib.sha512(encoded).hexdigest().upper()
        self._etag = f'"{self.hash}"'  # of the content: clusters keep the old document until it changes

    def negotiated(self, request: Request) -> Response:
        """The document as JSON, indented JSON or YAML, as the client accepts. Raises NotAcceptable."""
        return negotiated(request, self._json)

    def tagged(
        self, request: Request, media_type: str = "application/json", headers: dict[str, str] | None = None
    ) -> Response:
        """The document with its ETag; 304 without a body when If-None-Match equals it."""
        headers = {"ETag": self._etag, "Vary": "Accept", **(headers or {})}
        if request.headers.get("if-none-match") == self._etag:
            return whole(b"", media_type, status=304, headers=headers)
        return whole(self._json + b"\n", media_type, headers=headers)


def negotiated(request: Request, encoded: bytes, headers: dict[str, str] | None = None) -> Response:
    """Compact JSON as JSON, indented JSON or YAML, as the client accepts. Raises NotAcceptable."""
    form = negotiate(
        request.headers.get("accept"),
        target=Target.PLAIN,
        pretty=next((v for k, v in request.query_params.multi_items() if k == "pretty"), None),
        user_agent=request.headers.get("user-agent"),
    )
    return whole(render(encoded, form), form.media_type, headers=headers)


def choose(request: Request, *others: str) -> str:
    """The media type that the client prefers, of JSON, YAML and others. Raises NotAcceptable."""
    served = (JSON, YAML, *others)
    for clause in parse_accept(request.headers.get("accept", "")):
        for media_type in served:
            if clause.matches(media_type):
                return media_type
    raise NotAcceptable(served)


def sends_also(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """For the `responses` of an operation that sends these beside JSON and YAML."""
    return {200: {"content": {each: {"schema": {"type": "string"}} for each in media_types}}}


def whole(
    body: bytes, media_type: str, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A response whose Content-Type is exactly `media_type`; Starlette would add a charset to text."""
    return Response(body, status_code=status, headers={**(headers or {}), "Content-Type": media_type})


def text(body: str, *, status: int = 200) -> Response:
    """A plain text response that browsers do not interpret as anything else."""
    return whole(body.encode(), "text/plain; charset=utf-8", status=status, headers=NO_SNIFFING)


def to_response(response: ResourceResponse) -> Response:
    """The same response for FastAPI to send."""
    body: bytes | Sequence[bytes] = response.body
    headers = {name.decode(): value.decode("latin-1") for name, value in response.headers}
    content = body if isinstance(body, bytes) else b"".join(body)
    return whole(content, response.content_type, status=response.status, headers=headers)
