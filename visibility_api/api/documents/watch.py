"""WATCH of one resource: who watches, and how one stream goes from its first event to its end (section W).

What is due to many watchers is encoded once; a stream's own are a place in the history, one timer, and one
task that notices the client's going.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from datetime import datetime

from visibility_api.api.message import Receive, Request, Stream
from visibility_api.api.negotiation import Target, negotiate_request
from visibility_api.api.resources import Resource
from visibility_api.api.status import Expired, TooLargeResourceVersion
from visibility_api.store import Feed, Listing, RevisionExpired, Store

from .event_stream import EventStream, error_event
from .forms import Forms
from .list_options import ListOptions, read_watch_options
from .v1alpha1 import Codec

DEFAULT_TIMEOUT_S = (1800.0, 3600.0)  # spread, so that not all clients come again at once (W9)
BOOKMARK_INTERVAL_S = 60.0  # W10, as is the next
BOOKMARK_BEFORE_END_S = 2.0

SendChunk = Callable[[bytes], Awaitable[None]]


class Watches:
    """All watches of one resource. `count_events` is told how many events were sent."""

    def __init__(
        self,
        resource: Resource,
        store: Store,
        *,
        now: Callable[[], datetime],
        count_events: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._plural = resource.plural
        self._store = store
        self._forms = Forms(Codec(resource), now)
        self._count_events = count_events
        self._feeds: set[Feed] = set()
        self._is_draining = False

    def __len__(self) -> int:
        """How many streams there are."""
        return len(self._feeds)

    def drain(self) -> None:
        """Ends every stream cleanly, and each that was about to start (W24)."""
        self._is_draining = True
        for feed in tuple(self._feeds):
            feed.close()

    async def watch(self, request: Request) -> Stream:
        """The stream of one watch; raises what `read_watch_options` raises, or TooLargeResourceVersion."""
        representation = negotiate_request(request, Target.WATCH)
        form = self._forms.choose(representation, request)
        options = read_watch_options(request)
        revision = options.revision or 0
        if options.sends_initial_events and revision > self._store.revision:
            raise TooLargeResourceVersion(revision, self._store.revision)  # L8
        namespace = request.attributes.namespace or None
        events = EventStream(form, namespace, options.selection)

        async def write(send_chunk: SendChunk) -> None:
            if self._is_draining:
                return
            try:
                feed, listing = self._open(namespace, options)
            except RevisionExpired as error:
                await send_chunk(error_event(Expired(str(error))))  # W6
                return
            self._feeds.add(feed)
            try:
                await _Session(feed, events, options, self._counted(send_chunk)).run(listing, request.receive)
            finally:
                feed.close()
                self._feeds.discard(feed)

        return Stream(write=write)

    def _open(self, namespace: str | None, options: ListOptions) -> tuple[Feed, Listing | None]:
        """Where the stream starts; with the state to be sent first, if it is. Raises RevisionExpired."""
        if not options.sends_initial_events:
            return self._store.watch(self._plural, options.revision or self._store.revision), None
        # No await between the two: nothing is missed and nothing doubled.
        listing = self._store.list(self._plural, namespace)
        return self._store.watch(self._plural, listing.revision), listing

    def _counted(self, send_chunk: SendChunk) -> SendChunk:
        async def send(chunk: bytes) -> None:
            if chunk:
                await send_chunk(chunk)
                self._count_events(chunk.count(b"\n"))

        return send


class _Session:
    """One stream under way."""

    def __init__(self, feed: Feed, events: EventStream, options: ListOptions, send: SendChunk) -> None:
        self._feed = feed
        self._events = events
        self._options = options
        self._send = send
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._ends_at = now + (options.timeout_s or random.uniform(*DEFAULT_TIMEOUT_S))
        self._bookmark_at = self._next_bookmark(now)

    async def run(self, initial: Listing | None, receive: Receive) -> None:
        """Sends until the time is over, the client is gone, or the feed ends. TimeoutError: too slow."""
        too_slow: TimeoutError | None = None
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(_close_when_gone(receive, self._feed), name="watch disconnect")
            try:
                if initial is not None:
                    await self._send_initial(initial)
                await self._send_changes()
            except TimeoutError as error:
                too_slow = error
            finally:
                listener.cancel()
        if too_slow is not None:
            raise too_slow

    async def _send_initial(self, listing: Listing) -> None:
        for slice_ in self._events.initial(listing):
            if self._feed.is_closed:
                return
            await self._send(slice_)
            await asyncio.sleep(0)  # others' turn
        if self._options.allows_bookmarks:
            await self._send(self._events.bookmark(listing.revision, ends_initial_events=True))

    async def _send_changes(self) -> None:
        feed, timer = self._feed, self._set_timer()
        try:
            while True:
                batch = await feed.next_batch()
                if batch.changes:
                    await self._send(self._events.changes(batch))
                    continue
                now = self._loop.time()
                if feed.is_closed:
                    return
                if now >= self._bookmark_at:  # before the end, also when both are late
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
        """When the next is due: every minute, and shortly before the end; never when none is wanted (W10)."""
        last = self._ends_at - BOOKMARK_BEFORE_END_S
        if not self._options.allows_bookmarks or now >= last:
            return math.inf
        return min(now + BOOKMARK_INTERVAL_S, last)


async def _close_when_gone(receive: Receive, feed: Feed) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    feed.close()
