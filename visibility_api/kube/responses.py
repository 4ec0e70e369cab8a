"""Reading kube-apiserver's responses within limits, and describing what went wrong without quoting them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import msgspec

from .errors import ApiError, TooLarge, Unreachable

MAX_ERROR_BYTES = 64 * 1024
MAX_MESSAGE_CHARACTERS = 500
MAX_LINE_BYTES = 8 * 1024 * 1024  # one watch event: etcd stores objects of up to 1.5 MiB, and JSON is larger


class _StatusDetails(msgspec.Struct):
    retryAfterSeconds: float = 0


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


async def raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise ApiError unless the response is a success."""
    if response.status < 300:
        return
    body = await response.content.read(MAX_ERROR_BYTES)
    status = _Status()
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a proxy's HTML or plain text has only the code
        status = msgspec.json.decode(body, type=_Status)
    retry_after_s = status.details.retryAfterSeconds if status.details else 0.0
    with suppress(ValueError):  # an HTTP date: rare, and the caller backs off anyway
        retry_after_s = max(retry_after_s, float(response.headers.get("Retry-After", 0)))
    raise ApiError(
        response.status,
        status.reason,
        status.message[:MAX_MESSAGE_CHARACTERS],
        retry_after_s=retry_after_s or None,
    )


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Raises TooLarge."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():  # not iter_chunks, which never ends for an empty body
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"GET {response.url.path}: the response exceeds {max_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def split_lines(stream: aiohttp.StreamReader, *, max_bytes: int) -> AsyncIterator[bytes]:
    """The complete lines of a stream. Raises Unreachable for one of more than `max_bytes`.

    Not `readline`: that fails for lines longer than the read buffer.
    """
    rest: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        head, *tail = chunk.split(b"\n")
        rest.append(head)
        size += len(head)
        for piece in tail:
            line = b"".join(rest)
            rest, size = [piece], len(piece)
            if line:
                yield line
        if size > max_bytes:
            raise Unreachable(f"a watch event exceeds {max_bytes} bytes")
    # what follows the last newline was cut off by the end of the stream


def describe_error(error: BaseException) -> str:
    """Class and message of an error of the connection; those contain neither bodies nor headers."""
    text = str(error)
    if isinstance(error, aiohttp.ClientResponseError):  # quotes the URL: of a proxy, with its password
        text = f"{error.status} {error.message}"
    text = text[:MAX_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
