"""The recent changes of one resource, and the watchers that follow them.

A watcher is a place in the shared log, not a queue: its cost is the same however much happens, and what is
due to many of them is one `Batch`, encoded once. Watchers are woken together, the more of them the less
often, so that changes that come close together leave in one write.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter

from . import Batch, Change, RevisionExpired

MAX_BATCH_CHANGES = 256  # about half a megabyte of JSON in one write
_WOKEN_AT_ONCE = 64  # between two such groups other requests have their turn
_KEPT_BATCHES = 4  # watchers stand at few places; those far behind share less

_EMPTY = Batch()


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUps:
    """The time between two wake-ups of all watchers."""

    # At 80 µs 1,000 watchers are woken twelve times a second at most, and one is woken at once: about what it
    # costs to write to each of them anyway.
    gap_per_feed_s: float = 0.00008
    max_gap_s: float = 0.1  # what an event may be late so that it is sent with others


class ChangeLog:
    """A ring of changes, bounded in number and in (estimated) bytes. Not for more than one event loop."""

    def __init__(
        self,
        *,
        base_revision: int,
        max_changes: int,
        max_bytes: int,
        wake_ups: WakeUps = WakeUps(),
    ) -> None:
        self._base_revision = base_revision
        self._wake_ups = wake_ups
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._changes: list[Change] = []
        self._sizes: list[int] = []
        self._held_bytes = 0
        self._first = 0  # how many changes were dropped: the place of `_changes[0]`
        self._batches: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        self._feeds: set[LogFeed] = set()
        self._waiting: dict[LogFeed, None] = {}  # in the order in which they came
        self._alarm: asyncio.Handle | None = None
        self._woke_at = 0.0  # event loop time

    @property
    def base_revision(self) -> int:
        """Changes after it are held."""
        return self._base_revision

    @property
    def end(self) -> int:
        """The place after the newest change."""
        return self._first + len(self._changes)

    @property
    def feed_count(self) -> int:
        return len(self._feeds)

    def append(self, change: Change, *, size_bytes: int) -> None:
        """Adds the newest change; drops the oldest ones when a bound is reached."""
        self._changes.append(change)
        self._sizes.append(size_bytes)
        self._held_bytes += size_bytes
        if len(self._changes) > self._max_changes or self._held_bytes > self._max_bytes:
            self._drop()
        if self._feeds and self._alarm is None:
            self._set_alarm()

    def after(self, revision: int) -> list[Change]:
        """The changes after a revision that is not older than the base, in order."""
        return self._changes[bisect_right(self._changes, revision, key=attrgetter("revision")) :]

    def has(self, revision: int) -> bool:
        """Whether one of the changes has this revision."""
        place = bisect_right(self._changes, revision, key=attrgetter("revision"))
        return place > 0 and self._changes[place - 1].revision == revision

    def close_feeds(self) -> None:
        """Cut every watcher: what follows is another history."""
        for feed in list(self._feeds):
            feed.cut()

    def feed(self, since: int) -> LogFeed:
        """A watcher of what follows revision `since`. Raises RevisionExpired when that is not all held."""
        if since < self._base_revision:
            raise RevisionExpired(since, self._base_revision)
        place = self._first + bisect_right(self._changes, since, key=attrgetter("revision"))
        feed = LogFeed(self, place=place, revision=since)
        self._feeds.add(feed)
        return feed

    def holds(self, place: int) -> bool:
        return place >= self._first

    def batch(self, start: int, end: int) -> Batch:
        """The changes of the places [start, end), the same object for every caller of the same places."""
        batch = self._batches.get((start, end))
        if batch is None:
            batch = Batch(changes=self._changes[start - self._first : end - self._first])
            self._batches[start, end] = batch
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        return batch

    def is_due(self, place: int) -> bool:
        """Whether a watcher there is served now rather than at the next common wake-up."""
        behind = self.end - place
        return behind > 0 and (self._alarm is None or behind >= MAX_BATCH_CHANGES)

    def wait(self, feed: LogFeed) -> None:
        self._waiting[feed] = None

    def wait_no_longer(self, feed: LogFeed) -> None:
        self._waiting.pop(feed, None)

    def forget(self, feed: LogFeed) -> None:
        self._feeds.discard(feed)

    def _drop(self) -> None:
        """Drops a sixteenth more than it must: moving the rest up is then rare."""
        keep_changes = self._max_changes - self._max_changes // 16
        keep_bytes = self._max_bytes - self._max_bytes // 16
        count = 0
        while len(self._changes) - count > keep_changes or self._held_bytes > keep_bytes:
            if count == len(self._changes) - 1:
                break  # the newest always stays
            self._held_bytes -= self._sizes[count]
            count += 1
        if not count:
            return
        self._base_revision = self._changes[count - 1].revision
        self._first += count
        del self._changes[:count], self._sizes[:count]

    def _set_alarm(self) -> None:
        loop = asyncio.get_running_loop()
        gap_s = min(self._wake_ups.max_gap_s, len(self._feeds) * self._wake_ups.gap_per_feed_s)
        wait_s = self._woke_at + gap_s - loop.time()
        self._alarm = loop.call_later(wait_s, self._wake) if wait_s > 0 else loop.call_soon(self._wake)

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm, self._woke_at = None, loop.time()
        waiting, self._waiting = list(self._waiting), {}
        self._wake_from(waiting, 0, self.end)

    def _wake_from(self, waiting: list[LogFeed], start: int, end: int) -> None:
        for feed in waiting[start : start + _WOKEN_AT_ONCE]:
            feed.wake(end)
        if start + _WOKEN_AT_ONCE < len(waiting):
            asyncio.get_running_loop().call_soon(self._wake_from, waiting, start + _WOKEN_AT_ONCE, end)


class LogFeed:
    """One watcher's place in a `ChangeLog`. One task at a time may wait for it."""

    __slots__ = ("_is_closed", "_is_cut", "_is_interrupted", "_log", "_place", "_revision", "_waiter")

    def __init__(self, log: ChangeLog, *, place: int, revision: int) -> None:
        self._log = log
        self._place = place
        self._revision = revision
        self._waiter: asyncio.Future[int] | None = None
        self._is_interrupted = False
        self._is_cut = False
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def next_batch(self) -> Batch:
        if self._is_stopped():
            return _EMPTY
        end = self._log.end if self._log.is_due(self._place) else await self._wait()
        if self._is_stopped():
            return _EMPTY
        if not self._log.holds(self._place):
            self._is_cut = True
            self.close()
            return _EMPTY
        batch = self._log.batch(self._place, min(end, self._place + MAX_BATCH_CHANGES))
        if batch.changes:
            self._place += len(batch.changes)
            self._revision = batch.changes[-1].revision
        return batch

    def _is_stopped(self) -> bool:
        was_interrupted, self._is_interrupted = self._is_interrupted, False
        return self._is_closed or was_interrupted

    async def _wait(self) -> int:
        self._waiter = asyncio.get_running_loop().create_future()
        self._log.wait(self)
        try:
            return await self._waiter
        finally:
            self._waiter = None
            self._log.wait_no_longer(self)

    def wake(self, end: int) -> None:
        """Gives the waiting task the changes before place `end`; nothing happens when none waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(end)

    def cut(self) -> None:
        self._is_cut = True
        self.close()

    def interrupt(self) -> None:
        self._is_interrupted = True
        self.wake(self._place)

    def close(self) -> None:
        self._is_closed = True
        self._log.forget(self)
        self.wake(self._place)
