"""A cache of review results. Concurrent requests for the same result share one review."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cachetools import TTLCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TTL_S = 10.0  # for allowed and denied alike, as in the Go library


class ReviewCache(Generic[K, V]):
    """When it is full, the least recently used result is dropped. Failed reviews are not cached."""

    def __init__(self, *, max_entries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._results: TTLCache[K, V] = TTLCache(max_entries, TTL_S, timer=clock)
        self._flights: dict[K, asyncio.Future[V]] = {}

    def get(self, key: K) -> V | None:
        """The cached result, or None."""
        try:
            return self._results[key]  # a quarter of what `get` costs
        except KeyError:
            return None

    async def find(self, key: K, review: Callable[[], Awaitable[V]]) -> V:
        """The cached result, or that of `review`, which runs once for all callers that wait for `key`.

        Raises to each of them what `review` raises. When the caller that runs it is cancelled, another one
        runs it again.
        """
        while True:
            if key in self._results:
                return self._results[key]
            flight = self._flights.get(key)
            if flight is None:
                return await self._run(key, review)
            await asyncio.wait((flight,))  # unlike `await flight`, does not cancel it with this caller
            if not flight.cancelled():
                try:
                    return flight.result()
                finally:
                    del flight  # holds the error, whose traceback holds this frame

    async def _run(self, key: K, review: Callable[[], Awaitable[V]]) -> V:
        flight: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            result = await review()
            self._results[key] = result
            flight.set_result(result)
            return result
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # marks it as retrieved: there may be no other caller
            raise
        finally:
            del self._flights[key]
            flight.cancel()  # does nothing unless we were cancelled
            del flight  # holds the error, whose traceback holds this frame
