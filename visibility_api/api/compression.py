"""gzip for large bodies (R14), made once for a body that is served again."""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from .message import Headers

Body = bytes | Sequence[bytes]

LEVEL = 1  # R14
MAX_CACHED_BYTES = 32 * 1024 * 1024  # originals and compressed together: they are held both
_SLICE_BYTES = 128 * 1024  # about 1 ms of compression, so that others get their turn
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


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
    """Compressed forms of bodies, by the identity of the body object; the least recently used go first.

    A body that handlers keep (a document of ours, a list at one revision) is compressed once; it is held
    here together with its compressed form, so its identity cannot be another's meanwhile.
    """

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._entries: OrderedDict[int, tuple[Body, list[bytes], int]] = OrderedDict()

    async def parts(self, body: Body) -> AsyncIterator[bytes]:
        """The compressed body in order; between two parts the event loop has its turn."""
        held = self._entries.get(id(body))
        if held is not None:
            self._entries.move_to_end(id(body))
            for part in held[1]:
                yield part
            return
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        made: list[bytes] = []
        size = 0
        for piece in _slices(body):
            size += len(piece)
            part = compressor.compress(piece)
            if part:
                made.append(part)
                yield part
            await asyncio.sleep(0)
        made.append(compressor.flush())
        yield made[-1]
        self._keep(body, made, size + sum(map(len, made)))

    def _keep(self, body: Body, made: list[bytes], size: int) -> None:
        if size > self._max_bytes or id(body) in self._entries:
            return
        self._entries[id(body)] = (body, made, size)
        self._held_bytes += size
        while self._held_bytes > self._max_bytes:
            _, (_, _, freed) = self._entries.popitem(last=False)
            self._held_bytes -= freed


def _slices(body: Body) -> Sequence[bytes]:
    if not isinstance(body, bytes):
        return body
    return [body[start : start + _SLICE_BYTES] for start in range(0, len(body), _SLICE_BYTES)]
