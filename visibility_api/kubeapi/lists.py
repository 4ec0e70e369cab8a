"""The bodies of lists. Unfiltered lists are kept, in parts, and a part is used again while its items stay.

A few lists are made at a time, and users take turns. While a list is made, other tasks run between its parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

import msgspec
from cachetools import LRUCache

from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.time_shares import TimeShares
from visibility_api.store import Entry, Resources
from visibility_api.store.memory import MemoryStore

from .compression import Part
from .list_layout import Layout, write_items
from .list_options import ListOptions
from .paging import Page, find_page, read_token

ITEMS_A_PART = 64  # some 100 KiB: one write, and half a millisecond to encode
MAX_KEPT_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together, except the two largest lists
MIN_SIZE_BYTES = 4 * 1024  # what a small list takes beside its bytes
# Lists that are made at one time. Each runs for a millisecond or two, then all else has its turn.
MAX_CHEAP, MAX_COSTLY = 2, 1
MAX_WAITING, MAX_WAITING_PER_USER = 256, 64
WAIT_S = 30.0
_CROWDED = (
    "too many lists wait to be rendered; request compact JSON, which is cheaper, or try again after the time "
    "in Retry-After"
)

_Key = tuple[Resources, str | None, str]  # the jobs; namespace, None = all of them; layout
# Whether a part follows another, and the revisions of its items: equal ones are equal bytes.
_Revisions = tuple[int, ...]


class _Kept(msgspec.Struct, frozen=True):
    """The items of a list as they were made last. Documents are not held: they would stay in memory."""

    revision: int
    moment: int  # of the layout's ages
    parts: dict[_Revisions, Part]
    size_bytes: int


class Lists:
    """The lists of all resources. When too much is kept, the least recently used list is dropped."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        shares: TimeShares | None = None,
        max_kept_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        self._store = store
        # A list larger than half of the limit counts as half, so that two of them are kept: one for each
        # request would take more memory.
        self._kept: LRUCache[_Key, _Kept] = LRUCache(
            max_kept_bytes,
            getsizeof=lambda kept: min(max_kept_bytes // 2, kept.size_bytes + MIN_SIZE_BYTES),
        )
        self._cheap, self._costly = _queues(MAX_CHEAP, shares), _queues(MAX_COSTLY, shares)

    async def body(
        self,
        layout: Layout[Entry],
        resources: Resources,
        namespace: str | None,
        options: ListOptions,
        *,
        client: Hashable = "",
    ) -> list[bytes]:
        """The response to a list. Users take turns.

        Raises what `find_page` raises; TooManyRequests when too many lists are to be made.
        """
        token = read_token(options)
        await self._store.reach(token.rv if token is not None else options.revision or 0)
        key = (resources, namespace, layout.key) if _is_whole(options) else None
        held = self._kept.get(key) if key is not None else None
        if (
            held is not None
            and held.revision == self._store.revision
            and self._store.includes(options.revision or 0)
            and held.moment == layout.moment()
        ):
            return _around(layout, Page(revision=held.revision, entries=()), list(held.parts.values()))
        async with (self._costly if layout.is_costly else self._cheap).slot(client):
            page = await find_page(self._store, resources, namespace, options)
            return _around(layout, page, await self._parts(layout, page, key))

    async def sums(
        self,
        sum_up: Callable[[Page], Awaitable[bytes]],
        resources: Resources,
        namespace: str | None,
        options: ListOptions,
        *,
        client: Hashable = "",
    ) -> bytes:
        """What `sum_up` makes of a list. Users take turns, with other lists. Raises as `body`."""
        await self._store.reach(options.revision or 0)
        async with self._cheap.slot(client):
            return await sum_up(await find_page(self._store, resources, namespace, options))

    async def _parts(self, layout: Layout[Entry], page: Page, key: _Key | None) -> list[bytes]:
        """The items of a page, those of a list with a key from what is kept, as far as they are the same."""
        held, moment = self._kept.get(key) if key is not None else None, layout.moment()
        known = held.parts if held is not None and held.moment == moment else {}
        write, parts = layout.items(), dict[_Revisions, Part]()
        for start in range(0, len(page.entries), ITEMS_A_PART):
            entries = page.entries[start : start + ITEMS_A_PART]
            revisions = (int(start > 0), *[entry.revision for entry in entries])
            part = known.get(revisions)
            if part is None:
                items = await write_items(write, entries, layout.bytes_at_once)
                part = Part(layout.separator.join([b"", *items] if start else items))
            parts[revisions] = part
        if key is not None:
            if parts:
                size_bytes = sum(map(len, parts.values()))
                self._kept[key] = _Kept(page.revision, moment, parts, size_bytes)
            else:  # namespaces without jobs, which clients may invent, are not kept
                self._kept.pop(key, None)
        return list(parts.values())


def _is_whole(options: ListOptions) -> bool:
    """Whether all items of the present state are requested."""
    return (
        options.selection.is_everything
        and not options.limit
        and not options.continue_token
        and not options.is_exact
    )


def _around(layout: Layout[Entry], page: Page, parts: list[bytes]) -> list[bytes]:
    head, end = layout.around(page.list_meta(), is_empty=not parts)
    return [head, *parts, end]


def _queues(running: int, shares: TimeShares | None) -> ClientQueues:
    return ClientQueues(
        crowded=_CROWDED,
        max_running=running,
        max_running_per_client=1,
        max_waiting=MAX_WAITING,
        max_waiting_per_client=MAX_WAITING_PER_USER,
        wait_s=WAIT_S,
        shares=shares,
    )
