"""What waits for one other replica, whatever becomes of the requests to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.relaying import PATH, grant
from visibility_api.peers.addresses import Address
from visibility_api.pushing.peer import Peer, PeerLimits, Waiting

from .virtual_time import in_virtual_time

PODS, PUSHES = 20, 400


class _Exchanges:
    """The requests of a peer: some fail, some hang, and what the others brought."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._is_open = False
        self.taken: dict[str, bytes] = {}  # the last of each pod

    async def __call__(self, batch: Sequence[Waiting]) -> int:
        assert not self._is_open  # one at a time
        self._is_open = True
        try:
            await asyncio.sleep(self._chance.random() * 0.003)
            fate = self._chance.random()
            if fate < 0.3:
                raise ConnectionError
            if fate < 0.33:
                await asyncio.sleep(1)
            for push in batch:
                assert int(push.body.split(b"-")[0]) >= int(self._last(push).split(b"-")[0])
                self.taken[push.grant.membership.pod_uid] = push.body
            return 0
        finally:
            self._is_open = False

    def _last(self, push: Waiting) -> bytes:
        return self.taken.get(push.grant.membership.pod_uid, b"0-")


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_no_pod_goes_back_and_where_nothing_is_dropped_each_newest_push_arrives(seed: int) -> None:
    chance, outcomes = random.Random(seed), Counter[str]()
    limits = PeerLimits(
        gather_s=0.0,
        timeout_s=0.05,
        first_pause_s=0.001,
        longest_pause_s=0.003,
        waiting=chance.choice([3, 1000]),
        waiting_bytes=chance.choice([4000, 10**7]),
        batch_bytes=3000,
    )
    exchanges, last = _Exchanges(chance), dict[str, bytes]()
    unused: Any = None
    async with asyncio.TaskGroup() as group:
        peer = Peer(
            Address("127.0.0.1", 1), group, unused, fingerprint=unused, proof=unused, limits=limits,
            count=lambda outcome, pushes: outcomes.update({outcome: pushes}),
        )  # fmt: skip
        peer._exchange = exchanges  # type: ignore[method-assign]
        for number in range(PUSHES):
            pod, body = f"pod-{chance.randrange(PODS)}", b"%d-%s" % (number, b"x" * chance.randrange(900))
            last[pod] = body
            peer.put(Waiting(PATH, grant(pod), "attempt", body, time.monotonic()))
            if chance.random() < 0.05:
                peer.resume()
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.002)
            assert peer._waiting_bytes == sum(push.size for push in (*peer._late.values(), *peer._fresh))
    assert (peer._waits, peer._waiting_bytes) == (0, 0)
    assert outcomes["Accepted"] > 0
    assert outcomes["Dropped"] or exchanges.taken == last
