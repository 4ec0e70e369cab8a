"""When one connection reads and writes, and what it keeps of what was written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

# Of one write. Fewer writes are cheaper, but from 128 KiB on (with what TLS adds) the C library maps fresh
# memory for each copy that TLS makes.
PIECE_BYTES = 126 * 1024
_SMALL_BYTES, _MEDIUM_BYTES = 16 * 1024, 63 * 1024


def _kept(size: int) -> int:
    """OpenSSL's buffer for a piece: a third larger, and never given back while the connection is open."""
    return size * 4 // 3


class Flow(FlowControl):
    """As uvicorn's, but reading is not resumed while the connection waits for its turn."""

    is_held = False

    def __init__(self, transport: asyncio.Transport, on_larger_piece: Callable[[], None]) -> None:
        """`on_larger_piece` is called when `kept_bytes` has grown."""
        super().__init__(transport)
        self._on_larger_piece: Callable[[], None] | None = on_larger_piece
        self._limit: float = _SMALL_BYTES
        self.kept_bytes = 0  # of the largest piece that was written; 0: it was small

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()

    def note_piece(self, size: int) -> None:
        """Before so many bytes are written in one piece."""
        if size <= self._limit:
            return
        if size <= _MEDIUM_BYTES:
            self._limit, self.kept_bytes = _MEDIUM_BYTES, _kept(_MEDIUM_BYTES)
        else:
            self._limit, self.kept_bytes = math.inf, _kept(PIECE_BYTES)
        if self._on_larger_piece is not None:
            self._on_larger_piece()

    def end(self) -> None:
        """The connection is closed."""
        self._on_larger_piece = None
