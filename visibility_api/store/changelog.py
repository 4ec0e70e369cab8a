"""The recent changes of one resource, and the watchers that follow them.

A watcher is a place in the shared log, not a queue: its cost is the same however much happens, and what is
due to many of them is one `Batch`, encoded once. Watchers are woken together, the more of them the less
often, so that changes that come close together leave in one write. Clients with few watchers come first.
What a client's watchers take of the event loop delays their own next wake-up, and nobody else's.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter

from visibility_api.flowcontrol.time_shares import TimeShares

from . import MAX_BATCH_BYTES, MAX_BATCH_CHANGES, Batch, Change, RevisionExpired

TURN_S = 0.0005  # of the event loop, while watchers are woken; then other tasks have their turn
_WOKEN_AT_ONCE = 64  # at most in one turn; fewer where that takes longer
_KEPT_BATCHES = 4  # watchers stand at few places; those far behind share less

_EMPTY = Batch()


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUps:
    """The time between two wake-ups of all watchers."""

    # At 80 µs 1,000 clients are woken twelve times a second at most, and one is woken at once: about what it
    # costs to write to each of them anyway.
    gap_per_client_s: float = 0.00008
    max_gap_s: float = 0.1  # what an event may be late so that it is sent with others
    # What all watchers of one client may take of the event loop, and what their events may be late for it.
    share_of_client: float = 0.01
    max_gap_of_client_s: float = 2.0


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
        self._waiting: dict[Hashable, dict[LogFeed, None]] = {}  # by client, in the order in which they came
        self._of_client: Counter[Hashable] = Counter()  # feeds
        self._shares = TimeShares(share=wake_ups.share_of_client, max_wait_s=wake_ups.max_gap_of_client_s)
        self._alarm: asyncio.Handle | None = None  # for all clients
        self._late: asyncio.Handle | None = None  # for the next of those whose time had not come
        self._late_at = 0.0  # when that is; uvloop's handle of a moment that is now does not say
        self._woke_at = 0.0  # event loop time
        self._at_once = 1  # how many are woken in one turn now

    @property
    def base_revision(self) -> int:
        """Changes after it are held."""
        return self._base_revision

    @property
    def end(self) -> int:
        """The place after the newest change."""
        return self._first + len(self._changes)

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

    def feed(self, since: int, client: Hashable = None) -> LogFeed:
        """A watcher of what follows revision `since`. Raises RevisionExpired when that is not all held.

        `client`: whose share of wake-ups it takes; None: a share of its own.
        """
        if since < self._base_revision:
            raise RevisionExpired(since, self._base_revision)
        place = self._first + bisect_right(self._changes, since, key=attrgetter("revision"))
        feed = LogFeed(self, place=place, revision=since, client=client)
        self._feeds.add(feed)
        self._of_client[feed.client] += 1
        return feed

    def holds(self, place: int) -> bool:
        return place >= self._first

    def batch(self, start: int, end: int) -> Batch:
        """The changes of the places [start, end), as many as fit, and one at least. The same object for every
        caller of the same places."""
        sizes, held = self._sizes, 0
        for place in range(start - self._first, end - self._first):
            held += sizes[place]
            if held > MAX_BATCH_BYTES:
                end = max(start + 1, self._first + place)
                break
        batch = self._batches.get((start, end))
        if batch is None:
            batch = Batch(changes=self._changes[start - self._first : end - self._first])
            self._batches[start, end] = batch
            if len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
        return batch

    def is_due(self, place: int, client: Hashable) -> bool:
        """Whether a watcher there is served now rather than at the next wake-up."""
        behind = self.end - place
        if behind <= 0 or self._shares.due(client) > asyncio.get_running_loop().time():
            return False
        return behind >= MAX_BATCH_CHANGES or self._alarm is None

    def wait(self, feed: LogFeed) -> None:
        self._waiting.setdefault(feed.client, {})[feed] = None
        if feed.place < self.end and self._alarm is None:
            self._wake_at(self._shares.due(feed.client))

    def wait_no_longer(self, feed: LogFeed) -> None:
        if (feeds := self._waiting.get(feed.client)) is not None:
            feeds.pop(feed, None)
            if not feeds:
                del self._waiting[feed.client]

    def charge(self, client: Hashable, spent_s: float) -> None:
        """The client has used this much of its share. What is due to it waits until the share allows it."""
        self._shares.charge(client, spent_s)

    def forget(self, feed: LogFeed) -> None:
        if feed not in self._feeds:
            return
        self._feeds.discard(feed)
        self._of_client[feed.client] -= 1
        if not self._of_client[feed.client]:  # clients choose their names: none may stay behind
            del self._of_client[feed.client]

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
        gap_s = min(self._wake_ups.max_gap_s, len(self._of_client) * self._wake_ups.gap_per_client_s)
        wait_s = self._woke_at + gap_s - loop.time()
        self._alarm = loop.call_later(wait_s, self._wake) if wait_s > 0 else loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake the watchers that are behind, of each client whose time has come; small crowds first."""
        now, end = asyncio.get_running_loop().time(), self.end
        self._alarm, self._woke_at = None, now
        due: list[list[LogFeed]] = []
        for client, feeds in list(self._waiting.items()):
            behind = [feed for feed in feeds if feed.place < end]
            if not behind:
                continue
            if (at := self._shares.due(client)) > now:
                self._wake_at(at)
                continue
            for feed in behind:
                self.wait_no_longer(feed)
            due.append(behind)
        woken = deque(feed for feeds in sorted(due, key=len) for feed in feeds)
        self._wake_some(woken, end, began=None)

    def _wake_at(self, at: float) -> None:
        """An alarm for a client whose time comes later than that of the others, by a millisecond at least."""
        at = max(at, asyncio.get_running_loop().time() + 0.001)
        if self._late is None or at < self._late_at:
            if self._late is not None:
                self._late.cancel()
            self._late = asyncio.get_running_loop().call_at(at, self._wake_late)
            self._late_at = at

    def _wake_late(self) -> None:
        self._late = None
        if self._alarm is None:  # else they are woken with all others
            self._wake()

    def _wake_some(self, feeds: deque[LogFeed], end: int, began: float | None) -> None:
        """Wake a group, and the next when other tasks had their turn; `began`: when the last was woken."""
        spent_s = TURN_S if began is None else time.thread_time() - began
        if spent_s > TURN_S:
            self._at_once = max(1, self._at_once // 2)
        elif spent_s < TURN_S / 2:
            self._at_once = min(_WOKEN_AT_ONCE, self._at_once * 2)
        for _ in range(min(self._at_once, len(feeds))):
            feeds.popleft().wake(end)
        if feeds:
            asyncio.get_running_loop().call_soon(self._wake_some, feeds, end, time.thread_time())


class LogFeed:
    """One watcher's place in a `ChangeLog`. One task at a time may wait for it. Call `close` when done.

    A watcher that falls further behind than the history reaches is cut (`is_cut`), as kube-apiserver cuts
    slow watchers: it resumes from its last revision. The others never wait for it.
    """

    __slots__ = (
        "_is_interrupted",
        "_log",
        "_until",
        "_waiter",
        "client",
        "is_closed",
        "is_cut",
        "place",
        "revision",
    )

    def __init__(self, log: ChangeLog, *, place: int, revision: int, client: Hashable = None) -> None:
        self.client = self if client is None else client
        self._log = log
        self.place = place
        self._until = place  # what it was given in this turn, and may take without waiting
        self.revision = revision  # everything up to it has been handed out: what a bookmark may contain
        self._waiter: asyncio.Future[int] | None = None
        self._is_interrupted = False
        self.is_cut = False
        self.is_closed = False

    async def next_batch(self, at_most: int = MAX_BATCH_CHANGES) -> Batch:
        """The changes that are due, in order; waits for the first. Empty when cut, closed or interrupted."""
        if self._is_stopped():
            return _EMPTY
        if self.place < self._until:
            await asyncio.sleep(0)  # other tasks first
        else:
            end = self._log.end if self._log.is_due(self.place, self.client) else await self._wait()
            self._until = min(end, self.place + MAX_BATCH_CHANGES)
        if self._is_stopped():
            return _EMPTY
        if not self._log.holds(self.place):
            self.is_cut = True
            self.close()
            return _EMPTY
        batch = self._log.batch(self.place, min(self._until, self.place + at_most))
        if batch.changes:
            self.place += len(batch.changes)
            self.revision = batch.changes[-1].revision
        return batch

    def _is_stopped(self) -> bool:
        was_interrupted, self._is_interrupted = self._is_interrupted, False
        return self.is_closed or was_interrupted

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

    def charge(self, spent_s: float) -> None:
        """It has kept the event loop for so long: its client is woken the later, others are not."""
        if not self.is_closed:
            self._log.charge(self.client, spent_s)

    def cut(self) -> None:
        self.is_cut = True
        self.close()

    def interrupt(self) -> None:
        """Makes the present or next `next_batch` return at once, so that its caller can do something else."""
        self._is_interrupted = True
        self.wake(self.place)

    def close(self) -> None:
        """`next_batch` returns an empty batch from now on. May be called again."""
        self.is_closed = True
        self._log.forget(self)
        self.wake(self.place)
