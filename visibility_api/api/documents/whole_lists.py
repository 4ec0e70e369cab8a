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
# Documents have grown since the slices were cut. The server below would write a larger slice in two pieces,
# the second of them small; a write costs the same whatever its size.
_TOO_LARGE_BYTES = 110 * 1024

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
    if not _fit(before, len(entries)):
        yield from _cut(form, entries)
        return
    place = 0
    for held in before:
        here = entries[place : place + len(held.revisions)]
        revisions = [entry.revision for entry in here]
        if revisions == held.revisions:
            yield held, False
        else:
            yield _join(revisions, [form.item(entry) for entry in here], is_first=place == 0), True
        place += len(here)


def _cut(form: Form, entries: Sequence[Entry]) -> Iterator[tuple[_Slice, bool]]:
    place = 0
    for items in grouped(form, entries):
        revisions = [entry.revision for entry in entries[place : place + len(items)]]
        yield _join(revisions, items, is_first=place == 0), True
        place += len(items)


def _join(revisions: list[int], items: list[bytes], *, is_first: bool) -> _Slice:
    return _Slice(revisions=revisions, items=Part(b",".join(items if is_first else [b"", *items])))


def _fit(slices: Sequence[_Slice], number: int) -> bool:
    return sum(len(held.revisions) for held in slices) == number and all(
        len(held.items) <= _TOO_LARGE_BYTES for held in slices
    )


def _size_bytes(slices: Sequence[_Slice]) -> int:
    return sum(len(slice_.items) for slice_ in slices)
