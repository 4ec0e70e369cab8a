"""Sends one response over ASGI: headers, slices, gzip."""

from __future__ import annotations

from collections.abc import Sequence

from .compression import accepts_gzip, gzip
from .message import Headers, ResourceResponse, Send
from .turns import Turns

GZIP_ABOVE_BYTES = 128 * 1024  # as the API server: below it compression costs more than it saves
WRITE_BYTES = 64 * 1024
SMALL_BYTES = 1024  # smaller parts, the head and the end of a list, get no write of their own
YIELD_BYTES = 400 * 1024  # sent in a fifth of a millisecond; then other tasks run
DEFAULT_CACHE_CONTROL = (b"cache-control", b"no-cache, private")  # the API server's own


class ReaderTooSlow(TimeoutError):
    """The client did not read in time; its connection is closed without an end of the body.

    A TimeoutError for code that writes streams; a class of its own, distinct from other time-outs.
    """


_BODYLESS = frozenset((204, 304))
_CONTENT_TYPES: dict[str, tuple[bytes, bytes]] = {}  # header pairs of our own constants, so bounded
_VARY_ENCODING = (b"vary", b"Accept-Encoding")


async def deliver(
    response: ResourceResponse, *, send: Send, own_headers: Headers, headers: Headers, turns: Turns
) -> None:
    """Send the whole response. `headers` are the request's, `own_headers` those of every response.

    uvicorn drops the body of a response to HEAD.
    """
    body = response.body
    size = len(body) if isinstance(body, bytes) else sum(len(part) for part in body)
    if size > GZIP_ABOVE_BYTES and accepts_gzip(headers):
        with turns.sending():
            await _deliver_compressed(response, send=send, own_headers=own_headers, turns=turns)
        return
    start = _start_headers(response, own_headers)
    if response.status not in _BODYLESS:
        start.append((b"content-length", b"%d" % size))
    await send({"type": "http.response.start", "status": response.status, "headers": start})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
        return
    with turns.sending():
        await _deliver_parts(body, send=send, turns=turns)


async def _deliver_parts(body: Sequence[bytes], *, send: Send, turns: Turns) -> None:
    waiting, sent = b"", 0
    await turns.wait(is_first=True)
    for part in body:
        if len(waiting) < SMALL_BYTES or len(part) < SMALL_BYTES:
            waiting += part
            continue
        await send({"type": "http.response.body", "body": waiting, "more_body": True})
        waiting, sent = part, sent + len(waiting)
        if sent >= YIELD_BYTES:
            sent = 0
            await turns.wait()  # a large list must not delay other requests
    await send({"type": "http.response.body", "body": waiting})


async def _deliver_compressed(
    response: ResourceResponse, *, send: Send, own_headers: Headers, turns: Turns
) -> None:
    start = _start_headers(response, own_headers)
    start.extend(((b"content-encoding", b"gzip"), _VARY_ENCODING))
    await send({"type": "http.response.start", "status": response.status, "headers": start})
    waiting, sent = b"", 0  # one write for each piece would cost more than compressing it
    await turns.wait(is_first=True)
    async for piece in gzip(response.body):
        waiting += piece
        if len(waiting) >= WRITE_BYTES:
            await send({"type": "http.response.body", "body": waiting, "more_body": True})
            waiting, sent = b"", sent + len(waiting)
            if sent >= YIELD_BYTES:
                sent = 0
                await turns.wait()
    await send({"type": "http.response.body", "body": waiting})


def _start_headers(response: ResourceResponse, own_headers: Headers) -> list[tuple[bytes, bytes]]:
    content_type = _CONTENT_TYPES.get(response.content_type)
    if content_type is None:
        content_type = _CONTENT_TYPES[response.content_type] = (
            b"content-type",
            response.content_type.encode("latin-1"),
        )
    headers: list[tuple[bytes, bytes]] = [content_type, *own_headers]
    extra: Sequence[tuple[bytes, bytes]] = response.headers
    if not extra:
        headers.append(DEFAULT_CACHE_CONTROL)
        return headers
    for name, _ in extra:
        if name == b"cache-control":
            break
    else:
        headers.append(DEFAULT_CACHE_CONTROL)
    headers.extend(extra)
    return headers
