"""A time limit that sets no timer for work that completes without waiting.

Most responses are such: identity, access decision and bytes are cached. To set and cancel a timer for each
would cost more than it is worth.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """Await `work`; after `timeout_s` seconds cancel it and raise TimeoutError."""
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout(timeout_s):
        return await resume(awaited, steps)


@types.coroutine
def resume(awaited: object, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Resume `steps`, which has suspended on `awaited` already."""
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
