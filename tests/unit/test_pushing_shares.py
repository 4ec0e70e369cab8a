"""Who pushes what is costly delays nobody else: budgets of time, and turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.unit.virtual_time import in_virtual_time
from visibility_api.errors.status import TooManyRequests
from visibility_api.pushing.shares import (
    JOB,
    MS_PER_BYTE,
    NAMESPACE,
    POD,
    Budgets,
    PushTurns,
    charge,
)


@in_virtual_time
async def test_a_pod_a_job_and_a_namespace_have_budgets_of_their_own() -> None:
    budgets = Budgets(clock=asyncio.get_running_loop().time)

    async def push(namespace: str, job: str, pod: str, ms: float = 0.0) -> None:
        buckets = budgets.find(namespace, job, pod)
        await budgets.enter(buckets, 2)
        charge(buckets, ms)

    await push("team-a", "bert", "1", POD.burst_ms)
    with pytest.raises(TooManyRequests, match=f"this pod's {POD.ms_per_s:g} ms"):
        await push("team-a", "bert", "1")
    await push("team-a", "bert", "2", JOB.burst_ms)
    with pytest.raises(TooManyRequests, match=f"this job's {JOB.ms_per_s:g} ms"):
        await push("team-a", "bert", "3")
    await push("team-a", "gpt", "4", NAMESPACE.burst_ms)
    with pytest.raises(TooManyRequests, match=f"this namespace's {NAMESPACE.ms_per_s:g} ms"):
        await push("team-a", "t5", "5")
    await push("team-b", "bert-b", "6")
    await asyncio.sleep(10.0)
    await push("team-a", "bert", "3")


@in_virtual_time
async def test_what_one_pod_is_refused_is_not_charged_to_its_job() -> None:
    budgets = Budgets(clock=asyncio.get_running_loop().time)
    mine, others = budgets.find("team-a", "bert", "1"), budgets.find("team-a", "bert", "2")
    charge(mine[:1], POD.burst_ms)

    async def push() -> None:
        with pytest.raises(TooManyRequests):
            await budgets.enter(mine, 65_536)

    await asyncio.gather(*(push() for _ in range(5000)))
    await budgets.enter(others, 65_536)


@in_virtual_time
async def test_a_refusal_waits_for_room_so_that_reading_what_is_refused_costs_little() -> None:
    """A thousand pods that push as they may were refused 2,500 times a second, most of a core."""
    loop = asyncio.get_running_loop()
    budgets = Budgets(clock=loop.time)
    ends, pushed = loop.time() + 60.0, 0

    async def push(pod: int) -> None:
        nonlocal pushed
        buckets = budgets.find("team-a", str(pod % 60), str(pod))
        while loop.time() < ends:
            with contextlib.suppress(TooManyRequests):
                await budgets.enter(buckets, 65_536)
                charge(buckets, 0.75)
            pushed += 1
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(push, range(1000)))
    assert pushed * 65_536 * MS_PER_BYTE / 60.0 < 1.5 * NAMESPACE.ms_per_s


@in_virtual_time
async def test_a_refusal_of_small_pushes_does_not_wait() -> None:
    loop = asyncio.get_running_loop()
    budgets, began = Budgets(clock=loop.time), loop.time()
    for _ in range(1000):
        with pytest.raises(TooManyRequests, match="too often"):
            await budgets.enter(budgets.find("team-a", "bert", "1"), 500, refusal="too often")
    assert loop.time() == began


async def test_in_one_turn_of_the_loop_little_is_parsed_and_namespaces_take_turns() -> None:
    turns, order, number = PushTurns(), list[tuple[str, int]](), 0

    async def push(namespace: str) -> None:
        await turns.wait(namespace)
        order.append((namespace, number))
        turns.spend(1.5)

    async def count() -> None:
        nonlocal number
        while True:
            await asyncio.sleep(0)
            number += 1

    counting = asyncio.create_task(count())
    async with asyncio.TaskGroup() as group:
        for namespace in [*"aaaaaaaa", "b", "c"]:
            group.create_task(push(namespace))
    counting.cancel()
    assert [namespace for namespace, _ in order][:4] == ["a", "a", "b", "c"]
    assert len({turn for _, turn in order}) == len(order)


async def test_a_push_that_is_given_up_keeps_no_other_waiting() -> None:
    turns = PushTurns()
    turns.spend(1.5)
    gone = asyncio.create_task(turns.wait("a"))
    waiting = asyncio.create_task(turns.wait("a"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(waiting, 1.0)
