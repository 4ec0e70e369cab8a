"""When one connection reads and writes, and what it keeps of what was written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

# Of one write. Fewer writes are cheaper, but OpenSSL's buffer for one, a third larger, is never given back
# while the connection is open; when the client reads slowly two are in it.
PIECE_BYTES = 62 * 1024
_SMALL_BYTES = 16 * 1024
_KEPT_BYTES = 2 * PIECE_BYTES * 4 // 3


class Flow(FlowControl):
    """As uvicorn's, but reading is not resumed while the connection waits for its turn."""

    is_held = False

    def __init__(self, transport: asyncio.Transport, on_larger_piece: Callable[[], None]) -> None:
        """`on_larger_piece` is called when `kept_bytes` has grown."""
        super().__init__(transport)
        self._on_larger_piece: Callable[[], None] | None = on_larger_piece
        self.kept_bytes = 0  # of the pieces that were written; 0: all were small

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()

    def note_piece(self, size: int) -> None:
        """Before so many bytes are written in one piece."""
        if size <= _SMALL_BYTES or self.kept_bytes:
            return
        self.kept_bytes = _KEPT_BYTES
        if self._on_larger_piece is not None:
            self._on_larger_piece()

    def end(self) -> None:
        """The connection is closed."""
        self._on_larger_piece = None
