"""Joins the responses that one connection produces in one turn of the event loop into one write.

Each write wakes the client that waits for it, and waking costs more than writing. A client with many requests
in flight (the aggregator, a dashboard) is woken once per turn.
"""

from __future__ import annotations

import asyncio


class CoalescingWriter:
    """Writes to `transport` at the end of the current turn of the event loop."""

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._pending = b""

    def write(self, data: bytes) -> None:
        """Write `data` once every callback that is ready now has run."""
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending += data

    def flush(self) -> None:
        """Write what is pending now; required before anybody writes to or closes the transport directly."""
        if self._pending:
            data, self._pending = self._pending, b""
            self._transport.write(data)
