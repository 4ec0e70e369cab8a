"""Large responses take turns: in each turn of the event loop a slice of one of them is written.

Otherwise a hundred that are sent at the same moment would write a slice each before anybody else is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Of all large responses of one server."""

    def __init__(self) -> None:
        self._senders = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """While a large response is being sent."""
        self._senders += 1
        try:
            yield
        finally:
            self._senders -= 1

    async def wait(self, *, is_first: bool = False) -> None:
        """Before each slice. Other tasks run first, but before the first slice only if others are sending."""
        if self._senders == 1:
            if not is_first:
                await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        await turn

    def _begin(self) -> None:
        """The turn of the one that has waited longest."""
        turn = self._waiting.popleft()
        while turn.done() and self._waiting:  # its client has gone
            turn = self._waiting.popleft()
        if not turn.done():
            turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
