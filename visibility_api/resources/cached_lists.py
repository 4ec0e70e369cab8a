"""A cache of list bodies: complete lists of a namespace or of all, in compact JSON.

Dashboards and reflectors request these again and again. The items are joined in slices, and a slice without a
change is used for the next revision as well. The cost of a list therefore depends on how many documents
changed since the last request, not on how many there are.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from cachetools import LRUCache

from visibility_api.progress.job import JobRef
from visibility_api.store import Change, Entry, Store

from .compression import Part
from .forms import Form
from .list_body import grouped

MAX_CACHED_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together, except the two largest lists
# uvicorn would write a larger slice, whose documents have grown, in two pieces, one of them small.
_TOO_LARGE_BYTES = 125 * 1024
# After so many, half a millisecond, other tasks run. As many slices are joined as documents encoded.
_ENCODED_AT_ONCE, _CHANGES_AT_ONCE = 8, 512
_TOO_SPARSE = 1.5  # slices are rebuilt when, by splits and deletions, the mean one has shrunk by this factor

_Key = tuple[str | None, str]  # namespace, None = all of them; form


class _Slice(msgspec.Struct, frozen=True):
    refs: list[JobRef]  # of its items, in order; not the documents, which would stay in memory
    sizes: array[int]  # of its items
    items: Part  # each with a comma before it, except the first of a list


class _State(msgspec.Struct, frozen=True):
    revision: int
    slices: list[_Slice]
    size_bytes: int
    first_mean_bytes: float  # of a slice, when all of them were built last


class ListCache:
    """The list bodies of one resource. When it is full, the least recently used list is dropped."""

    def __init__(self, store: Store, plural: str, *, max_cached_bytes: int = MAX_CACHED_BYTES) -> None:
        self._store = store
        self._plural = plural
        # A list larger than half of the limit counts as half, so that two of them are cached: one for each
        # request would take more memory.
        self._cache: LRUCache[_Key, _State] = LRUCache(
            max_cached_bytes, getsizeof=lambda state: min(max_cached_bytes // 2, state.size_bytes)
        )
        self._building = asyncio.Lock()

    async def body(self, form: Form, namespace: str | None) -> list[bytes]:
        """All documents of `namespace`, at the current revision or a later one. `form` must be timeless."""
        key, revision = (namespace, form.key), self._store.revision
        state = self._cache.get(key)
        if state is None or state.revision < revision:
            # One at a time, for all requests that wait: one for each of many concurrent requests would take
            # too much memory.
            async with self._building:
                state = self._cache.get(key)
                if state is None or state.revision < revision:
                    state = await self._build(form, namespace, state)
                    if state.slices:  # namespaces without jobs, which clients may invent, are not cached
                        self._cache[key] = state
                    else:
                        self._cache.pop(key, None)
        list_meta = msgspec.json.encode({"resourceVersion": str(state.revision)})
        return [form.head(list_meta), *[slice_.items for slice_ in state.slices], b"]}\n"]

    async def _build(self, form: Form, namespace: str | None, held: _State | None) -> _State:
        if held is not None:
            revision = self._store.revision
            changes = self._store.changes(self._plural, held.revision)
            latest = await _latest(changes, namespace) if changes is not None else None
            if latest is not None and len(latest) <= sum(len(slice_.refs) for slice_ in held.slices):
                slices = await _changed(form, held.slices, latest)
                size_bytes = _size_bytes(slices)
                if size_bytes * _TOO_SPARSE >= held.first_mean_bytes * len(slices):
                    return _State(revision, slices, size_bytes, held.first_mean_bytes)
        listing = self._store.list(self._plural, namespace)
        slices, place = [], 0
        for items in grouped(form, listing.entries):
            entries = listing.entries[place : place + len(items)]
            slices += _joined([entry.document.job.ref for entry in entries], items, is_first=not slices)
            place += len(items)
            await asyncio.sleep(0)  # lets other tasks run
        size_bytes = _size_bytes(slices)
        return _State(listing.revision, slices, size_bytes, size_bytes / max(1, len(slices)))


async def _latest(changes: Sequence[Change], namespace: str | None) -> dict[JobRef, Entry | None]:
    """The current entry of each job of `namespace` that changed; None = deleted."""
    latest: dict[JobRef, Entry | None] = {}
    for count, change in enumerate(changes, start=1):
        ref = change.entry.document.job.ref
        if namespace is None or ref.namespace == namespace:
            latest[ref] = None if change.type == "DELETED" else change.entry
        if count % _CHANGES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return latest


async def _changed(
    form: Form, slices: Sequence[_Slice], latest: Mapping[JobRef, Entry | None]
) -> list[_Slice]:
    firsts = [slice_.refs[0] for slice_ in slices]
    of_slice: dict[int, dict[JobRef, Entry | None]] = {}
    for count, (ref, entry) in enumerate(latest.items(), start=1):
        number = max(0, bisect_right(firsts, ref) - 1)
        of_slice.setdefault(number, {})[ref] = entry
        if count % _CHANGES_AT_ONCE == 0:
            await asyncio.sleep(0)
    made: list[_Slice] = []
    encoded = 0
    for number, held in enumerate(slices):
        if number not in of_slice and (made or not number):
            made.append(held)
            continue
        refs, items = held.refs[:], list(_cut(held))
        for ref, entry in of_slice.get(number, {}).items():
            place = bisect_left(refs, ref)
            end = place + (refs[place : place + 1] == [ref])
            refs[place:end] = [ref] if entry is not None else []
            items[place:end] = [form.item(entry)] if entry is not None else []
            encoded += 1
            if encoded % _ENCODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        made += _joined(refs, items, is_first=not made)
    return made


def _size_bytes(slices: Sequence[_Slice]) -> int:
    return sum(len(slice_.items) for slice_ in slices)


def _cut(slice_: _Slice) -> Iterator[bytes | memoryview]:
    """The items of a slice, one by one."""
    whole = memoryview(slice_.items)
    end = -1 if slice_.items[:1] != b"," else 0
    for size in slice_.sizes:
        start, end = end + 1, end + 1 + size
        yield whole[start:end]


def _joined(refs: list[JobRef], items: Sequence[bytes | memoryview], *, is_first: bool) -> Iterator[_Slice]:
    """One slice, two or more when it would be too large, none without items."""
    sizes = array("I", map(len, items))
    if len(items) > 1 and sum(sizes) + len(sizes) > _TOO_LARGE_BYTES:
        middle = len(items) // 2
        yield from _joined(refs[:middle], items[:middle], is_first=is_first)
        yield from _joined(refs[middle:], items[middle:], is_first=False)
    elif items:
        yield _Slice(refs, sizes, Part(b",".join(items if is_first else (b"", *items))))
