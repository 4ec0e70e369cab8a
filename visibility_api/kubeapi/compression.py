"""gzip for large bodies.

Each part is compressed by itself and cached, so that a list costs only the parts that changed since the last
request.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
from isal import isal_zlib

from .message import Headers

LEVEL = 1  # as the API server: k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go
_MAX_CODINGS = 64  # of one header; browsers name four
_PIECE_BYTES = 128 * 1024  # compressed in a tenth of a millisecond; then other tasks run
# RFC 1952: a member without name and time. Parts end at a whole byte and refer to nothing before them, so
# they can be concatenated; only the checksum at the end covers them all.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"


class _Deflated(msgspec.Struct, frozen=True):
    data: bytes
    crc: int  # of what was compressed


class Part(bytes):
    """A part that several bodies share; its compressed form is cached with it."""

    deflated: _Deflated | None = None


def accepts_gzip(headers: Headers) -> bool:
    """Whether the client accepts gzip; a weight of 0 means that it does not."""
    for name, value in headers:
        if name == b"accept-encoding" and b"gzip" in value.lower():
            for coding in value.lower().split(b",", _MAX_CODINGS)[:_MAX_CODINGS]:
                token, _, parameters = coding.strip().partition(b";")
                if token.strip() == b"gzip":
                    weight = parameters.strip().removeprefix(b"q=").strip()
                    return not weight.startswith(b"0") or weight.strip(b"0.") != b""
    return False


async def gzip(body: bytes | Sequence[bytes]) -> AsyncIterator[bytes]:
    """`body` compressed, piece by piece. Other tasks run after each piece that was not cached."""
    yield _HEAD
    crc, size = zlib.crc32(b""), 0
    for part in _cut(body) if isinstance(body, bytes) else body:
        deflated = part.deflated if isinstance(part, Part) else None
        if deflated is None:
            deflated = _deflate(part)
            if isinstance(part, Part):
                part.deflated = deflated
            await asyncio.sleep(0)
        crc = isal_zlib.crc32_combine(crc, deflated.crc, len(part))
        size += len(part)
        yield deflated.data
    yield _LAST_BLOCK + struct.pack("<II", crc, size & 0xFFFF_FFFF)


def _deflate(part: bytes) -> _Deflated:
    compressor = isal_zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return _Deflated(data, isal_zlib.crc32(part))


def _cut(body: bytes) -> Sequence[bytes]:
    return [body[start : start + _PIECE_BYTES] for start in range(0, len(body), _PIECE_BYTES)]
