"""Limits work that clients cause: how much runs at one time, how much waits, and how often it starts.

Queues are per client and served round-robin; a flood delays only its sender. When too many requests wait, the
longest queue loses its last one.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from visibility_api.errors.status import TooManyRequests

from .time_shares import TimeShares
from .token_bucket import Bucket

MIN_PAUSE_S = 0.03  # of the rate limit: several start together, since each timer costs
MIN_WAIT_S = 0.001  # until a client's share is looked at again


class ClientQueues:
    """A client is any key that its caller chooses: an address, a namespace, both."""

    def __init__(
        self,
        *,
        crowded: str,
        max_running: int,
        max_running_per_client: int,
        max_waiting: int,
        max_waiting_per_client: int,
        starts_per_s: float = math.inf,
        start_burst: float = math.inf,
        wait_s: float | None = None,
        shares: TimeShares | None = None,
    ) -> None:
        """`crowded` is the message of a refusal: what happened, and what to do. `wait_s`: how long a request
        waits before it is refused; None = as long as its caller lets it. `shares`: a client is served when
        its share of the event loop's time allows it."""
        self._crowded = crowded
        self._wait_s = wait_s
        self._free = max_running
        self._max_running_per_client = max_running_per_client
        self._max_waiting = max_waiting
        self._max_waiting_per_client = max_waiting_per_client
        self._running: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[asyncio.Future[bool]]] = {}  # the next to be served first
        self._waiting = 0
        self._rate = (
            Bucket(per_s=starts_per_s, burst=start_burst, now=0.0) if starts_per_s < math.inf else None
        )
        self._pause: asyncio.TimerHandle | None = None  # until the rate allows the next start
        self._shares = shares
        self._late: asyncio.TimerHandle | None = None  # until the share of the next client allows it
        self._late_at = 0.0  # loop time

    def __len__(self) -> int:
        """How many clients run or wait."""
        return len(self._running.keys() | self._queues.keys())

    @asynccontextmanager
    async def slot(self, client: Hashable) -> AsyncIterator[None]:
        """Waits for a slot for this client. Raises TooManyRequests when too many wait already."""
        await self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    async def enter(self, client: Hashable) -> None:
        """As `slot`; `leave` gives it back."""
        if not self._enter_at_once(client):
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._wait(client)
            except TimeoutError:
                raise TooManyRequests(self._crowded) from None

    def _enter_at_once(self, client: Hashable) -> bool:
        if self._may_run(client) and client not in self._queues and self._take_rate():
            self._start(client)
            return True
        return False

    async def _wait(self, client: Hashable) -> None:
        if len(self._queues.get(client, ())) >= self._max_waiting_per_client:
            raise TooManyRequests(self._crowded)
        if self._waiting >= self._max_waiting:
            self._drop_from_longest(client)
        slot: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(slot)
        self._waiting += 1
        try:
            may_run = await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                self._forget(client, slot)
            elif slot.result():  # given in the same moment: pass the slot on
                self.leave(client)
            raise
        if not may_run:  # no exception in `slot`: that and this frame would hold each other
            raise TooManyRequests(self._crowded)

    def _may_run(self, client: Hashable) -> bool:
        return (
            self._free > 0 and self._running[client] < self._max_running_per_client and self._is_due(client)
        )

    def _is_due(self, client: Hashable) -> bool:
        """Whether the client's share allows more now; else a timer starts what waits when it does."""
        if self._shares is None:
            return True
        loop = asyncio.get_running_loop()
        now, due = loop.time(), self._shares.due(client)
        if due <= now:
            return True
        due = max(due, now + MIN_WAIT_S)
        if self._late is None or due < self._late_at:
            if self._late is not None:
                self._late.cancel()
            self._late, self._late_at = loop.call_at(due, self._resume_late), due
        return False

    def _resume_late(self) -> None:
        self._late = None
        self._start_waiting()

    def _take_rate(self) -> bool:
        """Whether the rate allows a start now, which is counted; else a timer starts the next one."""
        if self._rate is None:
            return True
        if self._pause is not None:
            return False  # those that wait go first
        loop = asyncio.get_running_loop()
        if self._rate.take(loop.time()):
            return True
        self._pause = loop.call_later(max(self._rate.wait_s(loop.time()), MIN_PAUSE_S), self._resume)
        return False

    def _resume(self) -> None:
        self._pause = None
        self._start_waiting()

    def _start(self, client: Hashable) -> None:
        self._free -= 1
        self._running[client] += 1

    def leave(self, client: Hashable) -> None:
        """Give a slot back."""
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]  # callers choose the keys: none may stay behind
        self._free += 1
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Give the free slots to the queues, round-robin."""
        for client in list(self._queues):
            if not self._free:
                return
            if not self._may_run(client):
                continue
            if not self._take_rate():
                return
            queue = self._queues.pop(client)
            while queue:
                slot = queue.popleft()
                self._waiting -= 1
                if not slot.done():  # else its caller has just left
                    self._start(client)
                    slot.set_result(True)
                    break
            if queue:
                self._queues[client] = queue

    def _drop_from_longest(self, client: Hashable) -> None:
        longest = max(self._queues, key=lambda each: len(self._queues[each]))
        if len(self._queues[longest]) <= len(self._queues.get(client, ())) + 1:
            raise TooManyRequests(self._crowded)
        slot = self._queues[longest][-1]
        self._forget(longest, slot)
        if not slot.done():
            slot.set_result(False)

    def _forget(self, client: Hashable, slot: asyncio.Future[bool]) -> None:
        queue = self._queues.get(client)
        if queue is None or slot not in queue:
            return
        queue.remove(slot)
        if not queue:
            del self._queues[client]
        self._waiting -= 1
