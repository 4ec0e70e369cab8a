"""Reads a push's body up to a limit of bytes. The caller limits the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from visibility_api.errors.status import Invalid, RequestEntityTooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64 * 1024


class ClientGone(Exception):
    """The client disconnected before its push was complete."""


def check_length(headers: Headers) -> int:
    """The Content-Length; without one as much as a body may have, since it comes in pieces.

    Raises RequestEntityTooLarge for one above the limit, before the body is read.
    """
    for name, value in headers:
        if name == b"content-length":
            if len(value) > 12 or int(value) > MAX_BODY_BYTES:
                raise RequestEntityTooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")
            return int(value)
    return MAX_BODY_BYTES


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises ClientGone; Invalid when it is too long (422 as Kubeflow Trainer's, not 413)."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")  # nearly always: the body came with the headers
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
