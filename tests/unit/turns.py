"""What work keeps the event loop for."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable


async def busy_s(work: Awaitable[object]) -> list[float]:
    """For how long, in CPU time, each turn of the loop was kept until `work` was done."""
    turns: list[float] = []
    gc.disable()  # it would look through what thousands of other tests have left
    try:
        began, task = time.thread_time(), asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            turns.append(now - began)
            began = now
    finally:
        gc.enable()
    await task
    return turns
