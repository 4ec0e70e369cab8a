"""One other replica: the pushes that wait to be relayed to it, and how they are sent.

It is sent nothing unless it presents the very certificate that this server serves with, and has its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
import structlog
from yarl import URL

from visibility_api.faults import describe_fault
from visibility_api.peers.addresses import Address

log = structlog.get_logger("visibility.relay")

# The outcomes of a push to one peer, for a metric.
ACCEPTED = "Accepted"  # answered 200
REFUSED = "Refused"  # answered anything else; it is not sent again
DROPPED = "Dropped"  # too many waited, and it was the oldest
UNREACHABLE = "Unreachable"  # or no answer in time, or not sent because the last attempt failed a moment ago
NOT_OURS = "OtherCertificate"  # nothing was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """For each peer."""

    in_flight: int = 4  # requests, and so connections
    timeout_s: float = 5.0  # of one request, its connection included
    # Nothing is sent to an unreachable peer for so long, each time twice as long.
    first_pause_s: float = 1.0
    longest_pause_s: float = 10.0
    waiting: int = 10_000  # pods: a newer push replaces the one of the same pod
    waiting_bytes: int = 16 * 1024 * 1024
    response_bytes: int = 256 * 1024


class Sender(NamedTuple):
    """What a push is for and by whom; of two with the same, the newer replaces the older."""

    path: str  # of the request
    token: str  # of the pod


class Peer:
    """Sends pushes to `address` in tasks of `group`, over `session`, which sets no timeout of its own.

    `fingerprint` returns that of the certificate to expect: the same object as long as it is the same
    certificate, because aiohttp reuses connections by it. `count` is called with the outcome of each push.
    """

    def __init__(
        self,
        address: Address,
        group: asyncio.TaskGroup,
        session: aiohttp.ClientSession,
        *,
        fingerprint: Callable[[], aiohttp.Fingerprint],
        count: Callable[[str], None],
        limits: PeerLimits,
    ) -> None:
        self._limits = limits
        self._address = address
        self._group = group
        self._session = session
        self._url = URL.build(scheme="https", host=address.host, port=address.port)
        self._fingerprint = fingerprint
        self._count = count
        self._clock = asyncio.get_running_loop().time
        self._waiting: dict[Sender, bytes] = {}  # bodies, the oldest first
        self._waiting_bytes = 0
        self._workers = 0
        self._pause_s = 0.0  # 0: the last exchange succeeded
        self._paused_until = 0.0

    def put(self, sender: Sender, body: bytes) -> None:
        """Send it when its turn comes, instead of one of the same sender that still waits."""
        if self._paused_until > self._clock():
            self._count(UNREACHABLE)
            return
        replaced = self._waiting.get(sender)
        self._waiting[sender] = body
        self._waiting_bytes += _size(sender, body) if replaced is None else len(body) - len(replaced)
        limits = self._limits
        while len(self._waiting) > limits.waiting or self._waiting_bytes > limits.waiting_bytes:
            self._take()
            self._count(DROPPED)
        if self._workers < limits.in_flight and self._waiting:
            self._workers += 1
            self._group.create_task(self._work(), name=f"relay to {self._address.host}")

    def resume(self) -> None:
        """Send at once what comes: the replica has just shown that it is there."""
        self._paused_until = 0.0

    def clear(self) -> None:
        """Drop what waits; requests in flight still end, by their timeout at the latest."""
        for _ in range(len(self._waiting)):
            self._count(UNREACHABLE)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _take(self) -> tuple[Sender, bytes]:
        sender = next(iter(self._waiting))
        body = self._waiting.pop(sender)
        self._waiting_bytes -= _size(sender, body)
        return sender, body

    async def _work(self) -> None:
        """Send one push after the other until none waits."""
        try:
            while self._waiting:
                self._count(await self._send(*self._take()))
        finally:
            self._workers -= 1

    async def _send(self, sender: Sender, body: bytes) -> str:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                status = await self._exchange(sender, body)
        except aiohttp.ServerFingerprintMismatch:
            self._pause("it presents another certificate", {})
            return NOT_OURS
        except Exception as error:  # whatever is wrong with the peer; the text may quote what was sent
            self._pause("unreachable", describe_fault(error))
            return UNREACHABLE
        if self._pause_s:
            self._pause_s = self._paused_until = 0.0
            log.info("peer reachable again", peer=self._address.host)
        return ACCEPTED if status == 200 else REFUSED

    async def _exchange(self, sender: Sender, body: bytes) -> int:
        """The status of the response.

        aiohttp compares the certificate once the handshake is complete, which proves that the peer has the
        key, and writes the request only afterwards.
        """
        async with self._session.post(
            self._url.with_path(sender.path, encoded=True),
            data=body,
            headers={"Authorization": f"Bearer {sender.token}"},
            ssl=self._fingerprint(),
            allow_redirects=False,
        ) as response:
            length = response.content_length
            if length is None or length > self._limits.response_bytes:  # this server always states the length
                raise ConnectionError
            await response.read()
            return response.status

    def _pause(self, reason: str, fault: Mapping[str, str]) -> None:
        """Send nothing for a while, longer each time; logged once until the peer answers again."""
        self.clear()
        now = self._clock()
        if now < self._paused_until:
            return  # another request in flight failed first
        if not self._pause_s:
            log.warning("pushes not relayed to peer", peer=self._address.host, reason=reason, **fault)
        self._pause_s = min(2 * self._pause_s, self._limits.longest_pause_s) or self._limits.first_pause_s
        self._paused_until = now + self._pause_s


def _size(sender: Sender, body: bytes) -> int:
    return len(sender.path) + len(sender.token) + len(body)
