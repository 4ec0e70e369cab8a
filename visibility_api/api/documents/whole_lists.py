"""The body of a list of everything, in compact JSON: what dashboards and caches ask for again and again.

Its items are joined in slices, which follow the store's changes: a slice in which nothing changed serves the
next state as well. So what making a list costs depends on how many documents changed since somebody asked,
not on how many there are.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from cachetools import LRUCache

from visibility_api.api.compression import Part
from visibility_api.progress.job import JobRef
from visibility_api.store import Change, Entry, Store

from .forms import Form
from .list_body import grouped

MAX_KEPT_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together, but for the largest two
# The server below would write a larger slice in two pieces, one of them small: its documents have grown.
_TOO_LARGE_BYTES = 125 * 1024
# Then others have their turn: half a millisecond each, with as many slices joined as documents encoded.
_ENCODED_AT_ONCE, _CHANGES_AT_ONCE = 8, 512
_TOO_SPARSE = 1.5  # so much smaller than at first on average: splits and deletions leave small slices

_Key = tuple[str | None, str]  # namespace, None = all of them; form


class _Slice(msgspec.Struct, frozen=True):
    refs: list[JobRef]  # of its items, in order; not the documents, which would outlive their time
    sizes: array[int]  # of its items
    items: Part  # each after a comma; only the first of a list has none


class _State(msgspec.Struct, frozen=True):
    revision: int
    slices: list[_Slice]
    size_bytes: int
    first_mean_bytes: float  # of a slice, when all of them were made anew


class WholeLists:
    """Makes the lists of one resource; the slices of the least recently used lists go first."""

    def __init__(self, store: Store, plural: str, *, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._store = store
        self._plural = plural
        # One that is larger than half of it counts as half: two such are kept at most, for to make them for
        # each who asks would cost more memory than to keep them.
        self._kept: LRUCache[_Key, _State] = LRUCache(
            max_kept_bytes, getsizeof=lambda state: min(max_kept_bytes // 2, state.size_bytes)
        )
        self._making = asyncio.Lock()

    async def body(self, form: Form, namespace: str | None) -> list[bytes]:
        """All documents of `namespace`, as they are now or a moment later, in a form that is timeless."""
        key, asked_at = (namespace, form.key), self._store.revision
        state = self._kept.get(key)
        if state is None or state.revision < asked_at:
            # One at a time, and for all who wait: a state of its own for each of many who come together
            # would need more memory than there is.
            async with self._making:
                state = self._kept.get(key)
                if state is None or state.revision < asked_at:
                    state = await self._present(form, namespace, state)
                    if state.slices:  # a namespace that does not exist leaves nothing behind
                        self._kept[key] = state
                    else:
                        self._kept.pop(key, None)
        list_meta = msgspec.json.encode({"resourceVersion": str(state.revision)})
        return [form.head(list_meta), *[slice_.items for slice_ in state.slices], b"]}\n"]

    async def _present(self, form: Form, namespace: str | None, held: _State | None) -> _State:
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
            await asyncio.sleep(0)  # others' turn
        size_bytes = _size_bytes(slices)
        return _State(listing.revision, slices, size_bytes, size_bytes / max(1, len(slices)))


async def _latest(changes: Sequence[Change], namespace: str | None) -> dict[JobRef, Entry | None]:
    """What is there now of each job of `namespace` that changed, None = nothing."""
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
    """Its items."""
    whole = memoryview(slice_.items)
    end = -1 if slice_.items[:1] != b"," else 0
    for size in slice_.sizes:
        start, end = end + 1, end + 1 + size
        yield whole[start:end]


def _joined(refs: list[JobRef], items: Sequence[bytes | memoryview], *, is_first: bool) -> Iterator[_Slice]:
    """A slice of them, halves of it when that would be too large, none of nothing."""
    sizes = array("I", map(len, items))
    if len(items) > 1 and sum(sizes) + len(sizes) > _TOO_LARGE_BYTES:
        middle = len(items) // 2
        yield from _joined(refs[:middle], items[:middle], is_first=is_first)
        yield from _joined(refs[middle:], items[middle:], is_first=False)
    elif items:
        yield _Slice(refs, sizes, Part(b",".join(items if is_first else (b"", *items))))
