"""One write where several would follow each other: an answer's headers and body, events due together.

Each write on a TLS connection is a record and a system call of its own; for a small answer that is most of
its cost.
"""

from __future__ import annotations

import asyncio
from typing import Any

JOINED_BYTES = 64 * 1024  # more is not copied together: its own cost dwarfs a system call's


class JoinedWrites:
    """Stands in for a transport; what is written in one turn of the event loop leaves at its end.

    Everything but writing and closing is the transport's own.
    """

    __slots__ = ("_loop", "_pending", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the transport has under that name
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)
        self._size += len(data)
        if self._size > JOINED_BYTES:
            self.flush()  # so that the transport can say when it has had enough

    def flush(self) -> None:
        """Hand on what is pending now."""
        pending, size = self._pending, self._size
        if not pending:
            return
        self._pending, self._size = [], 0
        if len(pending) == 1:
            self._transport.write(pending[0])
        elif size <= JOINED_BYTES:
            self._transport.write(b"".join(pending))
        else:
            for data in pending:
                self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()
