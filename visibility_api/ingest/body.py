"""Reading a push's body: bounded in bytes, whatever its framing says. Time is the caller's to bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from .refusal import Invalid, TooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64 * 1024


class ClientGone(Exception):
    """The client left before its push was whole; nobody waits for an answer."""


def check_length(headers: Headers) -> None:
    """Raises TooLarge by what Content-Length says, before a byte of the body is waited for."""
    for name, value in headers:
        if name == b"content-length" and (len(value) > 12 or int(value) > MAX_BODY_BYTES):
            raise TooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises Invalid when it grows too long (as upstream: 422, not 413), ClientGone."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")  # nearly always: it came with the headers
        if len(body) > MAX_BODY_BYTES:
            raise Invalid(f"the body exceeds {MAX_BODY_BYTES} bytes")
        return body
    chunks, size = [], 0
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY_BYTES:
            raise Invalid(f"the body exceeds {MAX_BODY_BYTES} bytes")
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()
    raise ClientGone
