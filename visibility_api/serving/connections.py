"""All connections of one server: how many there are, what they hold, and which give way to others.

Whoever reaches the port can open connections and send headers, and whoever has a token may keep thousands of
them open. Only these limits bound what that takes.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from visibility_api.auth.certificates import Peer

from .by_address import ByAddress

# How long a connection without a request stays open. kube-apiserver's aggregator keeps idle ones for 90 s
# (IdleConnTimeout of Go's http.DefaultTransport). Longer here, or it would send a request on a connection
# that this server closes at that moment.
KEEP_ALIVE_S = 120
CONNECTION_BYTES = 48 * 1024  # measured with TLS, after one small request: 30 to 54 KiB
# Connections that are read from in one turn of the event loop: a thousand may send at the same moment. Of one
# client, or of all that are not known, which cost up to half a millisecond each; and of those that are known.
READ_AT_ONCE, KNOWN_READ_AT_ONCE = 4, 16
KEPT_SHARE = 15 / 16  # after closing idle ones: looking through all of them takes milliseconds
# In one turn of the event loop: to look at all of 2,000 takes 3 ms, to close a hundred 8 ms.
LOOKED_AT_ONCE, CLOSED_AT_ONCE = 128, 2
PASSED_SHARE = 1 / 16  # of all strangers, until those who are known are looked for among them: 50 us
CROWD = 256  # connections, whose memory is worth giving back when most of them have gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on the server's connections."""

    # Open at one time. With what each may keep they fit the Deployment's memory limit, beside all else that
    # is bounded (test_serving_limits.py).
    connections: int = 2_304
    # Of these the last ones are answered 429, and idle ones are closed before they are reached.
    reserve: int = 128
    # Handshakes that are not complete, and connections without a certificate whose caller is not known: up to
    # 130 kB each. A kubelet's probe lasts milliseconds; pods that push and users with a token are known after
    # their first request.
    strangers: int = 1_024
    # What all connections keep, before idle ones are closed: beside 3,000 jobs and their cached lists, which
    # take up to 290 MiB, below 512 MiB in all.
    kept_bytes: int = 192 * 1024 * 1024
    # Heads of requests that are being read or answered, beyond what each may have anyway, of all clients that
    # are known but the front proxy. Its connections are shared by users with hundreds of groups.
    head_bytes: int = 32 * 1024 * 1024
    # From the connection, or the first byte of a request, to the end of its headers, as in kube-apiserver:
    # github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/server/secure_serving.go
    head_timeout_s: float = 32.0


class Stranger(Protocol):
    """A connection whose client may not be known yet."""

    site: str  # what tells clients apart: `auth.review_admission.site_of` its address
    peer: Peer

    def drop(self) -> None:
        """Close at once."""
        ...


class Connection(Stranger, Protocol):
    """A connection that is open."""

    head_deadline: float  # loop time; inf: no head is awaited
    answered_at: float  # loop time of the last response; inf: there was none
    was_asked: bool  # for a certificate

    @property
    def kept_bytes(self) -> int:
        """Of memory, as long as it is open."""
        ...

    @property
    def idle_since(self) -> float | None:
        """Loop time; None while a request is awaited for the first time, read or answered."""
        ...

    def shutdown(self) -> None:
        """Close after the response in progress."""
        ...

    def read_on(self) -> None:
        """Read some of what waits to be read."""
        ...


