"""How long a connection may take over what is waited for, at the cost of a comparison a request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Patience:
    """Calls `give_up` once when its time is over, unless it was given more.

    A timer for each wait would be armed and cancelled again with every request. This one is armed once and,
    when it rings too early, for the rest.
    """

    __slots__ = ("_ends_at", "_give_up", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, give_up: Callable[[], None]) -> None:
        self._loop = loop
        self._give_up = give_up
        self._ends_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_limited(self) -> bool:
        """Something is being waited for."""
        return self._ends_at != math.inf

    def limit(self, seconds: float) -> None:
        """From now on so long, and not what was said before."""
        self._ends_at = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._ends_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._ends_at, self._ring)

    def lift(self) -> None:
        """Nothing is waited for."""
        self._ends_at = math.inf

    def end(self) -> None:
        """The connection is gone; nothing rings any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        if self._loop.time() >= self._ends_at:
            self._give_up()
        elif self.is_limited:
            self._timer = self._loop.call_at(self._ends_at, self._ring)
