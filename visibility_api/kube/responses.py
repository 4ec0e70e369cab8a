"""Reading kube-apiserver's responses within limits, and describing what went wrong without quoting them."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import msgspec

from .errors import ApiError, TooLarge, Unreachable

MAX_ERROR_BYTES = 64 * 1024
MAX_MESSAGE_CHARACTERS = 500
# One watch event. etcd stores objects of up to 1.5 MiB, and each `<` in one of protobuf is six bytes of JSON.
MAX_LINE_BYTES = 16 * 1024 * 1024
LARGE_LINE_BYTES = 1024 * 1024  # all streams of a client hold one longer line at a time
ENDLESS_LINES = 10  # times the limit; a longer line counts as endless
PART_BYTES = 32 * 1024  # of what has come at once, before other tasks get to run: it may be newlines alone
MAX_EMPTY_LINES = 1_000  # one after the other
_RENEW, _RENAME = "Renew it", "Use an address that it names, or set tls-server-name"
# By OpenSSL's codes (x509_vfy.h): not yet valid, expired; other host, other IP address.
_VERIFY_HINTS = {9: "Check both clocks", 10: _RENEW, 62: _RENAME, 64: _RENAME}
LARGE_LINE_S = 30.0  # for such a line to arrive, while other streams may wait to read theirs


class Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct):
    retryAfterSeconds: float = 0
    causes: list[Cause] | None = None


class Status(msgspec.Struct):
    """What is used of a metav1.Status."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


async def raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise ApiError unless the response is a success."""
    if response.status < 300:
        return
    body = await read_start(response, MAX_ERROR_BYTES)
    status = Status()
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a proxy's HTML or plain text has only the code
        status = msgspec.json.decode(body, type=Status)
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
            raise TooLarge(f"{response.method} {response.url.path}: the response exceeds {max_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_start(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The body, or its first `max_bytes`. One `read` of aiohttp's returns no more than what has come."""
    start = b""
    async for chunk in response.content.iter_any():
        start += chunk
        if len(start) >= max_bytes:
            break
    return start[:max_bytes]


@dataclass(frozen=True, slots=True)
class Oversized:
    """Stands for a line that exceeded the size limit. The line was read to its end and discarded."""

    size: int  # bytes


async def split_lines(
    stream: aiohttp.StreamReader, *, max_bytes: int, large: asyncio.Semaphore
) -> AsyncIterator[bytes | Oversized]:
    """The complete lines of a stream. One of the streams that share `large` holds a large line at a time.

    Not `readline`: that fails for lines longer than the read buffer. Raises Unreachable for a large line
    that does not arrive in LARGE_LINE_S, and TooLarge for one that does not end, or empty ones that do not.
    """
    kept: list[bytes] = []  # of the line that has not ended
    size = empty = 0  # of the same line, also where it is discarded; empty lines before it
    deadline: float | None = None  # there while this stream holds `large`
    try:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    chunk = await stream.readany()
            except TimeoutError as error:
                if deadline is None:
                    raise
                raise Unreachable(f"a line took longer than {LARGE_LINE_S:g}s to arrive") from error
            if not chunk:
                return  # what follows the last newline was cut off by the end of the stream
            for at in range(0, len(chunk), PART_BYTES):
                if at:
                    await asyncio.sleep(0)
                *ends, begun = chunk[at : at + PART_BYTES].split(b"\n")
                for end in ends:
                    size += len(end)
                    line = b"".join((*kept, end)) if size <= max_bytes else Oversized(size)
                    kept, size = [], 0
                    if deadline is not None:
                        deadline = None
                        large.release()
                    empty = 0 if line else empty + 1
                    if line:
                        yield line
                    elif empty > MAX_EMPTY_LINES:
                        raise TooLarge(f"size limit exceeded: more than {MAX_EMPTY_LINES} empty lines")
                size += len(begun)
                if size > max_bytes:
                    kept = []
                    if size > ENDLESS_LINES * max_bytes:
                        raise TooLarge(
                            f"size limit exceeded: a line of more than {ENDLESS_LINES * max_bytes} bytes"
                        )
                    continue
                kept.append(begun)
                if size > LARGE_LINE_BYTES and deadline is None:
                    await large.acquire()
                    deadline = asyncio.get_running_loop().time() + LARGE_LINE_S
    finally:
        if deadline is not None:
            large.release()


def describe_error(error: BaseException) -> str:
    """What happened to a connection, and what to do; nothing that quotes a body, a header or a URL."""
    if isinstance(error, aiohttp.ClientConnectorError):  # its own text quotes a Python object
        return _describe_unconnected(error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no TCP and TLS connection in time. Check the address, its port, and what filters packets"
    text = str(error)
    if isinstance(error, aiohttp.ServerDisconnectedError):  # quotes the response
        text = ""
    if isinstance(error, aiohttp.ClientResponseError):
        # Quotes the URL: of a proxy, with its password. From the second line of its message on, the response.
        text = f"{error.status} {error.message.partition(chr(10))[0]}"
    if isinstance(error, ssl.SSLError):
        text = _words_of(error)
    text = text[:MAX_MESSAGE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def why_untrusted(error: BaseException) -> str:
    """OpenSSL's reason why a certificate is not accepted, without names; empty for another error."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    return cause.verify_message.partition(",")[0] if isinstance(cause, ssl.SSLCertVerificationError) else ""


def _describe_unconnected(error: aiohttp.ClientConnectorError) -> str:
    place = f"{error.host}:{error.port}"
    cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = _VERIFY_HINTS.get(cause.verify_code, "Give its CA, in a kubeconfig by certificate-authority")
        return f"the certificate of {place} is not accepted: {cause.verify_message.rstrip('.')}. {hint}"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection to {place}: {_words_of(cause)}. Check that its port is one of HTTPS"
    # The text of an event loop's error does not say why; that of several addresses has no number.
    number = cause.errno or 0  # that of a name that is not found is negative
    why = os.strerror(number) if number > 0 else cause.strerror or str(cause)
    why = why or type(cause).__name__
    return f"no connection to {place}: {why}"[:MAX_MESSAGE_CHARACTERS]


def _words_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason, such as "wrong version number"; without the line of its source."""
    return error.reason.replace("_", " ").lower() if error.reason else type(error).__name__
