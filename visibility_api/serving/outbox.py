"""Answers of one connection on their way out: those made in one turn of the loop leave together, at its end.

Each write wakes the client that waits for it, and waking costs more than writing. A client that has many
requests under way (the aggregator, a dashboard) is woken once a turn, by the first of its answers.
"""

from __future__ import annotations

import asyncio


class Outbox:
    """What is put in is written before anything that a later turn writes."""

    __slots__ = ("_loop", "_transport", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._waiting = b""

    def put(self, data: bytes) -> None:
        """Hands `data` to the transport once all that is ready to run now has run."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting += data

    def flush(self) -> None:
        """Hands over what waits now, as must be done before the transport is written to or closed."""
        if self._waiting:
            data, self._waiting = self._waiting, b""
            self._transport.write(data)
