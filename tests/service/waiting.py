"""Waits for what happens behind an API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

DEADLINE_S = 90.0


async def eventually(claim: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await claim():  # noqa: ASYNC110 - it happens behind an API
            await asyncio.sleep(0.02)
