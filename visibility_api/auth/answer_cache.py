"""Answers of reviews: remembered for a while, and asked once however many are waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cachetools import TTLCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TTL_S = 10.0  # as the Go library's, for yes and no alike (A17, Z12)


class AnswerCache(Generic[K, V]):
    """The least recently used answers go first when it is full. Failures are never remembered."""

    def __init__(self, *, max_entries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers: TTLCache[K, V] = TTLCache(max_entries, TTL_S, timer=clock)
        self._flights: dict[K, asyncio.Future[V]] = {}

    def get(self, key: K) -> V | None:
        """The answer if it is known."""
        try:
            return self._answers[key]  # a quarter of what `get` costs
        except KeyError:
            return None

    async def find(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The known answer, or that of `ask`, which runs once for all who want `key` meanwhile.

        Raises what `ask` raises, to all of them. If whoever asks is cancelled, another one asks.
        """
        while True:
            if key in self._answers:
                return self._answers[key]
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, ask)
            await asyncio.wait((flight,))  # unlike `await flight`, being cancelled here leaves it alone
            if not flight.cancelled():
                return flight.result()

    async def _lead(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        flight: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            answer = await ask()
            self._answers[key] = answer
            flight.set_result(answer)
            return answer
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # looked at: without followers nobody else does
            raise
        finally:
            del self._flights[key]
            flight.cancel()  # does nothing unless we were cancelled
