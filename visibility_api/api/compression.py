"""gzip for large bodies (R14). Each part is compressed by itself, so that one that is sent again, in the same
body or in another one, was compressed already: of a list, only what has changed since somebody asked.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
from cachetools import LRUCache
from isal import isal_zlib

from .message import Headers

Body = bytes | Sequence[bytes]

LEVEL = 1  # R14
MAX_KEPT_BYTES = 32 * 1024 * 1024  # parts and what they were compressed to: they are held both
_TURN_BYTES = 128 * 1024  # compressed in a tenth of a millisecond; then others have their turn
# RFC 1952: a member without name and time. Parts end at a whole byte and refer to nothing before them, so
# they can be strung together; only the checksum at the end is of them all.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"


class _Part(msgspec.Struct, frozen=True):
    original: bytes  # held, so that its identity cannot be another's meanwhile
    deflated: bytes
    crc: int


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


class GzipCache:
    """Compresses bodies and keeps parts, by the identity of the object; the least recently used go first."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._kept: LRUCache[int, _Part] = LRUCache(max_bytes, getsizeof=_size_bytes)

    async def pieces(self, body: Body, *, is_kept: bool) -> AsyncIterator[bytes]:
        """`body` as gzip, in order. Its parts are kept for the next time if its maker keeps them, too."""
        yield _HEAD
        crc, size = zlib.crc32(b""), 0
        for original in _parts(body):
            part = self._kept.get(id(original))
            if part is None:
                part = _compress(original)
                if is_kept and _size_bytes(part) <= self._kept.maxsize:
                    self._kept[id(original)] = part
                await asyncio.sleep(0)  # others' turn
            crc = isal_zlib.crc32_combine(crc, part.crc, len(original))
            size += len(original)
            yield part.deflated
        yield _LAST_BLOCK + struct.pack("<II", crc, size & 0xFFFF_FFFF)


def _compress(original: bytes) -> _Part:
    compressor = isal_zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = compressor.compress(original) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return _Part(original, deflated, isal_zlib.crc32(original))


def _size_bytes(part: _Part) -> int:
    return len(part.original) + len(part.deflated)


def _parts(body: Body) -> Sequence[bytes]:
    """Those of a list are small enough as they are."""
    if not isinstance(body, bytes):
        return body
    return [body[start : start + _TURN_BYTES] for start in range(0, len(body), _TURN_BYTES)]
