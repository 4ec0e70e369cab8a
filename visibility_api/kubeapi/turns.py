"""Large responses take turns: in each turn of the event loop a slice of one or a few of them is written.

Otherwise a hundred that are sent at the same moment would write a slice each before anybody else is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Of all large responses of one kind."""

    def __init__(self, *, at_once: int = 1) -> None:
        """`at_once`: slices in one turn of the event loop."""
        self._at_once = at_once
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
        """The turn of those that have waited longest."""
        left = self._at_once
        while self._waiting and left:
            turn = self._waiting.popleft()
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                left -= 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
