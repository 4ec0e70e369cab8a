"""Shares of the event loop's time. What a client uses beyond its share delays its own next work alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable

MAX_CLIENTS = 4096  # beyond that, those whose share is whole again are forgotten


class TimeShares:
    """What each client has used, in seconds of the event loop. A client is any key of the caller's choice."""

    def __init__(self, *, share: float, max_wait_s: float, burst_s: float = 0.0) -> None:
        """`share`: of the loop's time. `burst_s`: what may be used at once after a rest. `max_wait_s`: the
        longest wait until the share has made up for what was used; what is used beyond it is not counted."""
        self._share = share
        self._max_wait_s = max_wait_s
        self._ahead_s = burst_s / share
        self._due: dict[Hashable, float] = {}  # loop time from which the share allows more
        self._now = -math.inf  # loop time when something was used last

    def due(self, client: Hashable) -> float:
        """The loop time from which the client may go on. It may have passed."""
        return self._due.get(client, -math.inf)

    def is_over(self, client: Hashable) -> bool:
        """Whether the client has to wait."""
        due = self._due.get(client, -math.inf)
        return due > self._now and due > asyncio.get_running_loop().time()  # the clock is asked if it must

    def charge(self, client: Hashable, spent_s: float) -> None:
        """The client has used so many seconds."""
        now = self._now = asyncio.get_running_loop().time()
        due, most = now - self._ahead_s, now + self._max_wait_s
        if (held := self._due.get(client)) is not None and held > due:
            due = held
        due += spent_s / self._share
        self._due[client] = min(most, due)
        if len(self._due) > MAX_CLIENTS:
            self._due = {each: at for each, at in self._due.items() if at > now - self._ahead_s}
