"""One of several replicas holds the Lease, and another takes over when it has gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.lease import DURATION_S, MAX_EPOCH, RENEW_WITHIN_S, RETRY_S, Lease, LeaseTimes
from visibility_api.replication.shares import HOLD_S, LEASE_TIMES as SHARED_TIMES

from .virtual_time import in_virtual_time


class FakeApi:
    """One Lease with optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_away = False

    async def get(self, path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/ours/leases/the-one"
        self._check()
        if self.lease is None:
            raise ApiError(404, "NotFound")
        return json.dumps(self.lease).encode()

    async def post(self, path: str, body: bytes) -> bytes:
        self._check()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists")
        self.lease = json.loads(body)
        self.lease["metadata"]["resourceVersion"] = "1"
        return body

    async def patch(self, path: str, body: bytes, *, query: object, headers: Mapping[str, str]) -> bytes:
        self._check()
        assert self.lease is not None
        change = json.loads(body)
        version = self.lease["metadata"]["resourceVersion"]
        if change["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict")
        self.lease["spec"] |= change["spec"]
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)
        return body

    def _check(self) -> None:
        if self.is_away:
            raise Unreachable("no")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


DEFAULT = LeaseTimes()


def lease(
    api: FakeApi,
    clock: Callable[[], float],
    identity: str,
    *,
    at: float = 1.8e9,
    times: LeaseTimes = DEFAULT,
) -> Lease:
    """`at`: seconds since 1970, by the clock of this replica's node."""
    return Lease(
        api,
        namespace="ours",
        name="the-one",
        identity=identity,
        times=times,
        clock=clock,
        wall_clock=lambda: at,
    )


def test_no_share_outlasts_the_lease_that_it_was_given_under() -> None:
    assert SHARED_TIMES.renew_within_s + HOLD_S < SHARED_TIMES.duration_s
    assert SHARED_TIMES.earlier_s > HOLD_S


def yes() -> bool:
    return True


async def take(candidate: Lease, *, after: int = 0, may: bool = True) -> int:
    return await candidate.try_acquire(lambda: may, lambda: after)


