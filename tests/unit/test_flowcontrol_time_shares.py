"""Shares of the event loop's time: who uses more than its share waits, and nobody else does."""

from __future__ import annotations

import asyncio

import pytest

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.time_shares import MAX_CLIENTS, TimeShares

from .virtual_time import in_virtual_time


def queues(shares: TimeShares, **bounds: int) -> ClientQueues:
    most = {"max_running": 100, "max_running_per_client": 100, "max_waiting": 100}
    return ClientQueues(
        crowded="too much", shares=shares, wait_s=10, **(most | {"max_waiting_per_client": 50} | bounds)
    )


@in_virtual_time
async def test_what_a_client_uses_beyond_its_share_is_made_up_for() -> None:
    shares, clock = TimeShares(share=0.25, burst_s=0.5, max_wait_s=4), asyncio.get_running_loop().time
    await asyncio.sleep(100)
    shares.charge("busy", 0.4)
    assert shares.due("busy") <= clock()  # after a rest
    shares.charge("busy", 0.6)
    assert shares.due("busy") - clock() == pytest.approx(2.0)
    shares.charge("busy", 60)
    assert shares.due("busy") - clock() == pytest.approx(4.0)
    assert shares.due("other") < clock()
    await asyncio.sleep(6.1)
    shares.charge("busy", 0.5)
    assert shares.due("busy") <= clock()


@in_virtual_time
async def test_requests_over_a_share_are_served_by_it_and_others_at_once() -> None:
    shares, clock = TimeShares(share=0.5, max_wait_s=4), asyncio.get_running_loop().time
    waiting, at = queues(shares, max_running_per_client=1), list[float]()

    async def ask(client: str, costs_s: float) -> None:
        async with waiting.slot(client):
            at.append(clock())
            await asyncio.sleep(0)
            shares.charge(client, costs_s)

    await asyncio.gather(*[ask("busy", 0.1) for _ in range(5)])
    assert at == pytest.approx([0, 0.2, 0.4, 0.6, 0.8], abs=0.01)
    flood = [asyncio.create_task(ask("busy", 0.1)) for _ in range(5)]
    await asyncio.sleep(0)
    began = clock()
    await ask("other", 1.0)
    assert clock() == began
    await asyncio.gather(*flood)


@in_virtual_time
async def test_who_waits_too_long_for_its_share_or_with_too_many_is_refused_with_the_reason() -> None:
    shares = TimeShares(share=0.01, max_wait_s=60)
    shares.charge("busy", 0.5)
    waiting = queues(shares, max_waiting_per_client=3)

    async def ask() -> None:
        async with waiting.slot("busy"):
            pass

    outcomes = await asyncio.gather(*[ask() for _ in range(5)], return_exceptions=True)
    assert [type(each) for each in outcomes] == [TooManyRequests] * 5
    assert asyncio.get_running_loop().time() == pytest.approx(10)
    await asyncio.sleep(50)
    await ask()
    assert not len(waiting)


@in_virtual_time
async def test_clients_that_have_rested_are_forgotten() -> None:
    """Clients choose their names."""
    shares = TimeShares(share=0.5, max_wait_s=4)
    for number in range(2 * MAX_CLIENTS):
        shares.charge(number, 0.001)
        await asyncio.sleep(0.001)
    assert len(shares._due) <= MAX_CLIENTS
