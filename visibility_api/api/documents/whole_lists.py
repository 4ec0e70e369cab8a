"""The body of a list of everything, in compact JSON: what dashboards and caches ask for again and again.

Its items are joined in slices, and a slice in which no item has changed serves the next state as well. So
what such a list costs does not depend on how many jobs there are, but on how many changed, and on its bytes.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec
from cachetools import LRUCache

from visibility_api.api.compression import Part
from visibility_api.store import Entry

from .forms import Form
from .list_body import grouped

MAX_KEPT_BYTES = 64 * 1024 * 1024  # of all namespaces and forms together; 42,000 jobs' documents
# The server below would write a larger slice in two pieces, one of them small: its documents have grown.
_TOO_LARGE_BYTES = 125 * 1024

Key = tuple[str | None, str]  # namespace, None = all of them; form


class _Slice(msgspec.Struct, frozen=True):
    revisions: list[int]  # of its entries: no two entries share one
    sizes: array[int]  # of its items, each with the comma before it; only the first of a list has none
    items: Part  # joined


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
    revisions = [entry.revision for entry in entries]
    place = 0
    if sum(len(held.revisions) for held in before) != len(entries):
        for items in grouped(form, entries):
            end = place + len(items)
            yield _join(revisions[place:end], items, is_first=place == 0), True
            place = end
        return
    for held in before:
        end = place + len(held.revisions)
        now = revisions[place:end]
        if now == held.revisions:
            yield held, False
        else:
            changed = {
                number: form.item(entries[place + number])
                for number, (old, new) in enumerate(zip(held.revisions, now, strict=True))
                if old != new
            }
            for slice_ in _fitting(_replace(held, now, changed, is_first=place == 0)):
                yield slice_, True
        place = end


def _join(revisions: list[int], items: list[bytes], *, is_first: bool) -> _Slice:
    sizes = array("I", [len(item) + 1 for item in items])
    if is_first:
        sizes[0] -= 1
    return _Slice(revisions, sizes, Part(b",".join(items if is_first else [b"", *items])))


def _replace(held: _Slice, revisions: list[int], changed: Mapping[int, bytes], *, is_first: bool) -> _Slice:
    """`held` with these items, by number, in place of others. The rest is one piece of memory already: half
    the work of collecting it item by item."""
    bounds = list(accumulate(held.sizes, initial=0))
    sizes, old, kept_from = held.sizes[:], memoryview(held.items), 0
    pieces: list[bytes | memoryview] = []
    for number, item in changed.items():
        comma = b"" if is_first and number == 0 else b","
        pieces += (old[kept_from : bounds[number]], comma, item)
        sizes[number] = len(comma) + len(item)
        kept_from = bounds[number + 1]
    pieces.append(old[kept_from:])
    return _Slice(revisions, sizes, Part(b"".join(pieces)))


def _fitting(slice_: _Slice) -> Iterator[_Slice]:
    """It, or halves of it when its documents have grown too large for one."""
    middle = len(slice_.sizes) // 2
    if not middle or len(slice_.items) <= _TOO_LARGE_BYTES:
        yield slice_
        return
    bound = sum(slice_.sizes[:middle])
    for part, piece in ((slice(middle), slice_.items[:bound]), (slice(middle, None), slice_.items[bound:])):
        yield from _fitting(_Slice(slice_.revisions[part], slice_.sizes[part], Part(piece)))


def _size_bytes(slices: Sequence[_Slice]) -> int:
    return sum(len(slice_.items) for slice_ in slices)
