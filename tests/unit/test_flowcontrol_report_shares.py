"""Who pushes what is costly delays nobody else: budgets of time, and turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import uvloop

from tests.unit.virtual_time import in_virtual_time
from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.report_shares import (
    BUDGETS,
    JOB,
    MS_PER_BYTE,
    NAMESPACE,
    POD,
    PUSH_MS,
    PUSHES,
    SHARE_MS_PER_S,
    UNIT_MS,
    Budget,
    Budgets,
    LoopTurns,
)


def ms(budget: Budget) -> float:
    """How much may be used up at once."""
    return budget.burst * UNIT_MS


@in_virtual_time
async def test_a_pod_a_job_and_a_namespace_have_budgets_of_their_own() -> None:
    budgets = Budgets(clock=asyncio.get_running_loop().time)

    async def push(namespace: str, job: str, pod: str, costs_ms: float = 0.0) -> None:
        shares = budgets.find(namespace, job, pod)
        await budgets.enter(shares, 2)
        shares.charge(costs_ms)

    await push("team-a", "bert", "1", ms(POD))
    with pytest.raises(TooManyRequests, match="this pod's 20 ms"):
        await push("team-a", "bert", "1")
    await push("team-a", "bert", "2", ms(JOB))
    with pytest.raises(TooManyRequests, match="this job's 180 ms"):
        await push("team-a", "bert", "3")
    await push("team-a", "gpt", "4", ms(NAMESPACE))
    with pytest.raises(TooManyRequests, match="this namespace's 240 ms"):
        await push("team-a", "t5", "5")
    await push("team-b", "bert-b", "6")
    await asyncio.sleep(10.0)
    await push("team-a", "bert", "3")


@in_virtual_time
async def test_what_one_pod_is_refused_is_not_charged_to_its_job() -> None:
    budgets = Budgets(clock=asyncio.get_running_loop().time)
    mine, others = budgets.find("team-a", "bert", "1"), budgets.find("team-a", "bert", "2")
    mine.budgets[BUDGETS.index(POD)].charge(POD.burst)

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
        shares = budgets.find("team-a", str(pod % 60), str(pod))
        while loop.time() < ends:
            with contextlib.suppress(TooManyRequests):
                await budgets.enter(shares, 65_536)
                shares.charge(0.75)
            pushed += 1
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(push, range(1000)))
    assert pushed * (PUSH_MS + 65_536 * MS_PER_BYTE) / 60.0 < 1.5 * NAMESPACE.per_s * UNIT_MS


@in_virtual_time
async def test_refusals_of_small_pushes_are_few_too() -> None:
    """A thousand pods that push small reports as often as they may were refused 6,400 times a second."""
    loop = asyncio.get_running_loop()
    budgets = Budgets(clock=loop.time)
    ends, taken, refused = loop.time() + 60.0, 0, 0

    async def push(pod: int) -> None:
        nonlocal taken, refused
        shares = budgets.find("team-a", str(pod % 60), str(pod))
        while loop.time() < ends:
            try:
                await budgets.enter(shares, 200)
                shares.charge(0.05)
                taken += 1
            except TooManyRequests:
                refused += 1
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(push, range(1000)))
    assert refused / 60.0 < 500
    assert 800 < taken / 60.0 < 1300  # at 0.2 ms a quarter of a core; 4,096 processes push every 5 s


@in_virtual_time
async def test_a_refusal_of_small_pushes_does_not_wait() -> None:
    loop = asyncio.get_running_loop()
    budgets, began = Budgets(clock=loop.time), loop.time()
    shares = budgets.find("team-a", "bert", "1")
    for _ in range(int(PUSHES.burst)):
        await budgets.enter(shares, 500)
    for _ in range(1000):
        with pytest.raises(TooManyRequests, match="a pod may push 20 times a second"):
            await budgets.enter(shares, 500)
    assert loop.time() == began


@in_virtual_time
async def test_a_pod_that_goes_on_pushing_over_its_rate_is_answered_by_its_share_of_time() -> None:
    """Else one pod on a hundred connections was refused as often as the loop could."""
    loop = asyncio.get_running_loop()
    budgets, refused, ends = Budgets(clock=loop.time), 0, loop.time() + 60.0
    shares = budgets.find("team-a", "bert", "1")

    async def push() -> None:
        nonlocal refused
        while loop.time() < ends:
            with contextlib.suppress(TooManyRequests):
                await budgets.enter(shares, 500)
            refused += 1
            await asyncio.sleep(0.001)

    await asyncio.gather(*(push() for _ in range(100)))
    assert refused / 60.0 * PUSH_MS < 2 * POD.per_s * UNIT_MS


async def parsed_in_order(turns: LoopTurns, *pushes: tuple[str, float]) -> list[str]:
    """The namespaces of pushes that come at one moment and take so many ms, as they are parsed."""
    parsed = list[str]()

    async def push(namespace: str, ms: float) -> None:
        await turns.wait(namespace, 500)
        parsed.append(namespace)
        turns.spend(namespace, ms)

    async with asyncio.TaskGroup() as group:
        for namespace, ms in pushes:
            group.create_task(push(namespace, ms))
    return parsed


@in_virtual_time
async def test_namespaces_take_turns() -> None:
    turns = LoopTurns(asyncio.get_running_loop().time)
    turns.spend("d", 1.5)  # else the first ones wait for none
    assert await parsed_in_order(turns, *((each, 0.15) for each in "aaaabbc")) == [*"abcabaa"]


@in_virtual_time
async def test_a_push_that_is_given_up_keeps_no_other_waiting() -> None:
    turns = LoopTurns(asyncio.get_running_loop().time)
    turns.spend("a", 1.5)
    gone = asyncio.create_task(turns.wait("a", 0))
    waiting = asyncio.create_task(turns.wait("a", 0))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(waiting, 1.0)


@pytest.mark.parametrize("namespaces", [1, 3, 200])
@pytest.mark.parametrize("ms", [0.3, 8.0])
@in_virtual_time
async def test_all_namespaces_together_have_a_share_of_the_loop_and_use_all_of_it(
    namespaces: int, ms: float
) -> None:
    """Three that used up their bursts had the whole of it."""
    clock = asyncio.get_running_loop().time
    began, pushes = clock(), [(str(number % namespaces), ms) for number in range(800)]
    await parsed_in_order(LoopTurns(clock), *pushes)
    assert 0.95 * SHARE_MS_PER_S < 800 * ms / (clock() - began) < 1.02 * SHARE_MS_PER_S


@in_virtual_time
async def test_a_namespace_that_pushes_little_waits_for_no_more_than_one_report_of_200_others() -> None:
    loop = asyncio.get_running_loop()
    turns, ends = LoopTurns(loop.time), loop.time() + 10.0

    async def push(namespace: str) -> None:
        while loop.time() < ends:
            await turns.wait(namespace, 65_536)
            turns.spend(namespace, 1.2)

    others = [asyncio.create_task(push(str(number % 200))) for number in range(800)]
    waited = list[float]()
    while loop.time() < ends - 1.0:
        await asyncio.sleep(0.25)
        began = loop.time()
        await turns.wait("quiet", 500)
        turns.spend("quiet", 0.15)
        waited.append(loop.time() - began)
    await asyncio.gather(*others)
    assert max(waited) < 0.005


@in_virtual_time
async def test_of_a_namespace_that_needs_more_than_200_others_get_a_push_waits_for_a_turn_or_two() -> None:
    """After logs that took 30 ms to read it waited for seconds: until each of the others had had as much."""
    loop = asyncio.get_running_loop()
    turns, ends = LoopTurns(loop.time), loop.time() + 10.0

    async def push(namespace: str) -> None:
        while loop.time() < ends:
            await turns.wait(namespace, 500)
            turns.spend(namespace, 0.25)

    async def read_logs() -> None:
        while loop.time() < ends:
            await asyncio.sleep(0.5)
            for _ in range(30):
                await turns.wait("mine", 16_384)
                turns.spend("mine", 1.0)

    others = [asyncio.create_task(push(str(number % 200))) for number in range(800)]
    others.append(asyncio.create_task(read_logs()))
    waited = list[float]()
    while loop.time() < ends - 1.0:
        await asyncio.sleep(0.05)
        began = loop.time()
        await turns.wait("mine", 500)
        turns.spend("mine", 0.25)
        waited.append(loop.time() - began)
    await asyncio.gather(*others)
    assert max(waited) < 0.4


def test_the_loop_is_not_kept_at_work_while_reports_wait() -> None:
    """A timer of less than half a millisecond ends at once in uvloop: there were 60,000 a second."""
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return time.monotonic()

    uvloop.run(parsed_in_order(LoopTurns(clock), *[("a", 0.3)] * 200))
    assert asked < 4 * 200
