"""The body of a list of everything, in compact JSON: what dashboards and caches ask for again and again.

Its items are joined in slices, and a slice in which no item has changed serves the next state as well. So
what such a list costs does not depend on how many jobs there are, but on how many changed, and on its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec
from cachetools import LRUCache

from visibility_api.api.compression import Part
from visibility_api.store import Entry

from .forms import Form
from .list_body import grouped

MAX_KEPT_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together; 34,000 jobs' documents
# The server below would write a larger slice in two pieces, one of them small: its documents have grown.
_TOO_LARGE_BYTES = 125 * 1024

Key = tuple[str | None, str]  # namespace, None = all of them; form


class _Slice(msgspec.Struct, frozen=True):
    revisions: list[int]  # of its entries: no two entries share one
    items: Part  # joined; with a leading comma unless it is the first


class WholeLists:
    """Makes bodies of one resource; the slices of the least recently used lists go first."""

    def __init__(self, *, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._kept: LRUCache[Key, list[_Slice]] = LRUCache(max_kept_bytes, getsizeof=_size_bytes)

    async def body(
        self, form: Form, namespace: str | None, list_meta: bytes, entries: Sequence[Entry]
    ) -> list[bytes]:
        """All of `entries`, which are those of `namespace`, in a form that is timeless."""
        key = (namespace, form.key)
        before = self._kept.get(key, [])
        made = []
        for slice_, is_new in _slices(form, entries, before):
            made.append(slice_)
            if is_new:
                await asyncio.sleep(0)  # others' turn
        if 0 < _size_bytes(made) <= self._kept.maxsize:
            self._kept[key] = made
        return [form.head(list_meta), *[slice_.items for slice_ in made], b"]}\n"]


def _slices(form: Form, entries: Sequence[Entry], before: Sequence[_Slice]) -> Iterator[tuple[_Slice, bool]]:
    """Each with whether it was made now. A job that came or went moves all others: then all are."""
    if sum(len(held.revisions) for held in before) != len(entries):
        place = 0
        for items in grouped(form, entries):
            yield _join(entries[place : place + len(items)], items, is_first=place == 0), True
            place += len(items)
        return
    place = 0
    for held in before:
        here = entries[place : place + len(held.revisions)]
        if [entry.revision for entry in here] == held.revisions:
            yield held, False
        else:
            for slice_ in _joined(form, here, is_first=place == 0):
                yield slice_, True
        place += len(here)


def _joined(form: Form, entries: Sequence[Entry], *, is_first: bool) -> Iterator[_Slice]:
    """One slice, or halves of it when its documents have grown too large for one."""
    items = [form.item(entry) for entry in entries]
    if len(items) > 1 and sum(map(len, items)) > _TOO_LARGE_BYTES:
        middle = len(items) // 2
        yield from _joined(form, entries[:middle], is_first=is_first)
        yield from _joined(form, entries[middle:], is_first=False)
    else:
        yield _join(entries, items, is_first=is_first)


def _join(entries: Sequence[Entry], items: list[bytes], *, is_first: bool) -> _Slice:
    joined = b",".join(items if is_first else [b"", *items])
    return _Slice(revisions=[entry.revision for entry in entries], items=Part(joined))


def _size_bytes(slices: Sequence[_Slice]) -> int:
    return sum(len(slice_.items) for slice_ in slices)
