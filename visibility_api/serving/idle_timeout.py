"""The timeout of one connection, at the cost of one comparison per request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class IdleTimeout:
    """Calls `expired` once when the time given to `start` has passed without `stop` or another `start`.

    A timer per wait would be armed and cancelled with every request. This one is armed once; when it fires
    too early, it is armed again for the rest.
    """

    __slots__ = ("_deadline", "_expired", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._deadline = math.inf  # loop time; inf: not running
        self._timer: asyncio.TimerHandle | None = None

    @property
    def deadline(self) -> float:
        """Loop time; inf when it is not running."""
        return self._deadline

    def start(self, seconds: float) -> None:
        """Expire `seconds` from now, whatever an earlier `start` said."""
        self._deadline = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._fire)

    def stop(self) -> None:
        """Do not expire. The timer stays armed for the next `start`."""
        self._deadline = math.inf

    def close(self) -> None:
        """Cancel the timer; for a connection that is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._loop.time() >= self._deadline:
            self._expired()
        elif self._deadline != math.inf:
            self._timer = self._loop.call_at(self._deadline, self._fire)
