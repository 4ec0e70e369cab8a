"""A time limit that sets no timer for work that completes without waiting.

Most responses are such: identity, access decision and bytes are cached. To set and cancel a timer for each
would cost more than it is worth.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")


async def within(
    timeout_s: float,
    work: Awaitable[T],
    charge: Callable[[float], None] | None = None,
    on_wait: Callable[[asyncio.Timeout], None] | None = None,
) -> T:
    """Await `work`; after `timeout_s` seconds cancel it and raise TimeoutError.

    `charge` is called with the seconds that each of its steps has kept the event loop, not those it waited.
    `on_wait` is called with the time limit when the work has to wait.
    """
    steps: Generator[Any, Any, T] = work.__await__()
    began = perf_counter()
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        if charge is not None:
            charge(perf_counter() - began)
    async with asyncio.timeout(timeout_s) as limit:
        if on_wait is not None:
            on_wait(limit)
        return await resume(awaited, steps, charge)


@types.coroutine
def resume(
    awaited: object, steps: Generator[Any, Any, T], charge: Callable[[float], None] | None = None
) -> Generator[Any, Any, T]:
    """Resume `steps`, which has suspended on `awaited` already; `charge` as of `within`."""
    while True:
        follow: Any = steps.send
        try:
            argument = yield awaited
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            follow, argument = steps.throw, error
        began = perf_counter()
        try:
            awaited = follow(argument)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            if charge is not None:
                charge(perf_counter() - began)
