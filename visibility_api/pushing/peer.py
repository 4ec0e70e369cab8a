"""One other replica: the pushes that wait to be relayed to it, and how they are sent.

It is sent nothing unless it presents the very certificate that this server serves with, and has its key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import aiohttp
import msgspec
import structlog
from yarl import URL

from visibility_api.faults import describe_fault
from visibility_api.peers.addresses import Address
from visibility_api.peers.recognition import PROOF

from .admission import Grant
from .relayed import MAX_BATCH_BYTES, PATH, RelayedPush, encode_pushes

log = structlog.get_logger("visibility.relay")

# The outcomes of a push to one peer, for a metric.
ACCEPTED = "Accepted"
REFUSED = "Refused"  # it is not sent again
DROPPED = "Dropped"  # too many waited, and it was the oldest; or the peer is gone
UNREACHABLE = "Unreachable"  # no answer in time: it is sent again, unless the pod pushes something newer
NOT_OURS = "OtherCertificate"  # nothing was sent, and nothing will be

ENVELOPE_BYTES = 512  # the most that one push has beside path and body
MAX_ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """For each peer."""

    # Pushes that come within this time go in one request: a request costs as much as ten pushes in it.
    gather_s: float = 0.02
    timeout_s: float = 5.0  # of one request, its connection included
    # Nothing is sent to an unreachable peer for so long, each time twice as long.
    first_pause_s: float = 1.0
    longest_pause_s: float = 10.0
    waiting: int = 10_000  # pods: a newer push replaces the one of the same pod
    waiting_bytes: int = 16 * 1024 * 1024
    batch_bytes: int = MAX_BATCH_BYTES


class Waiting(NamedTuple):
    """A push that is to be relayed."""

    path: str  # of the request
    grant: Grant
    body: bytes

    @property
    def size(self) -> int:
        return len(self.path) + len(self.body) + ENVELOPE_BYTES


class _Answer(msgspec.Struct):
    refused: Annotated[int, msgspec.Meta(ge=0)]


class Peer:
    """Sends pushes to `address` in a task of `group`, over `session`, which sets no timeout of its own.

    `fingerprint` returns that of the certificate to expect: the same object as long as it is the same
    certificate, because aiohttp reuses connections by it. `proof` returns what this replica is recognised by.
    `count` is called with the outcome of each push.
    """

    def __init__(
        self,
        address: Address,
        group: asyncio.TaskGroup,
        session: aiohttp.ClientSession,
        *,
        fingerprint: Callable[[], aiohttp.Fingerprint],
        proof: Callable[[], str],
        count: Callable[[str, int], None],
        limits: PeerLimits,
    ) -> None:
        self._limits = limits
        self._address = address
        self._group = group
        self._session = session
        self._url = URL.build(scheme="https", host=address.host, port=address.port, path=PATH)
        self._fingerprint = fingerprint
        self._proof = proof
        self._count = count
        self._waiting: dict[str, Waiting] = {}  # by the pod's uid, the oldest first
        self._waiting_bytes = 0
        self._work: asyncio.Task[None] | None = None
        self._pause_s = 0.0  # 0: the last exchange succeeded
        self._resumed = asyncio.Event()
        self._is_gone = False

    def put(self, push: Waiting) -> None:
        """Send it when its turn comes, instead of one of the same pod that still waits."""
        self._hold(push)
        self._drop_beyond_limits()
        if self._work is None and self._waiting:
            name = f"relay to {self._address.host}"
            self._work = self._group.create_task(self._send_all(), name=name)

    def resume(self) -> None:
        """Send at once what waits: the replica has just shown that it is there."""
        self._resumed.set()

    def leave(self) -> None:
        """Send nothing more; a request in flight still ends, by its timeout at the latest."""
        self._is_gone = True
        self._drop_all(DROPPED)
        self.resume()

    @property
    def sending(self) -> asyncio.Task[None] | None:
        """Done when nothing waits any more; None when nothing does, or the peer cannot be reached."""
        return None if self._pause_s else self._work

    def _hold(self, push: Waiting) -> None:
        pod = push.grant.membership.pod_uid
        replaced = self._waiting.get(pod)
        self._waiting[pod] = push
        self._waiting_bytes += push.size - (replaced.size if replaced is not None else 0)

    def _drop_beyond_limits(self) -> None:
        limits = self._limits
        while len(self._waiting) > limits.waiting or self._waiting_bytes > limits.waiting_bytes:
            self._take()
            self._count(DROPPED, 1)

    def _drop_all(self, outcome: str) -> None:
        self._count(outcome, len(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def _take(self) -> Waiting:
        push = self._waiting.pop(next(iter(self._waiting)))
        self._waiting_bytes -= push.size
        return push

    def _take_batch(self) -> list[Waiting]:
        """The oldest that fit into one request, one at least."""
        batch = [self._take()]
        size = batch[0].size
        while self._waiting:
            size += next(iter(self._waiting.values())).size
            if size > self._limits.batch_bytes:
                break
            batch.append(self._take())
        return batch

    def _put_back(self, batch: Sequence[Waiting]) -> None:
        """They are older than all that waits, and of no use where their pod has pushed since."""
        newer = self._waiting
        self._waiting, self._waiting_bytes = {}, 0
        for push in (*batch, *newer.values()):
            self._hold(push)
        self._drop_beyond_limits()
        if self._is_gone:
            self._drop_all(DROPPED)

    async def _send_all(self) -> None:
        """Send one batch after the other until none waits."""
        try:
            await asyncio.sleep(self._limits.gather_s)
            while self._waiting:
                batch = self._take_batch()
                await self._send(batch)
                await asyncio.sleep(self._limits.gather_s)
        finally:
            self._work = None

    async def _send(self, batch: Sequence[Waiting]) -> None:
        self._resumed.clear()  # whoever starts while this fails is tried again at once
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                refused = await self._exchange(batch)
        except aiohttp.ServerFingerprintMismatch:
            self._count(NOT_OURS, len(batch))
            self._drop_all(NOT_OURS)
            await self._pause("it presents another certificate", {})
        except Exception as error:  # whatever is wrong with the peer; the text may quote what was sent
            self._count(UNREACHABLE, len(batch))
            self._put_back(batch)
            await self._pause("unreachable", describe_fault(error))
        else:
            if self._pause_s:
                self._pause_s = 0.0
                log.info("peer reachable again", peer=self._address.host)
            self._count(REFUSED, refused)
            self._count(ACCEPTED, len(batch) - refused)

    async def _exchange(self, batch: Sequence[Waiting]) -> int:
        """How many of them the peer has refused.

        aiohttp compares the certificate once the handshake is complete, which proves that the peer has the
        key, and writes the request only afterwards.
        """
        now = time.monotonic()
        pushes = [
            RelayedPush(
                path=push.path,
                credential=push.grant.credential,
                accepted_for_s=max(0.0, push.grant.until - now),
                membership=push.grant.membership,
                body=push.body,
            )
            for push in batch
        ]
        async with self._session.post(
            self._url,
            data=encode_pushes(pushes),
            headers={PROOF.decode(): self._proof()},
            ssl=self._fingerprint(),
            allow_redirects=False,
        ) as response:
            length = response.content_length
            if length is None or length > MAX_ANSWER_BYTES:  # this server always states the length
                raise ConnectionError
            body = await response.read()
            if response.status != 200:
                return len(batch)
            return min(len(batch), msgspec.json.decode(body, type=_Answer).refused)

    async def _pause(self, reason: str, fault: Mapping[str, str]) -> None:
        """Send nothing for a while, longer each time; logged once until the peer answers again."""
        if not self._pause_s:
            log.warning("pushes not relayed to peer", peer=self._address.host, reason=reason, **fault)
        self._pause_s = min(2 * self._pause_s, self._limits.longest_pause_s) or self._limits.first_pause_s
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._resumed.wait()
