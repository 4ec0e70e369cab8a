"""What all open connections take of memory, and which are closed when that is too much.

Strangers have a bound of their own (`strangers`). Whoever has a token may keep thousands of connections, and
each keeps the buffers of the largest piece that it ever sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from visibility_api.auth.certificates import Peer

CONNECTION_BYTES = 48 * 1024  # measured with TLS, after one small request: 30 to 54 KiB
# Beside 3,000 jobs and their cached lists, which take up to 290 MiB, below 512 MiB in all.
MAX_BYTES = 192 * 1024 * 1024
KEPT_SHARE = 15 / 16  # after closing some: looking through all of them takes milliseconds
CROWD_BYTES = 256 * CONNECTION_BYTES  # worth giving back when most of it has gone


class Holder(Protocol):
    """An open connection."""

    peer: Peer
    site: str  # what tells clients apart: `auth.review_admission.site_of` its address

    @property
    def kept_bytes(self) -> int:
        """Of the largest piece that was sent."""
        ...

    @property
    def idle_since(self) -> float | None:
        """Loop time; None while a request is read or answered."""
        ...

    def drop(self) -> None:
        """Close at once."""
        ...


class ConnectionMemory:
    """Of one server."""

    def __init__(self, *, most: int = MAX_BYTES, on_calm: Callable[[], None] = lambda: None) -> None:
        """`on_calm` is called when most connections of a crowd have gone."""
        self._most = most
        self._next: float = most  # when idle ones are closed
        self._on_calm = on_calm
        self._held: dict[Holder, int] = {}
        self._peak = 0  # since `on_calm` was called
        self.bytes = 0

    def count(self, connection: Holder) -> None:
        """Of a new connection, or one that sent a larger piece than before.

        When all together take too much, idle ones are closed: those of the address that has most first, and
        of these the one that has been idle for longest. Never the front proxy's: its users share them.
        """
        size = CONNECTION_BYTES + connection.kept_bytes
        self.bytes += size - self._held.get(connection, 0)
        self._held[connection] = size
        self._peak = max(self._peak, self.bytes)
        if self.bytes > self._next:
            self._close_idle(besides=connection)
            # When those that are not idle take more, all are looked through again only after so many others.
            self._next = max(self._most, self.bytes + (1 - KEPT_SHARE) * self._most)

    def leave(self, connection: Holder) -> None:
        """It was closed; may be called again."""
        self.bytes -= self._held.pop(connection, 0)
        if self.bytes <= self._most:
            self._next = self._most
        if self._peak >= CROWD_BYTES and self.bytes <= self._peak // 8:
            self._peak = self.bytes
            self._on_calm()

    def _close_idle(self, besides: Holder) -> None:
        sizes: defaultdict[str, int] = defaultdict(int)
        idle: defaultdict[str, list[tuple[float, int, Holder]]] = defaultdict(list)
        for number, (each, size) in enumerate(self._held.items()):
            if each.peer.is_front_proxy:
                continue
            sizes[each.site] += size
            if each is not besides and (idle_since := each.idle_since) is not None:
                idle[each.site].append((idle_since, number, each))
        for of_site in idle.values():
            of_site.sort(reverse=True)
        while idle and self.bytes > KEPT_SHARE * self._most:
            site = max(idle, key=sizes.__getitem__)
            *_, connection = idle[site].pop()
            if not idle[site]:
                del idle[site]
            sizes[site] -= self._held[connection]
            self.leave(connection)
            connection.drop()
