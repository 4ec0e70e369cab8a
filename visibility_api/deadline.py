"""A time limit that costs next to nothing when nothing is waited for.

Most answers are made without one suspension: identity, verdict and bytes are all cached. A timer for
each of them would be armed and cancelled in vain.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """What `work` returns. After `timeout_s` seconds cancels it and raises TimeoutError."""
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout(timeout_s):
        return await _resume(awaited, steps)


@types.coroutine
def _resume(awaited: object, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Goes on with `steps`, whose first suspension, on `awaited`, was taken already."""
    while True:
        follow: Any = steps.send
        try:
            argument = yield awaited
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            follow, argument = steps.throw, error
        try:
            awaited = follow(argument)
        except StopIteration as done:
            result: T = done.value
            return result
