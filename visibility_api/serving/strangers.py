"""Connections without a certificate whose caller is not known: how many there are, and what their heads hold.

Whoever reaches the port can open connections and send headers; only these limits bound what that takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from visibility_api.auth.certificates import Peer

# At about 130 kB each. A kubelet's probe lasts milliseconds; pods that push and users with a token are known
# after their first request.
MAX_STRANGERS = 1024
# Heads of all strangers, beyond what each may have anyway; as much of all callers that are known. Users with
# hundreds of groups come through the front proxy, whose connections have no such limit once it is known.
MAX_HEAD_BYTES = 32 * 1024 * 1024
FREE_HEAD_BYTES = 24 * 1024
HEADER_BYTES = 200  # that one header takes beside its own bytes
# Connections whose bytes are parsed in one turn of the event loop: a request costs up to half a millisecond,
# and a thousand connections may send theirs at the same moment.
READ_AT_ONCE = 4
NEWEST_EACH = 4  # turns of one address, as in `listener`: a crowd keeps no newcomer waiting


class Stranger(Protocol):
    """A connection."""

    peer: Peer
    site: str  # what tells clients apart: `auth.review_admission.site_of` its address

    def drop(self) -> None:
        """Close at once."""
        ...


class _Crowd:
    """Connections of one address that wait to be read from."""

    __slots__ = ("_until_newest", "reads")

    def __init__(self) -> None:
        self.reads: dict[Stranger, Callable[[], None]] = {}  # the oldest first
        self._until_newest = NEWEST_EACH

    def take(self) -> Callable[[], None]:
        """That of the oldest, and now and then of the newest."""
        self._until_newest -= 1
        connection = next(iter(self.reads) if self._until_newest else reversed(self.reads))
        self._until_newest = self._until_newest or NEWEST_EACH
        return self.reads.pop(connection)


class _Heads:
    """What heads hold beyond the free bytes, and the most that they may."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[Stranger, int] = {}
        self.bytes = 0

    def charge(self, connection: Stranger, size: int) -> bool:
        total = self.bytes - self._sizes.get(connection, 0) + size
        if total > self._most:
            return False
        self.bytes = total
        self._sizes[connection] = size
        return True

    def release(self, connection: Stranger) -> None:
        self.bytes -= self._sizes.pop(connection, 0)


class Strangers:
    """Those of one server."""

    def __init__(
        self,
        *,
        most: int = MAX_STRANGERS,
        most_head_bytes: int = MAX_HEAD_BYTES,
    ) -> None:
        self._most = most
        self._of_site: dict[str, dict[Stranger, None]] = {}  # the oldest first
        self._count = 0
        self._heads, self._heads_of_known = _Heads(most_head_bytes), _Heads(most_head_bytes)
        self._to_read: dict[str, _Crowd] = {}  # by address; the next to be read from first
        self._is_reading = False  # in the next turn of the loop

    def __len__(self) -> int:
        return self._count

    @property
    def head_bytes(self) -> int:
        """What heads hold beyond the free bytes."""
        return self._heads.bytes + self._heads_of_known.bytes

    def enter(self, connection: Stranger) -> None:
        """A new connection. When there are too many, the oldest of the address that has most is dropped."""
        self._of_site.setdefault(connection.site, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            self._forget_known()
        if self._count > self._most:
            crowd = max(self._of_site.values(), key=len)
            oldest = next(iter(crowd))
            self.leave(oldest)
            oldest.drop()

    def leave(self, connection: Stranger) -> None:
        """It was closed; may be called again."""
        self.release(connection)
        self._forget_read(connection)
        of_site = self._of_site.get(connection.site)
        if of_site is None or connection not in of_site:
            return
        del of_site[connection]
        self._count -= 1
        if not of_site:
            del self._of_site[connection.site]

    def charge(self, connection: Stranger, head_bytes: int, headers: int) -> bool:
        """Whether a head of this size may be held, until `release`. Also of clients that are known."""
        if connection.peer.is_front_proxy:
            return True
        heads = self._heads_of_known if connection.peer.is_known else self._heads
        return heads.charge(connection, max(0, head_bytes + HEADER_BYTES * headers - FREE_HEAD_BYTES))

    def release(self, connection: Stranger) -> None:
        """The request was answered; may be called again."""
        self._heads.release(connection)
        self._heads_of_known.release(connection)

    def read_in_turn(self, connection: Stranger, read: Callable[[], None]) -> None:
        """Call `read`, which reads from this connection, in one of the next turns of the loop, unless it is
        closed before. Addresses take turns."""
        crowd = self._to_read.setdefault(connection.site, _Crowd())
        crowd.reads[connection] = read
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_some)

    def _read_some(self) -> None:
        for _ in range(READ_AT_ONCE):
            if not self._to_read:
                break
            site, crowd = next(iter(self._to_read.items()))
            read = crowd.take()
            del self._to_read[site]
            if crowd.reads:
                self._to_read[site] = crowd
            read()
        self._is_reading = bool(self._to_read)
        if self._is_reading:
            asyncio.get_running_loop().call_soon(self._read_some)

    def _forget_read(self, connection: Stranger) -> None:
        crowd = self._to_read.get(connection.site)
        if crowd is not None and crowd.reads.pop(connection, None) is not None and not crowd.reads:
            del self._to_read[connection.site]

    def _forget_known(self) -> None:
        for each in [each for of_site in self._of_site.values() for each in of_site if each.peer.is_known]:
            self.leave(each)
