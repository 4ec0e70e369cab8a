"""Per-client queues: who sends too much delays only itself."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest
from hypothesis import given, strategies as st

from tests.reviews import until
from visibility_api.auth.review_admission import unknown_queues
from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.token_bucket import Bucket

from .virtual_time import in_virtual_time


class Requests:
    """Requests that hold their slot until `finish`; `running` and `refused` have their names."""

    def __init__(self, **bounds: int) -> None:
        self.queues = unknown_queues(**bounds)
        self.running: list[str] = []
        self.refused: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, client: Hashable) -> None:
        self.may_end[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._stay(name, client))
        await asyncio.sleep(0)

    async def finish(self, name: str) -> None:
        self.may_end[name].set()
        await asyncio.wait([self.tasks[name]])
        await asyncio.sleep(0)

    async def _stay(self, name: str, client: Hashable) -> None:
        try:
            async with self.queues.slot(client):
                self.running.append(name)
                try:
                    await self.may_end[name].wait()
                finally:
                    self.running.remove(name)
        except TooManyRequests:
            self.refused.append(name)

    async def cancel(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_queues_are_served_in_turns_whatever_their_length() -> None:
    requests = Requests(max_running=1, max_running_per_client=1)
    await requests.start("first", "flood")
    for number in range(20):
        await requests.start(f"flood-{number}", "flood")
    await requests.start("quiet", "other")
    await requests.finish("first")
    assert requests.running == ["flood-0"]
    await requests.finish("flood-0")
    assert requests.running == ["quiet"]
    await requests.cancel()


async def test_one_client_leaves_slots_for_others_however_slow_its_requests() -> None:
    requests = Requests(max_running=4, max_running_per_client=3)
    for number in range(10):
        await requests.start(f"flood-{number}", "flood")
    assert len(requests.running) == 3
    await requests.start("quiet", "other")
    assert "quiet" in requests.running
    await requests.cancel()


async def test_a_queue_that_is_full_refuses_its_own_client() -> None:
    requests = Requests(max_running=1, max_waiting_per_client=2)
    for number in range(4):
        await requests.start(f"flood-{number}", "flood")
    assert requests.refused == ["flood-3"]
    await requests.start("quiet", "other")
    assert requests.refused == ["flood-3"]
    await requests.cancel()


async def test_when_all_is_full_the_longest_queue_loses_its_last() -> None:
    requests = Requests(max_running=1, max_waiting=3)
    for number in range(4):
        await requests.start(f"flood-{number}", "flood")
    await requests.start("quiet", "other")
    await until(lambda: requests.refused == ["flood-3"])
    await requests.start("one more", "flood")
    assert requests.refused == ["flood-3", "one more"]
    await requests.finish("flood-0")
    await requests.finish("flood-1")
    assert requests.running == ["quiet"]
    await requests.cancel()


async def test_a_turn_given_to_somebody_who_leaves_in_that_moment_is_not_lost() -> None:
    requests = Requests(max_running=1)
    for name in ("first", "second", "third"):
        await requests.start(name, "client")
    requests.may_end["first"].set()
    await asyncio.sleep(0)  # "first" leaves and calls "second", which has not run yet
    requests.tasks["second"].cancel()
    await until(lambda: requests.running == ["third"])
    await requests.cancel()


async def test_a_queue_whose_last_request_ends_in_the_moment_of_its_turn_is_gone() -> None:
    requests = Requests(max_running=1)
    await requests.start("first", "client")
    await requests.start("second", "other")
    requests.may_end["first"].set()
    await asyncio.sleep(0)  # "first" leaves and calls "second", which has not run yet
    await requests.cancel()
    assert len(requests.queues) == 0


@in_virtual_time
async def test_turns_come_at_a_pace_however_short_they_are() -> None:
    loop = asyncio.get_running_loop()
    queues = unknown_queues(starts_per_s=10, start_burst=5)
    began, given_s = loop.time(), []

    async def come(client: int) -> None:
        async with queues.slot(client):
            given_s.append(loop.time() - began)

    await asyncio.gather(*(come(number % 3) for number in range(25)))
    assert given_s[:5] == pytest.approx([0.0] * 5, abs=0.05)
    assert given_s[5:] == pytest.approx([0.1 * number for number in range(1, 21)], abs=0.05)


@in_virtual_time
async def test_whoever_comes_while_others_wait_for_their_turn_comes_after_them() -> None:
    queues = unknown_queues(starts_per_s=10, start_burst=1)
    order: list[str] = []

    async def come(name: str, client: str) -> None:
        async with queues.slot(client):
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(come(name, "flood"))
        await asyncio.sleep(0.099)
        group.create_task(come("other", "other"))
        await asyncio.sleep(0.05)
        group.create_task(come("late", "late"))
    assert order == ["first", "second", "other", "third", "late"]
    assert len(queues) == 0


@given(st.lists(st.tuples(st.sampled_from(["come", "go", "leave"]), st.integers(0, 3)), max_size=40))
def test_no_turn_is_ever_lost_or_given_twice(moves: list[tuple[str, int]]) -> None:
    async def play() -> None:
        requests = Requests(max_running=3, max_running_per_client=2, max_waiting=6, max_waiting_per_client=4)
        for number, (move, choice) in enumerate(moves):
            if move == "come":
                await requests.start(f"{choice}-{number}", choice)
            elif move == "go" and requests.running:
                await requests.finish(requests.running[choice % len(requests.running)])
            elif requests.tasks:
                list(requests.tasks.values())[choice % len(requests.tasks)].cancel()
            assert len(requests.running) <= 3
            queues = [name[0] for name in requests.running]
            assert all(queues.count(client) <= 2 for client in queues)
        while requests.running:
            await requests.finish(requests.running[0])
            for _ in range(3):
                await asyncio.sleep(0)
        assert all(task.done() for task in requests.tasks.values())
        await requests.cancel()
        assert len(requests.queues) == 0

    asyncio.run(play())


def test_a_bucket_gives_a_burst_then_its_rate() -> None:
    bucket = Bucket(per_s=5, burst=10, now=100.0)
    assert [bucket.take(100.0) for _ in range(11)] == [True] * 10 + [False]
    assert not bucket.take(100.1)
    assert bucket.take(100.2)
    assert [bucket.take(1e6) for _ in range(11)] == [True] * 10 + [False]


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 10), max_size=20))
def test_a_bucket_tells_how_long_to_wait(rate: float, pauses_s: list[float]) -> None:
    bucket, now = Bucket(per_s=rate, burst=3, now=0.0), 0.0
    for pause_s in pauses_s:
        now += pause_s
        wait_s = bucket.wait_s(now)
        assert bucket.take(now) == (wait_s == 0.0) or wait_s < 1e-6
    while bucket.take(now):
        pass
    wait_s = bucket.wait_s(now)
    assert 0 < wait_s <= 1 / rate
    assert not bucket.take(now + wait_s / 2)
    assert bucket.take(now + wait_s + 1e-6)


@pytest.mark.parametrize("rate", [1.0, 5.0])
def test_a_bucket_that_is_asked_too_often_still_gives_its_rate(rate: float) -> None:
    bucket = Bucket(per_s=rate, burst=1, now=0.0)
    assert sum(bucket.take(step / 1000) for step in range(10_000)) == pytest.approx(10 * rate, abs=2)
