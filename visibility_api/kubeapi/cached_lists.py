"""A cache of lists: made once for each state, for all who ask, in each form, representation and selection.

Dashboards, reflectors and `kubectl get` request the same lists again and again. A few lists are made at a
time, users take turns, and a list that nobody waits for any more is not made further.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from datetime import datetime

from cachetools import LRUCache, TTLCache

from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.jobs.job import JobRef
from visibility_api.kubeapi.selectors.selection import Selection
from visibility_api.store import Store

from .list_layout import Layout
from .list_options import ListOptions
from .list_slices import State, Steps, build, follow, latest_of, page
from .paging import Page, Token, check_revision, encode_token, find_page, read_token
from .table import MAX_AGE

MAX_CACHED_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together, except the two largest lists
# Of states whose further pages a client may still request; their slices are mostly those of the cache.
MAX_CONTINUED_BYTES, CONTINUED_FOR_S = 32 * 1024 * 1024, 60.0
MIN_SIZE_BYTES = 4 * 1024  # what a small list takes beside its bytes
MAX_SELECTION_CHARACTERS = 1024  # lists of longer selections are not cached
_TOO_SPARSE = 1.5  # slices are rebuilt when, by splits and deletions, the mean one has shrunk by this factor
# Lists that are made at one time. Each runs for a millisecond or two, then all else has its turn.
MAX_CHEAP, MAX_COSTLY = 2, 1
MAX_WAITING, MAX_WAITING_PER_USER = 256, 64
_CROWDED = (
    "too many lists wait to be rendered; request compact JSON, which is cheaper, or try again after the time "
    "in Retry-After"
)

_Key = tuple[str | None, str, Selection]  # namespace, None = all of them; layout


class _Flight:
    """One list that is being made, by whoever of those who wait for it holds the lock."""

    def __init__(self, steps: Steps[State]) -> None:
        self.steps = steps
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.state: State | None = None
        self.has_failed = False

    async def finish(self) -> State:
        """Make the rest of the list. After a cancellation another caller continues."""
        while True:
            try:
                next(self.steps)
            except StopIteration as done:
                state: State = done.value
                self.state = state
                return state
            except Exception:
                self.has_failed = True
                raise
            await asyncio.sleep(0)  # lets other tasks run


class ListCache:
    """The lists of one resource. When it is full, the least recently used one is dropped."""

    def __init__(
        self,
        store: Store,
        plural: str,
        *,
        now: Callable[[], datetime],
        max_cached_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        """`now` is the clock of the ages in Tables."""
        self._store = store
        self._plural = plural
        self._now = now
        # A list larger than half of the limit counts as half, so that two of them are cached: one for each
        # request would take more memory.
        self._cache: LRUCache[_Key, State] = LRUCache(
            max_cached_bytes,
            getsizeof=lambda state: min(max_cached_bytes // 2, state.size_bytes + MIN_SIZE_BYTES),
        )
        self._continued: TTLCache[tuple[_Key, int], State] = TTLCache(
            MAX_CONTINUED_BYTES,
            CONTINUED_FOR_S,
            getsizeof=lambda state: min(MAX_CONTINUED_BYTES // 2, state.size_bytes + MIN_SIZE_BYTES),
        )
        self._flights: dict[_Key, _Flight] = {}
        self._cheap, self._costly = _queues(MAX_CHEAP), _queues(MAX_COSTLY)

    async def body(
        self, layout: Layout, namespace: str | None, options: ListOptions, *, user: Hashable = ""
    ) -> list[bytes]:
        """The response to a list, at the current revision or a later one. Users take turns.

        Raises what `find_page` raises; TooManyRequests when too many lists are to be made.
        """
        token = read_token(options)
        key = (namespace, layout.key, options.selection)
        state: State | None = None
        await self._store.reach(token.rv if token is not None else options.revision or 0)
        if token is not None:
            if token.rv >= self._store.base_revision:  # else a watch could not begin where the list ends
                state = self._continued.get((key, token.rv))
        elif not options.is_exact and not options.selection.names_one:
            check_revision(self._store, options)
            state = await self._state(layout, key, user)
        if state is None:
            return await self._uncached(layout, namespace, options, user)
        return self._cut(layout, key, state, options, token)

    def _cut(
        self, layout: Layout, key: _Key, state: State, options: ListOptions, token: Token | None
    ) -> list[bytes]:
        after = self._last_of(token) if token is not None else None
        items, last, rest = page(layout, state, after, options.limit)
        is_all = options.selection.is_everything
        meta = Page(
            revision=state.revision,
            entries=(),
            continue_token=encode_token(state.revision, (last.namespace, last.name)) if rest and last else "",
            remaining=rest if rest and is_all else None,  # of a selector the API server does not tell it
        )
        if meta.continue_token:
            self._continued[key, state.revision] = state
        head, end = layout.around(meta.list_meta(), is_empty=not items)
        return [head, *items, end]

    def _last_of(self, token: Token) -> JobRef:
        """After every job of the token's name, before all that follow."""
        return JobRef(resource=self._plural, namespace=token.namespace, name=token.name, uid="\U0010ffff")

    async def _state(self, layout: Layout, key: _Key, user: Hashable) -> State:
        """The list at the current revision or a later one."""
        revision = self._store.revision
        is_kept = key[2].is_everything or len(str(key[2])) <= MAX_SELECTION_CHARACTERS
        while True:
            state = self._cache.get(key)
            if state is not None and state.revision >= revision and self._is_fresh(layout, state):
                return state
            flight = self._flights.get(key) if is_kept else None
            if flight is None:
                flight = _Flight(self._steps(layout, key))
                if is_kept:
                    self._flights[key] = flight
            state = await self._wait(flight, layout, key, user)
            if state is not None and is_kept:
                self._keep(key, state)
            if state is not None and state.revision >= revision:
                return state

    async def _wait(self, flight: _Flight, layout: Layout, key: _Key, user: Hashable) -> State | None:
        """The list that is being made; None when another caller has failed to."""
        flight.waiting += 1
        try:
            async with flight.lock:
                if flight.state is None and not flight.has_failed:
                    async with self._queues_of(layout).slot(user):
                        return await flight.finish()
            return flight.state
        finally:
            flight.waiting -= 1
            is_over = flight.state is not None or flight.has_failed
            if (is_over or not flight.waiting) and self._flights.get(key) is flight:
                del self._flights[key]

    def _keep(self, key: _Key, state: State) -> None:
        if state.slices:  # namespaces without jobs, which clients may invent, are not cached
            self._cache[key] = state
        else:
            self._cache.pop(key, None)

    def _is_fresh(self, layout: Layout, state: State) -> bool:
        return layout.is_timeless or abs(self._now() - state.made_at) < MAX_AGE

    def _queues_of(self, layout: Layout) -> ClientQueues:
        return self._costly if layout.is_costly else self._cheap

    def _steps(self, layout: Layout, key: _Key) -> Steps[State]:
        namespace, _, selection = key
        held = self._cache.get(key)
        if held is not None and self._is_fresh(layout, held):
            revision = self._store.revision
            changes = self._store.changes(self._plural, held.revision)
            if changes is not None:
                latest = yield from latest_of(changes, namespace, selection)
                if len(latest) <= held.count:
                    state = yield from follow(layout, held, revision, latest)
                    if state.size_bytes * _TOO_SPARSE >= held.first_mean_bytes * len(state.slices):
                        return state
        listing = self._store.list(self._plural, namespace)
        return (yield from build(layout, listing.revision, listing.entries, selection, self._now()))

    async def _uncached(
        self, layout: Layout, namespace: str | None, options: ListOptions, user: Hashable
    ) -> list[bytes]:
        """A page of an earlier state, or the one object that a selection names."""
        found = await find_page(self._store, self._plural, namespace, options)
        steps = build(layout, found.revision, found.entries, Selection(), self._now())
        async with self._queues_of(layout).slot(user):
            state = await _Flight(steps).finish()
        head, end = layout.around(found.list_meta(), is_empty=not state.slices)
        return [head, *[slice_.items for slice_ in state.slices], end]


def _queues(running: int) -> ClientQueues:
    return ClientQueues(
        crowded=_CROWDED,
        max_running=running,
        max_running_per_client=1,
        max_waiting=MAX_WAITING,
        max_waiting_per_client=MAX_WAITING_PER_USER,
    )