async def test_the_first_takes_it_and_the_second_waits(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    assert await take(first) == 1_800_000_000
    assert await take(second) == 0
    assert (first.is_held, second.is_held) == (True, False)
    assert api.lease is not None
    assert api.lease["spec"]["holderIdentity"] == "a"


async def test_who_renews_it_keeps_it(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await take(first)
    for _ in range(20):
        clock.now += RETRY_S
        assert await first.renew()
        assert await take(second) == 0
        assert first.is_held


async def test_one_that_cannot_renew_it_stops_before_another_may_take_over(
    api: FakeApi, clock: Clock
) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await take(first)
    await take(second)
    clock.now += RENEW_WITHIN_S
    assert not first.is_held
    assert await take(second) == 0
    clock.now += DURATION_S - RENEW_WITHIN_S + 1
    assert await take(second)
    assert not await first.renew()  # it is back
    assert (first.is_held, second.is_held) == (False, True)


async def test_a_renewal_that_comes_too_late_holds_nothing(api: FakeApi, clock: Clock) -> None:
    """As after a pause of the whole process: another one may have been told otherwise meanwhile."""
    only = lease(api, clock, "a")
    await take(only)
    clock.now += 60
    await only.renew()
    assert not only.is_held


async def test_one_that_is_released_is_free_at_once(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    before = await take(first)
    await first.release()
    assert not first.is_held
    assert await take(second) > before


@pytest.mark.parametrize("at", [1.8e9, 1.7e9, 0.0, 9e9], ids=["same", "set back", "1970", "beyond"])
async def test_each_holder_has_a_later_epoch_whatever_its_clock_says(
    api: FakeApi, clock: Clock, at: float
) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b", at=at)
    before = await take(first)
    await first.release()
    assert before < await take(second) <= MAX_EPOCH


async def test_an_epoch_is_later_than_what_is_known_though_the_lease_was_deleted(
    api: FakeApi, clock: Clock
) -> None:
    assert await take(lease(api, clock, "a", at=1.7e9), after=1_800_000_000) == 1_800_000_001


async def test_a_process_that_is_started_again_in_its_pod_goes_on_at_once(api: FakeApi, clock: Clock) -> None:
    before = await take(lease(api, clock, "a"))
    again = lease(api, clock, "a")
    assert not again.is_held
    assert await take(again) > before


async def test_one_that_knows_nothing_leaves_its_predecessor_s_to_a_replica_that_knows(
    api: FakeApi, clock: Clock
) -> None:
    await take(lease(api, clock, "a"))
    again, knows = lease(api, clock, "a"), lease(api, clock, "b")
    assert await take(again, may=False) == 0
    assert await take(knows)


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("is_same_process", [True, False])
async def test_what_an_owner_has_shared_out_is_over_before_its_pod_goes_on(
    api: FakeApi, clock: Clock, knows: bool, is_same_process: bool
) -> None:
    """Seen: its members worked on jobs for a while after the next process of the pod had begun with all."""
    former, other = lease(api, clock, "a", times=SHARED_TIMES), lease(api, clock, "b", times=SHARED_TIMES)
    await take(former)
    clock.now += RENEW_WITHIN_S  # it could not renew it
    again = former if is_same_process else lease(api, clock, "a", times=SHARED_TIMES)
    for _ in range(3):
        assert not await take(again, may=knows)
        assert not await take(other)
        clock.now += SHARED_TIMES.earlier_s / 3
    assert bool(await take(again, may=knows)) is knows
    assert bool(await take(other)) is not knows


async def test_a_term_that_begins_anew_does_not_wait_for_what_it_has_taken_back(
    api: FakeApi, clock: Clock
) -> None:
    only = lease(api, clock, "a", times=SHARED_TIMES)
    await take(only)
    clock.now += RETRY_S
    assert await only.renew()
    assert await take(only)


async def test_it_lasts_from_when_it_was_seen_though_it_was_asked_for_before(
    api: FakeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a slow answer showed what was written since, and another one took it over while it was held."""
    holder, other = lease(api, clock, "a", times=SHARED_TIMES), lease(api, clock, "b", times=SHARED_TIMES)
    await take(holder)
    answer = api.get

    async def slow(path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        clock.now += 2
        monkeypatch.undo()
        assert await holder.renew()
        return await answer(path, timeout_s=timeout_s, max_bytes=max_bytes)

    monkeypatch.setattr(api, "get", slow)
    assert not await take(other)
    shared_until = clock.now + SHARED_TIMES.renew_within_s + HOLD_S
    while not await take(other):
        clock.now += 0.1
    assert clock.now > shared_until


@in_virtual_time
@pytest.mark.parametrize("times", [DEFAULT, SHARED_TIMES])
async def test_one_request_that_is_never_answered_costs_nobody_the_lease(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, times: LeaseTimes
) -> None:
    only = lease(api, asyncio.get_running_loop().time, "a", times=times)
    await take(only)

    async def never(_path: str, **_limits: object) -> bytes:
        monkeypatch.undo()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(api, "get", never)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await only.hold()
    assert only.is_held


@in_virtual_time
async def test_it_is_taken_over_at_once_when_it_ends(api: FakeApi) -> None:
    clock = asyncio.get_running_loop().time
    holder, next_ = (
        lease(api, clock, name, times=LeaseTimes(duration_s=1, renew_within_s=0.5)) for name in "ab"
    )
    await take(holder)
    began = clock()
    await next_.acquire(may=yes)
    assert 1.0 <= clock() - began < RETRY_S - 0.5


async def test_what_a_former_process_of_the_pod_holds_is_not_renewed(api: FakeApi, clock: Clock) -> None:
    """It was stopped, another took its place, and now it goes on."""
    former, again = lease(api, clock, "a"), lease(api, clock, "a")
    await take(former)
    await take(again)
    assert not await former.renew()


async def test_of_two_that_take_over_at_once_one_succeeds(api: FakeApi, clock: Clock) -> None:
    await take(lease(api, clock, "gone"))
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await take(first)
    await take(second)
    clock.now += DURATION_S + 1
    held = await api.get(
        "/apis/coordination.k8s.io/v1/namespaces/ours/leases/the-one", timeout_s=1, max_bytes=1
    )
    assert await take(first)

    async def stale(path: str, *, timeout_s: float, max_bytes: int) -> bytes:
        return held

    api.get = stale  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="409"):
        await take(second)
    assert (first.is_held, second.is_held) == (True, False)


async def test_while_kube_apiserver_is_away_nobody_begins_to_hold_it(api: FakeApi, clock: Clock) -> None:
    only = lease(api, clock, "a")
    api.is_away = True
    with pytest.raises(Unreachable):
        await take(only)
    assert not only.is_held
    api.is_away = False
    assert await only.acquire(may=yes)


async def test_it_fails_since_its_first_request_that_failed_until_one_succeeds(
    api: FakeApi, clock: Clock
) -> None:
    only = lease(api, clock, "a")
    assert only.failing_s == 0
    api.is_away = True
    for _ in range(3):
        await only._tried(only.try_acquire(yes, lambda: 0))
        clock.now += 2
    assert only.failing_s == 6
    api.is_away = False
    await only._tried(only.try_acquire(yes, lambda: 0))
    assert only.failing_s == 0
