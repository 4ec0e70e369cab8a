"""Long work in short turns, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

# Three collections are listed at a time when the server starts: together they take three times this.
SLICE_S = 0.005

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one; whoever else is ready is served every few milliseconds in between."""
    began = time.monotonic()  # not the loop's clock, which stands still within a turn
    for item in items:
        yield item
        if time.monotonic() - began > SLICE_S:
            await asyncio.sleep(0)
            began = time.monotonic()
