"""One of several replicas holds the Lease, and another takes over when it has gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.lease import DURATION_S, MARGIN_S, Lease


class FakeApi:
    """One Lease with optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_away = False

    async def get(self, path: str, *, timeout_s: float) -> bytes:
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


def lease(api: FakeApi, clock: Clock, identity: str) -> Lease:
    return Lease(api, namespace="ours", name="the-one", identity=identity, clock=clock)


async def test_the_first_takes_it_and_the_second_waits(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await first.try_once()
    await second.try_once()
    assert (first.is_held, second.is_held) == (True, False)
    assert api.lease is not None
    assert api.lease["spec"]["holderIdentity"] == "a"


async def test_who_renews_it_keeps_it(api: FakeApi, clock: Clock) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    for _ in range(20):
        await first.try_once()
        await second.try_once()
        assert (first.is_held, second.is_held) == (True, False)
        clock.now += DURATION_S / 3


async def test_one_that_cannot_renew_it_stops_before_another_may_take_over(
    api: FakeApi, clock: Clock
) -> None:
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await first.try_once()
    await second.try_once()
    clock.now += DURATION_S - MARGIN_S
    await second.try_once()
    assert (first.is_held, second.is_held) == (False, False)
    clock.now += MARGIN_S + 1
    await second.try_once()
    assert (first.is_held, second.is_held) == (False, True)
    await first.try_once()  # it is back
    assert (first.is_held, second.is_held) == (False, True)


async def test_of_two_that_take_over_at_once_one_succeeds(api: FakeApi, clock: Clock) -> None:
    await lease(api, clock, "gone").try_once()
    first, second = lease(api, clock, "a"), lease(api, clock, "b")
    await first.try_once()
    await second.try_once()
    clock.now += DURATION_S + 1
    held = await api.get("/apis/coordination.k8s.io/v1/namespaces/ours/leases/the-one", timeout_s=1)
    await first.try_once()

    async def stale(path: str, *, timeout_s: float) -> bytes:
        return held

    api.get = stale  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="409"):
        await second.try_once()
    assert (first.is_held, second.is_held) == (True, False)


async def test_while_kube_apiserver_is_away_nobody_begins_to_hold_it(api: FakeApi, clock: Clock) -> None:
    only = lease(api, clock, "a")
    api.is_away = True
    with pytest.raises(Unreachable):
        await only.try_once()
    assert not only.is_held
