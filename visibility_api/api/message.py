"""What the filters hand to a handler and what a handler gives back.

`Request` is everything a handler may look at; a handler returns a `Response`, or a `Stream` that writes
the body itself (watch). Nothing else of ASGI is visible to handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from visibility_api.auth.identity import Attributes, Identity

# ASGI's own types: its dictionaries are untyped by definition.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case, as ASGI gives them; repeated names stay


class Authenticator(Protocol):
    async def authenticate(self, scope: Scope) -> Identity:
        """Who is asking; raises `auth.errors.Unauthenticated`."""
        ...


class Authorizer(Protocol):
    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        """Returns if allowed; raises `AccessDenied` or `ReviewFailed`."""
        ...


@dataclass(slots=True, kw_only=True)
class Request:
    """One authenticated and authorised request."""

    method: str
    path: str  # as sent, percent-decoded
    query: Sequence[tuple[str, str]]  # in order; only the first of a repeated parameter counts (Z5)
    headers: Headers
    identity: Identity
    attributes: Attributes
    receive: Receive  # handlers of streams wait here for the client's disconnect (W22)

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter, None when it is absent."""
        return next((v for k, v in self.query if k == name), None)

    def header(self, name: bytes) -> str | None:
        """The first value of a header (`name` in lower case), None when it is absent."""
        return next((v.decode("latin-1") for k, v in self.headers if k == name), None)


@dataclass(slots=True, kw_only=True)
class Response:
    """A whole answer. `body` may come in slices, so that a large one does not hold others up."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes | Sequence[bytes] = b""
    headers: Sequence[
        tuple[bytes, bytes]
    ] = ()  # beside Content-Type, Content-Length, Audit-Id, Cache-Control


@dataclass(slots=True, kw_only=True)
class Stream:
    """An answer without an end known beforehand: headers leave at once (W3), then `write` sends the body.

    `write` gets a function that sends one chunk; it returns to end the stream cleanly.
    """

    content_type: str = "application/json"
    write: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]


Handler = Callable[[Request], Awaitable[Response | Stream]]
