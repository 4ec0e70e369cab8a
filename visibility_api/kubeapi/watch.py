"""WATCH of one resource: the open streams, and the course of one from its first event to its end.

Events are encoded once for all watchers. A stream has a position in the store's history, one timer, and one
task that notices the client's disconnect. The rules are those of
`k8s.io/apiserver/pkg/endpoints/handlers/watch.go`.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime

from visibility_api.errors.status import Expired, TooLargeResourceVersion
from visibility_api.models.served import Resource
from visibility_api.store import Listing, Resources, RevisionExpired
from visibility_api.store.changelog import LogFeed
from visibility_api.store.memory import MemoryStore

from .delivery import ReaderTooSlow
from .event_stream import EventStream, Slices, error_event
from .forms import Forms
from .list_options import ListOptions, read_watch_options
from .message import Receive, ResourceRequest, ResourceStream
from .negotiation import Target, negotiate_request
from .training_jobs import AllKinds, readable_header
from .turns import Turns
from .v1alpha1 import Codec

SendChunk = Callable[[bytes], Awaitable[None]]

# About what one write takes of the event loop: a wake-up, TLS and the system call; and what each byte takes.
_WRITE_S, _BYTE_S = 0.00013, 2e-9
_SLICES_AT_ONCE = 4  # of initial events, in one turn of the event loop; all watches together


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """The duration of a watch without `timeoutSeconds`, and the times of its bookmarks."""

    # Random between these, so that not all clients reconnect at once.
    timeout_s: tuple[float, float] = (1800.0, 3600.0)
    # Both as in k8s.io/apiserver/pkg/storage/cacher.
    bookmark_interval_s: float = 60.0
    initial_s: float = 60.0  # for all initial events to be sent, as for a list: they keep an earlier state
    bookmark_before_end_s: float = 2.0


class Watches:
    """The watch handler of one resource; `view`: of the one that shows all kinds.

    `count_events` is called with the number of events of each chunk.
    """

    def __init__(
        self,
        resource: Resource,
        store: MemoryStore,
        *,
        now: Callable[[], datetime],
        view: AllKinds | None = None,
        count_events: Callable[[int], None] = lambda _: None,
        limits: WatchLimits = WatchLimits(),
    ) -> None:
        self._plural = resource.plural
        self._store = store
        self._view = view
        self._forms = Forms(Codec(resource) if view is None else view.codec, now)
        self._count_events = count_events
        self._limits = limits
        self._feeds: set[LogFeed] = set()
        self._kept: deque[Slices] = deque()
        self._is_draining = False
        self._turns = Turns(at_once=_SLICES_AT_ONCE)

    def __len__(self) -> int:
        """The number of open streams."""
        return len(self._feeds)

    def drain(self) -> None:
        """End every stream cleanly, also each that was about to start."""
        self._is_draining = True
        self.end()

    def end(self) -> None:
        """End every stream cleanly."""
        for feed in tuple(self._feeds):
            feed.close()

    async def watch(self, request: ResourceRequest) -> ResourceStream:
        """The stream of one watch.

        Raises what `read_watch_options` and `AllKinds.readable` raise; TooLargeResourceVersion.
        """
        representation = negotiate_request(request, Target.WATCH)
        form = self._forms.choose(representation, request)
        options = read_watch_options(request, is_mixed=self._view is not None)
        revision = options.revision or 0
        if not await self._store.reach(revision) and options.sends_initial_events:
            raise TooLargeResourceVersion(revision, self._store.revision)
        namespace = request.attributes.namespace or None
        resources = self._plural if self._view is None else await self._view.readable(request)
        events = EventStream(form, resources, namespace, options.selection, self._kept)

        async def write(send_chunk: SendChunk) -> None:
            if self._is_draining or options.timeout_s < 0:
                return
            try:
                feed, listing = self._open(resources, namespace, options, request.client)
            except RevisionExpired as error:
                if self._store.awaits(revision):
                    return  # this replica is behind: clients resume, here or at another one
                await send_chunk(error_event(Expired(str(error))))  # clients list again
                return
            self._feeds.add(feed)
            request.opened(feed.close)
            try:
                session = _Session(
                    feed, events, options, self._counted(send_chunk), self._limits, self._turns
                )
                await session.run(listing, request)
            finally:
                feed.close()
                self._feeds.discard(feed)

        return ResourceStream(write=write, headers=readable_header(resources))

    def _open(
        self, resources: Resources, namespace: str | None, options: ListOptions, client: Hashable
    ) -> tuple[LogFeed, Listing | None]:
        """The stream's start, and the state to send first, if any. Raises RevisionExpired."""
        if not options.sends_initial_events:
            return self._store.watch(resources, options.revision or self._store.revision, client), None
        # No await between the two: no change is missed or sent twice.
        listing = self._store.list(resources, namespace)
        return self._store.watch(resources, listing.revision, client), listing

    def _counted(self, send_chunk: SendChunk) -> SendChunk:
        async def send(chunk: bytes) -> None:
            if chunk:
                await send_chunk(chunk)
                self._count_events(chunk.count(b"\n"))

        return send


