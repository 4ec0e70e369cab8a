"""What work keeps the event loop for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable


async def busy_s(work: Awaitable[object]) -> list[float]:
    """For how long, in CPU time, each turn of the loop was kept until `work` was done."""
    turns, began = [], time.thread_time()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        turns.append(now - began)
        began = now
    await task
    return turns
