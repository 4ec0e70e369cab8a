"""A bound on what unknown callers may set going, shared fairly between them.

Whoever floods us waits for themselves: each lane has its own queue, lanes are served in turn, and when the
waiting room is full it is the longest queue that loses its last.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from .refusal import TooManyRequests

MAX_RUNNING = 16  # of all lanes together
MAX_RUNNING_PER_LANE = 4  # so that slow work of one lane leaves room for the others
MAX_WAITING = 512
MAX_WAITING_PER_LANE = 64

_CROWDED = "too many pushes wait to be authenticated; try again later"


class Lanes:
    """A lane is whatever its caller makes of it: an address, a namespace, both."""

    def __init__(
        self,
        *,
        max_running: int = MAX_RUNNING,
        max_running_per_lane: int = MAX_RUNNING_PER_LANE,
        max_waiting: int = MAX_WAITING,
        max_waiting_per_lane: int = MAX_WAITING_PER_LANE,
    ) -> None:
        self._free = max_running
        self._max_running_per_lane = max_running_per_lane
        self._max_waiting = max_waiting
        self._max_waiting_per_lane = max_waiting_per_lane
        self._running: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}  # lanes in the order of their turns
        self._waiting = 0

    def __len__(self) -> int:
        """Lanes that somebody is in."""
        return len(self._running.keys() | self._queues.keys())

    @asynccontextmanager
    async def turn(self, lane: Hashable) -> AsyncIterator[None]:
        """Waits for a turn of this lane. Raises TooManyRequests when too many wait already."""
        await self._enter(lane)
        try:
            yield
        finally:
            self._leave(lane)

    async def _enter(self, lane: Hashable) -> None:
        if self._may_run(lane) and lane not in self._queues:
            self._start(lane)
            return
        if len(self._queues.get(lane, ())) >= self._max_waiting_per_lane:
            raise TooManyRequests(_CROWDED)
        if self._waiting >= self._max_waiting:
            self._make_room(lane)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(lane, deque()).append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(lane, turn)
            elif turn.exception() is None:  # called in the same moment: hand the turn on
                self._leave(lane)
            raise

    def _may_run(self, lane: Hashable) -> bool:
        return self._free > 0 and self._running[lane] < self._max_running_per_lane

    def _start(self, lane: Hashable) -> None:
        self._free -= 1
        self._running[lane] += 1

    def _leave(self, lane: Hashable) -> None:
        self._running[lane] -= 1
        if not self._running[lane]:
            del self._running[lane]  # whoever calls names lanes: none may stay behind
        self._free += 1
        self._call_next()

    def _call_next(self) -> None:
        """Give what is free to the lanes in turn; one that was served goes to the end."""
        for lane in list(self._queues):
            if not self._free:
                return
            if not self._may_run(lane):
                continue
            queue = self._queues.pop(lane)
            while queue:
                turn = queue.popleft()
                self._waiting -= 1
                if not turn.done():  # else its caller has just left
                    self._start(lane)
                    turn.set_result(None)
                    break
            if queue:
                self._queues[lane] = queue

    def _make_room(self, lane: Hashable) -> None:
        longest = max(self._queues, key=lambda each: len(self._queues[each]))
        if len(self._queues[longest]) <= len(self._queues.get(lane, ())) + 1:
            raise TooManyRequests(_CROWDED)
        turn = self._queues[longest][-1]
        self._forget(longest, turn)
        if not turn.done():
            turn.set_exception(TooManyRequests(_CROWDED))

    def _forget(self, lane: Hashable, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(lane)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        if not queue:
            del self._queues[lane]
        self._waiting -= 1
