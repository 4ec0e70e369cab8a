"""One other replica: the pushes that wait to be relayed to it, and how they are sent.

It is sent nothing unless it presents the very certificate that this server serves with, and has its key.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import aiohttp
import msgspec
import structlog
from yarl import URL

from visibility_api.errors.faults import describe_fault
from visibility_api.peers.addresses import Address
from visibility_api.peers.recognition import PROOF

from .admission import Grant
from .relayed import MAX_BATCH_BYTES, PATH, RelayedPush, encode_pushes

log = structlog.get_logger("visibility.relay")

# The outcomes of a push to one peer, for a metric.
ACCEPTED = "Accepted"
REFUSED = "Refused"  # it is not sent again
DROPPED = "Dropped"  # it waited for too long, or too many did, or the peer is gone
# It is sent again, unless the pod has pushed something newer by then.
UNREACHABLE = "Unreachable"  # no answer in time
NOT_OURS = "OtherCertificate"  # nothing was sent, or the peer did not recognise this replica

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
    # What is older might take the place of something newer (merge.RELAYED_LATE). A replica takes what it has
    # missed from the others every two minutes.
    keep_s: float = 30.0
    waiting: int = 10_000  # pushes
    waiting_bytes: int = 16 * 1024 * 1024
    batch_bytes: int = MAX_BATCH_BYTES


class Waiting(NamedTuple):
    """A push that is to be relayed."""

    path: str  # of the request
    grant: Grant
    attempt: str  # that it was recorded for; Rank0.attempt
    body: bytes
    at: float  # when it was accepted, monotonic

    @property
    def size(self) -> int:
        return len(self.path) + len(self.body) + ENVELOPE_BYTES


class _NotRecognised(Exception):
    """The peer serves another certificate since the connection was made."""


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
        # Those that were sent in vain or had to wait for long: of each pod the newest, by its uid.
        self._late: dict[str, Waiting] = {}
        self._fresh: deque[Waiting] = deque()  # in the order they came; several processes of a pod may push
        self._waiting_bytes = 0
        self._work: asyncio.Task[None] | None = None
        self._pause_s = 0.0  # 0: the last exchange succeeded
        self._resumed = asyncio.Event()
        self._is_gone = False

    def put(self, push: Waiting) -> None:
        """Send it when its turn comes."""
        self._fresh.append(push)
        self._waiting_bytes += push.size
        if self._is_too_much and len(self._fresh) > self._waits // 8:  # else there is little to gain
            self._make_late()
        self._drop_beyond_limits()
        if self._work is None and self._waits:
            name = f"relay to {self._address.host}"
            self._work = self._group.create_task(self._send_all(), name=name)

    def resume(self) -> None:
        """Send at once what waits: the replica has just shown that it is there."""
        self._resumed.set()

    def leave(self) -> None:
        """Send nothing more; a request in flight still ends, by its timeout at the latest."""
        self._is_gone = True
        self._drop_all()
        self.resume()

    @property
    def sending(self) -> asyncio.Task[None] | None:
        """Done when nothing waits any more; None when nothing does, or the peer cannot be reached."""
        return None if self._pause_s else self._work

    @property
    def _waits(self) -> int:
        return len(self._late) + len(self._fresh)

    @property
    def _is_too_much(self) -> bool:
        return self._waits > self._limits.waiting or self._waiting_bytes > self._limits.waiting_bytes

    def _make_late(self, batch: Sequence[Waiting] = ()) -> None:
        """Keep of each pod the newest only. `batch`: what was taken out before."""
        late: dict[str, Waiting] = {}
        for push in (*batch, *self._late.values(), *self._fresh):
            pod = push.grant.membership.pod_uid
            late.pop(pod, None)  # its place is that of the newer one
            late[pod] = push
        self._late, self._waiting_bytes = late, sum(push.size for push in late.values())
        self._fresh.clear()

    def _drop_beyond_limits(self) -> None:
        while self._is_too_much:
            self._take()
            self._count(DROPPED, 1)

    def _drop_all(self) -> None:
        self._count(DROPPED, self._waits)
        self._late.clear()
        self._fresh.clear()
        self._waiting_bytes = 0

    def _next(self) -> Waiting:
        return next(iter(self._late.values())) if self._late else self._fresh[0]

    def _take(self) -> Waiting:
        push = self._late.pop(next(iter(self._late))) if self._late else self._fresh.popleft()
        self._waiting_bytes -= push.size
        return push

    def _take_batch(self) -> list[Waiting]:
        """The oldest that fit into one request."""
        batch: list[Waiting] = []
        size, oldest_at = 0, time.monotonic() - self._limits.keep_s
        while self._waits:
            size += self._next().size
            if batch and size > self._limits.batch_bytes:
                break
            push = self._take()
            if push.at < oldest_at:
                size -= push.size
                self._count(DROPPED, 1)
            else:
                batch.append(push)
        return batch

    async def _send_all(self) -> None:
        """Send one batch after the other until none waits."""
        try:
            await asyncio.sleep(self._limits.gather_s)
            while self._waits:
                if batch := self._take_batch():
                    await self._send(batch)
                await asyncio.sleep(self._limits.gather_s)
        finally:
            self._work = None

    async def _send(self, batch: Sequence[Waiting]) -> None:
        self._resumed.clear()  # whoever starts while this fails is tried again at once
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                refused = await self._exchange(batch)
        except (aiohttp.ServerFingerprintMismatch, _NotRecognised):
            await self._failed(batch, NOT_OURS, "it presents another certificate", {})
        except asyncio.CancelledError:
            self._count(DROPPED, len(batch))
            raise
        except Exception as error:  # whatever is wrong with the peer; the text may quote what was sent
            await self._failed(batch, UNREACHABLE, "unreachable", describe_fault(error))
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
                # Two replicas must not believe each other for ever.
                accepted_for_s=0.0 if push.grant.is_believed else max(0.0, push.grant.until - now),
                membership=push.grant.membership,
                attempt=push.attempt,
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
            if response.status == 401:
                raise _NotRecognised
            if response.status == 429 or response.status >= 500:
                raise ConnectionError
            if response.status != 200:
                return len(batch)
            return min(len(batch), msgspec.json.decode(body, type=_Answer).refused)

    async def _failed(
        self, batch: Sequence[Waiting], outcome: str, reason: str, fault: Mapping[str, str]
    ) -> None:
        """Send nothing for a while, longer each time; logged once until the peer answers again."""
        self._count(outcome, len(batch))
        self._make_late(batch)
        self._drop_beyond_limits()
        if self._is_gone:
            self._drop_all()
        if not self._pause_s:
            log.warning("pushes not relayed to peer", peer=self._address.host, reason=reason, **fault)
        self._pause_s = min(2 * self._pause_s, self._limits.longest_pause_s) or self._limits.first_pause_s
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._resumed.wait()
        self._make_late()  # meanwhile many of one pod may have come
