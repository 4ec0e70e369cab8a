"""Work on many items, in short slices of the event loop's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.005  # at start three collections are listed concurrently: together they take three times this


async def in_slices(items: Iterable[T], slice_s: float = SLICE_S, rest_s: float = 0.0) -> AsyncIterator[T]:
    """The items one by one; every `slice_s` seconds the other tasks that are ready get to run, and what comes
    within `rest_s`."""
    began = time.monotonic()  # the event loop's own clock does not advance between two of its turns
    for item in items:
        yield item
        if time.monotonic() - began > slice_s:
            await asyncio.sleep(rest_s)
            began = time.monotonic()
