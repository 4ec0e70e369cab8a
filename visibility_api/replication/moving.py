"""Following the log while the replicas change from one without `--store` to one in NATS, or back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog

from .addresses import Address
from .follower import Follower, FollowLimits
from .nats_client import Refused, Unavailable
from .nats_follower import NOT_READ, NatsFollower
from .nats_log import LOST_S

log = structlog.get_logger("visibility.store")

PEER_LIMITS = replace(FollowLimits(), behind_s=math.inf)  # the follower in NATS says what is old
# Although another replica holds the Lease: its log is elsewhere. An owner that cannot write is none by then.
NOBODY_WRITES_S = LOST_S + 2.0
LOOK_S = 0.1
WHOLE_S = 1.0  # between two looks whether the owner's log is whole in NATS


class MovingFollower:
    """As `Follower` has it. The log in NATS is followed; while its owner writes nothing there, or not all of
    it yet, what the owner streams to `peers`.

    `is_owned`: whether another replica holds the Lease.
    """

    def __init__(self, nats: NatsFollower, peers: Follower, *, is_owned: Callable[[], bool]) -> None:
        self._nats, self._peers, self._is_owned = nats, peers, is_owned
        self._now: NatsFollower | Follower = nats
        self.must_list = False

    @property
    def owner(self) -> Address | None:
        return self._now.owner

    @property
    def has_searched(self) -> bool:
        return self._nats.has_searched

    @property
    def others_have_log(self) -> bool:
        return self._peers.others_have_log

    @property
    def lost_at(self) -> float | None:
        return self._now.lost_at

    @property
    def fault(self) -> str | None:
        return self._nats.fault if self._now is self._nats else NOT_READ  # it must be read before it is owned

    async def run(self) -> None:
        """Never raises for what another replica or NATS does."""
        self._now = self._nats
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._nats.run(), name="follower of the log in NATS")
            while True:
                await self._until_nobody_writes()
                self._peers.must_list |= self.must_list
                streaming = group.create_task(self._peers.run(), name="follower of a stream")
                if is_streamed := await self._is_streamed():
                    self._now, self.must_list = self._peers, False
                    log.info("following the owner's stream: its log is not in NATS, or not whole there")
                    following.cancel()
                    await self._until_in_nats()
                    self._nats.forget()
                    self._now = self._nats
                streaming.cancel()
                if is_streamed:
                    following = group.create_task(self._nats.run(), name="follower of the log in NATS")

    async def _until_nobody_writes(self) -> None:
        since = None
        while since is None or time.monotonic() - since < NOBODY_WRITES_S:
            await asyncio.sleep(LOOK_S)
            since = (since or time.monotonic()) if self._nobody_writes() else None

    def _nobody_writes(self) -> bool:
        return self._nats.owner is None and self._nats.fault is None and self._is_owned()

    async def _is_streamed(self) -> bool:
        """Whether a replica streams its log; False as soon as somebody writes to NATS."""
        while self._nobody_writes() and self._peers.owner is None:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(LOOK_S)
        return self._peers.owner is not None

    async def _until_in_nats(self) -> None:
        """Until it streams no more, or its log is whole in NATS."""
        looked_at = time.monotonic()
        while self._peers.owner is not None:
            await asyncio.sleep(LOOK_S)
            if time.monotonic() - looked_at > WHOLE_S:
                with suppress(Unavailable, Refused):
                    if await self._nats.is_whole():
                        return
                looked_at = time.monotonic()