class _Session:
    """One open stream."""

    def __init__(
        self,
        feed: LogFeed,
        events: EventStream,
        options: ListOptions,
        send: SendChunk,
        limits: WatchLimits,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._feed = feed
        self._events = events
        self._options = options
        self._send = send
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._ends_at = now + (options.timeout_s or random.uniform(*limits.timeout_s))
        self._bookmark_at = self._next_bookmark(now)

    async def run(self, initial: Listing | None, request: ResourceRequest) -> None:
        """Send until the time-out, the client's disconnect or the feed's end. TimeoutError: a slow client."""
        too_slow: TimeoutError | None = None
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(
                _close_on_disconnect(request.receive, self._feed), name="watch disconnect"
            )
            try:
                if initial is not None:
                    async with asyncio.timeout(self._limits.initial_s):
                        await self._send_initial(initial, request.charge)
                await self._send_changes()
            except TimeoutError as error:
                too_slow = error
            finally:
                listener.cancel()
        if too_slow is not None:
            raise ReaderTooSlow from too_slow

    async def _send_initial(self, listing: Listing, charge: Callable[[float], None]) -> None:
        with self._turns.sending():
            began = time.thread_time()
            for slice_ in self._events.initial(listing):
                charge(time.thread_time() - began)
                if self._feed.is_closed:
                    return
                await self._send(slice_)
                await self._turns.wait()  # lets other tasks run
                began = time.thread_time()
        if self._options.allows_bookmarks:
            await self._send(self._events.bookmark(listing.revision, ends_initial_events=True))

    async def _send_changes(self) -> None:
        feed, timer = self._feed, self._set_timer()
        try:
            while True:
                batch = await feed.next_batch(self._events.changes_at_once)
                if batch.changes:
                    began = time.thread_time()
                    chunk = self._events.changes(batch)
                    write_s = _WRITE_S + _BYTE_S * len(chunk) if chunk else 0.0
                    feed.charge(time.thread_time() - began + write_s)
                    await self._send(chunk)
                    continue
                now = self._loop.time()
                if feed.is_closed:
                    return
                if now >= self._bookmark_at:  # the bookmark comes first when both are due
                    self._bookmark_at = self._next_bookmark(now)
                    await self._send(self._events.bookmark(feed.revision))
                if now >= self._ends_at:
                    return
                timer.cancel()
                timer = self._set_timer()
        finally:
            timer.cancel()

    def _set_timer(self) -> asyncio.TimerHandle:
        return self._loop.call_at(min(self._ends_at, self._bookmark_at), self._feed.interrupt)

    def _next_bookmark(self, now: float) -> float:
        """When the next is due: every minute and shortly before the end, if the client allows them."""
        last = self._ends_at - self._limits.bookmark_before_end_s
        if not self._options.allows_bookmarks or now >= last:
            return math.inf
        return min(now + self._limits.bookmark_interval_s, last)


async def _close_on_disconnect(receive: Receive, feed: LogFeed) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    feed.close()
