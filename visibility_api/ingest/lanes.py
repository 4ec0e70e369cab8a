"""A bound on what unknown callers may set going, shared fairly between them.

Whoever floods us waits for themselves: each lane has its own queue, lanes are served in turn, and when the
waiting room is full it is the longest queue that loses its last. However short the work, so many turns a
second are given and no more: each is a review or two that kube-apiserver has to answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from .bucket import Bucket
from .refusal import TooManyRequests

MAX_RUNNING = 16  # of all lanes together
MAX_RUNNING_PER_LANE = 4  # so that slow work of one lane leaves room for the others
MAX_WAITING = 512
MAX_WAITING_PER_LANE = 64
# Ten thousand pods that start within a minute need 167 a second, their renewals 83 (gate.BELIEVED_S). A token
# review costs kube-apiserver 0.7 ms of CPU: a fifth of a core.
TURNS_PER_S, TURN_BURST = 300.0, 600.0
MIN_PAUSE_S = 0.03  # what may go on by then goes together: each waking costs

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
        turns_per_s: float = TURNS_PER_S,
        turn_burst: float = TURN_BURST,
    ) -> None:
        self._free = max_running
        self._max_running_per_lane = max_running_per_lane
        self._max_waiting = max_waiting
        self._max_waiting_per_lane = max_waiting_per_lane
        self._running: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}  # lanes in the order of their turns
        self._waiting = 0
        self._pace = Bucket(per_s=turns_per_s, burst=turn_burst, now=0.0)
        self._pause: asyncio.TimerHandle | None = None  # until the pace allows for another turn

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
        if self._may_run(lane) and lane not in self._queues and self._keeps_pace():
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

    def _keeps_pace(self) -> bool:
        """Whether a turn may be given now, which is counted; else those that wait are called in a while."""
        if self._pause is not None:
            return False  # who comes now does not go before those that wait
        loop = asyncio.get_running_loop()
        if self._pace.take(loop.time()):
            return True
        self._pause = loop.call_later(max(self._pace.wait_s(loop.time()), MIN_PAUSE_S), self._go_on)
        return False

    def _go_on(self) -> None:
        self._pause = None
        self._call_next()

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
            if not self._keeps_pace():
                return
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