class Connections:
    """Those of one server. Each is told of by `enter` and `leave`."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[Connection, None] = {}
        self._strangers: ByAddress[Stranger] = ByAddress()
        self._entered = 0  # strangers, since those who are known meanwhile were looked for
        self._heads: dict[Connection, int] = {}  # bytes
        self._to_read: ByAddress[Connection] = ByAddress()
        self._is_reading = False  # in the next turn of the loop
        self._left = 0  # how many more may be read from in this turn
        self._turn_at, self._read = 0.0, Counter[str]()  # loop time, and how many of whom were read from then
        self._peak = 0  # connections, since memory was given back
        self.head_bytes = 0  # of all heads

    def __len__(self) -> int:
        return len(self._open)

    @property
    def strangers(self) -> int:
        """How many; some of them may be known meanwhile."""
        return len(self._strangers)

    def enter(self, connection: Connection) -> None:
        self._open[connection] = None
        self._peak = max(self._peak, len(self._open))
        if not connection.peer.chain:
            self.enter_stranger(connection)

    def leave(self, connection: Connection) -> None:
        """It was closed."""
        self._open.pop(connection, None)
        self._strangers.discard(connection)
        self._to_read.discard(connection)
        self.release_head(connection)

    def enter_stranger(self, stranger: Stranger) -> None:
        """When there are too many, the oldest of the address that has most is dropped."""
        self._strangers.add(stranger)
        self._entered += 1
        most = self.limits.strangers
        if len(self._strangers) > most and self._entered > most * PASSED_SHARE:
            self._entered = 0
            for each in [each for each in self._strangers if each.peer.is_known]:
                self._strangers.discard(each)
        if len(self._strangers) > most:
            oldest = self._strangers.oldest_of_most()
            self._strangers.discard(oldest)
            if not oldest.peer.is_known:
                oldest.drop()

    def leave_stranger(self, stranger: Stranger) -> None:
        self._strangers.discard(stranger)

    def hold_head(self, connection: Connection, size: int) -> bool:
        """Whether a head may hold so many bytes, until `release_head`."""
        total = self.head_bytes - self._heads.get(connection, 0) + size
        if total > self.limits.head_bytes:
            return False
        self.head_bytes = total
        self._heads[connection] = size
        return True

    def release_head(self, connection: Connection) -> None:
        """The request was answered; may be called again."""
        self.head_bytes -= self._heads.pop(connection, 0)

    def read_in_turn(self, connection: Connection) -> None:
        """Call `read_on` in one of the next turns of the loop, unless it is closed before. Clients take
        turns: namespaces and users that are known, else addresses."""
        self._to_read.add(connection, connection.peer.client)
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_some)

    def may_read(self, now: float, client: str) -> bool:
        """Whether one more of a known client is read from at once. `now`: loop time, which stands still in
        a turn of uvloop's."""
        if now != self._turn_at:
            self._turn_at, self._left = now, KNOWN_READ_AT_ONCE
            self._read.clear()
        self._left -= 1
        self._read[client] += 1
        return self._left >= 0 and self._read[client] <= READ_AT_ONCE and not self._is_reading

    def _read_some(self) -> None:
        left, read = KNOWN_READ_AT_ONCE, Counter[str]()
        while left > 0 and len(self._to_read):
            whose = self._to_read.next_site
            if read[whose] == READ_AT_ONCE:
                break  # it is its turn again: the others were read from as often
            read[whose] += 1
            connection = self._to_read.take()
            left -= 1 if connection.peer.client else KNOWN_READ_AT_ONCE // READ_AT_ONCE
            connection.read_on()
        self._is_reading = len(self._to_read) > 0
        if self._is_reading:
            asyncio.get_running_loop().call_soon(self._read_some)

    async def sweep(self, now: float, *, has_client_ca: bool) -> None:
        """To be called several times a second: close what gives way. `has_client_ca`: certificates are
        requested now, so that connections from before are of no use. Other tasks run meanwhile."""
        kept_bytes = 0
        async for some in _slices(tuple(self._open), LOOKED_AT_ONCE):
            for each in some:
                if each.head_deadline <= now:
                    each.drop()
                elif (has_client_ca and not each.was_asked) or (
                    each.answered_at <= now - KEEP_ALIVE_S and each.idle_since is not None
                ):
                    each.shutdown()
                kept_bytes += each.kept_bytes
        most = self.limits.connections - 2 * self.limits.reserve
        if len(self._open) > most or kept_bytes > self.limits.kept_bytes:
            await self._close_idle(int(KEPT_SHARE * most), kept_bytes)
        if self._peak >= CROWD and len(self._open) <= self._peak // 8:
            self._peak = len(self._open)
            trim_memory()

    async def _close_idle(self, most: int, kept_bytes: int) -> None:
        """Until few enough are left: of the address whose connections keep most, the one that has been idle
        for longest. Never the front proxy's: its users share them. For memory alone, none of an address that
        keeps less than the average: what others keep is not idle then, and its own would not help."""
        count = len(self._open)
        kept_by_site: Counter[str] = Counter()
        found = list[tuple[float, Connection]]()
        async for some in _slices(tuple(self._open), LOOKED_AT_ONCE):
            for each in some:
                if not each.peer.is_front_proxy:
                    kept_by_site[each.site] += each.kept_bytes
                    if (since := each.idle_since) is not None:
                        found.append((since, each))
        idle: defaultdict[str, deque[Connection]] = defaultdict(deque)
        for _, each in sorted(found, key=lambda pair: pair[0]):
            idle[each.site].append(each)
        total = kept_by_site.total()
        closed = 0
        while idle:
            site = max(idle, key=kept_by_site.__getitem__)
            is_large = kept_by_site[site] * len(kept_by_site) >= total
            if count <= most and not (is_large and kept_bytes > KEPT_SHARE * self.limits.kept_bytes):
                break
            connection = idle[site].popleft()
            if not idle[site]:
                del idle[site]
            if connection not in self._open or connection.idle_since is None:
                continue  # it has gone meanwhile, or sends a request
            kept_by_site[site] -= connection.kept_bytes
            kept_bytes -= connection.kept_bytes
            total -= connection.kept_bytes
            count -= 1
            connection.drop()
            closed += 1
            if closed % CLOSED_AT_ONCE == 0:
                await asyncio.sleep(0)


async def _slices(items: Sequence[Connection], size: int) -> AsyncIterator[Sequence[Connection]]:
    """Other tasks run between them."""
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + size]


def trim_memory() -> None:
    """Return to the operating system what the C library keeps of freed memory; takes some milliseconds.

    OpenSSL frees what a connection took in many small pieces, and glibc returns only what is at the end of
    its heap. Does nothing with another C library.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
