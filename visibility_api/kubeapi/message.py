"""The request and response types of the Kubernetes resource path, which is raw ASGI beside FastAPI's own.

A handler gets a `ResourceRequest`. It returns a `ResourceResponse`, or for a watch a `ResourceStream`, which
writes its body itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from visibility_api.auth.identity import ANONYMOUS, Attributes, Identity

# ASGI's own types: its dictionaries are untyped by definition.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case, as ASGI gives them; repeated names stay


@dataclass(slots=True, kw_only=True)
class ResourceRequest:
    """One authenticated and authorised request."""

    query: Sequence[tuple[str, str]]  # in order; of a repeated parameter only the first is used
    headers: Headers
    attributes: Attributes
    receive: Receive  # handlers wait here for the client's disconnect
    identity: Identity = ANONYMOUS
    client: str = ""  # whose turn it is when several wait: `auth.identity.client_of` the caller
    # To be told of the event loop's seconds that a stream takes before it waits for changes.
    charge: Callable[[float], None] = lambda _spent_s: None
    # To be told of what ends the stream of a watch in order.
    opened: Callable[[Callable[[], None]], None] = lambda _end: None

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter, None when it is absent."""
        return next((v for k, v in self.query if k == name), None)


@dataclass(slots=True, kw_only=True)
class ResourceResponse:
    """A whole response. `body` may be in slices, so that a large one does not delay other requests."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes | Sequence[bytes] = b""
    headers: Sequence[
        tuple[bytes, bytes]
    ] = ()  # beside Content-Type, Content-Length, Audit-Id, Cache-Control


@dataclass(slots=True, kw_only=True)
class ResourceStream:
    """A response of unknown length: the headers are sent at once, then `write` sends the body.

    `write` is called with a function that sends one chunk. The stream ends when it returns.
    """

    content_type: str = "application/json"
    headers: Sequence[tuple[bytes, bytes]] = ()
    write: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]


Handler = Callable[[ResourceRequest], Awaitable[ResourceResponse | ResourceStream]]
