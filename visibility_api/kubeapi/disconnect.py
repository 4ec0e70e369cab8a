"""Stops work on a response whose client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from visibility_api.flowcontrol.deadline import resume

from .message import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client disconnected before its response was ready."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work`; cancel it and raise ClientGone when the client disconnects.

    Work that completes without waiting, such as what is cached, costs nothing more.
    """
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    return await _watched(receive, awaited, steps)


async def _watched(receive: Receive, awaited: object, steps: Generator[Any, Any, T]) -> T:
    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(_disconnected(receive), name="disconnect during a response")
            try:
                result = await resume(awaited, steps)
            except Exception as error:  # raised as it is, not in a group
                failure = error
            finally:
                listener.cancel()
    except* ClientGone as gone:
        failure = ClientGone()
        failure.__cause__ = gone
    if failure is not None:
        raise failure
    return result


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone
