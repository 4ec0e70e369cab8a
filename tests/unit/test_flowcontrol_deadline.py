"""The time limit around a request: R17."""

from __future__ import annotations

import asyncio

import pytest

from visibility_api.flowcontrol.deadline import within


async def test_work_that_waits_for_nothing_is_just_done() -> None:
    async def work() -> int:
        return 7

    assert await within(0.0, work()) == 7


async def test_work_that_waits_gets_what_it_waited_for() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def work() -> list[object]:
        return [await first, await second]

    loop.call_soon(first.set_result, 1)
    loop.call_soon(loop.call_soon, second.set_result, 2)
    assert await within(60, work()) == [1, 2]


@pytest.mark.parametrize("suspensions", [0, 1, 3])
async def test_a_failure_of_the_work_comes_through(suspensions: int) -> None:
    async def work() -> None:
        for _ in range(suspensions):
            await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await within(60, work())


@pytest.mark.parametrize("suspensions", [0, 2])
async def test_after_its_time_the_work_is_cancelled(suspensions: int) -> None:
    cancelled: list[bool] = []

    async def work() -> None:
        for _ in range(suspensions):
            await asyncio.sleep(0)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    with pytest.raises(TimeoutError):
        await within(0.01, work())
    assert cancelled == [True]


async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    waiting = asyncio.Event()

    async def work() -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(within(60, work()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
