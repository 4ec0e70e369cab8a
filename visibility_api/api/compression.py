"""gzip for large bodies (R14). Each part is compressed by itself, so that one that is sent again, in the same
body or in another one, was compressed already: of a list, only what has changed since somebody asked.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
from isal import isal_zlib

from .message import Headers

LEVEL = 1  # R14
_TURN_BYTES = 128 * 1024  # compressed in a tenth of a millisecond; then others have their turn
# RFC 1952: a member without name and time. Parts end at a whole byte and refer to nothing before them, so
# they can be strung together; only the checksum at the end is of them all.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"


class _Deflated(msgspec.Struct, frozen=True):
    data: bytes
    crc: int  # of what was compressed


class Part(bytes):
    """A part of a body that later bodies have, too. What it was compressed to lives as long as it does."""

    deflated: _Deflated | None = None


def accepts_gzip(headers: Headers) -> bool:
    """Whether the client takes gzip; a weight of 0 is a no."""
    for name, value in headers:
        if name == b"accept-encoding" and b"gzip" in value.lower():
            for coding in value.lower().split(b","):
                token, _, parameters = coding.strip().partition(b";")
                if token.strip() == b"gzip":
                    weight = parameters.strip().removeprefix(b"q=").strip()
                    return not weight.startswith(b"0") or weight.strip(b"0.") != b""
    return False


async def gzip(body: bytes | Sequence[bytes]) -> AsyncIterator[bytes]:
    """`body` compressed, piece by piece; others have their turn where one has to be made."""
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
    return [body[start : start + _TURN_BYTES] for start in range(0, len(body), _TURN_BYTES)]
