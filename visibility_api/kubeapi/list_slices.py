"""The items of a list in slices, and how they follow the store's changes.

A slice without a change is used for the next revision as well. The cost of a list therefore depends on how
many documents changed since the last request, not on how many there are.

What takes long is a generator that yields whenever other tasks should run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar

import msgspec

from visibility_api.jobs.job import JobRef
from visibility_api.kubeapi.selectors.selection import Selection
from visibility_api.store import Change, Entry

from .compression import Part
from .list_layout import Layout

T = TypeVar("T")
Steps = Generator[None, None, T]  # each step is short; returns the result

ITEMS_A_SLICE = 100
SLICE_BYTES = 116 * 1024
# uvicorn would write a larger slice, whose documents have grown, in two pieces, one of them small.
TOO_LARGE_BYTES = 125 * 1024
# After so many, half a millisecond, other tasks run. As many slices are joined as documents encoded.
_ENCODED_AT_ONCE, _CHANGES_AT_ONCE, _MATCHED_AT_ONCE = 8, 512, 512


class Slice(msgspec.Struct, frozen=True):
    """Some items of a list, in order."""

    refs: list[JobRef]  # of its items; not the documents, which would stay in memory
    sizes: array[int]  # of its items, in bytes
    items: Part  # each with a separator before it, except the first of a list


class State(msgspec.Struct, frozen=True):
    """A whole list, without its head and end."""

    revision: int
    slices: list[Slice]
    size_bytes: int
    first_mean_bytes: float  # of a slice, when all of them were built last
    made_at: datetime  # the time that its ages are of

    @property
    def count(self) -> int:
        """The number of items."""
        return sum(len(slice_.refs) for slice_ in self.slices)


def build(
    layout: Layout, revision: int, entries: Sequence[Entry], selection: Selection, now: datetime
) -> Steps[State]:
    """The list of those `entries` that match."""
    slices: list[Slice] = []
    for chosen in _grouped(layout, entries, selection):
        if chosen:
            refs = [entry.document.job.ref for entry, _ in chosen]
            slices += _joined(layout, refs, [item for _, item in chosen], is_first=not slices)
        else:
            yield
    size_bytes = _size_bytes(slices)
    return State(revision, slices, size_bytes, size_bytes / max(1, len(slices)), now)


def follow(layout: Layout, held: State, revision: int, latest: Mapping[JobRef, Entry | None]) -> Steps[State]:
    """`held` with the latest entry of each job that changed; None = it is gone, or matches no longer."""
    slices = yield from _changed(layout, held.slices, latest)
    return State(revision, slices, _size_bytes(slices), held.first_mean_bytes, held.made_at)


def latest_of(
    changes: Sequence[Change], namespace: str | None, selection: Selection
) -> Steps[dict[JobRef, Entry | None]]:
    """The current entry of each job of `namespace` that changed; None = gone, or matches no longer."""
    latest: dict[JobRef, Entry | None] = {}
    for count, change in enumerate(changes, start=1):
        ref = change.entry.document.job.ref
        if namespace is None or ref.namespace == namespace:
            is_shown = change.type != "DELETED" and selection.matches(change.entry.document)
            latest[ref] = change.entry if is_shown else None
        if count % _CHANGES_AT_ONCE == 0:
            yield
    return latest


def page(
    layout: Layout, state: State, after: JobRef | None, limit: int
) -> tuple[list[bytes], JobRef | None, int]:
    """The items after `after`, at most `limit` of them if it is not 0.

    Returns their bytes, the last one's reference, and how many come after it.
    """
    if after is None and not limit:
        return [slice_.items for slice_ in state.slices], None, 0
    parts: list[bytes] = []
    left, last, rest = limit or state.count, None, 0
    for number, slice_ in enumerate(state.slices):
        refs = slice_.refs
        start = 0 if after is None else bisect_right(refs, after)
        end = min(len(refs), start + left)
        rest += len(refs) - max(start, end)
        if start >= end:
            continue
        left -= end - start
        last = refs[end - 1]
        if end - start == len(refs) and (parts or not number):
            parts.append(slice_.items)
        else:
            items = list(islice(_cut(layout, slice_, is_first=not number), start, end))
            parts.append(layout.separator.join([b"", *items] if parts else items))
    return parts, last, rest


def _grouped(
    layout: Layout, entries: Sequence[Entry], selection: Selection
) -> Iterator[Sequence[tuple[Entry, bytes]]]:
    """The items by slices, and () whenever other tasks should run."""
    write, is_all = layout.items(), selection.is_everything
    group: list[tuple[Entry, bytes]] = []
    size = written = 0
    for count, entry in enumerate(entries, start=1):
        if count % _MATCHED_AT_ONCE == 0:
            yield ()
        if not is_all and not selection.matches(entry.document):
            continue
        item = write(entry)
        size += len(item) + 1
        if group and (size > SLICE_BYTES or len(group) == ITEMS_A_SLICE):
            yield group
            group, size = [], len(item) + 1
        group.append((entry, item))
        written += 1
        if written % layout.items_at_once == 0:
            yield ()
    if group:
        yield group


def _changed(
    layout: Layout, slices: Sequence[Slice], latest: Mapping[JobRef, Entry | None]
) -> Steps[list[Slice]]:
    firsts = [slice_.refs[0] for slice_ in slices]
    of_slice: dict[int, dict[JobRef, Entry | None]] = {}
    for count, (ref, entry) in enumerate(latest.items(), start=1):
        number = max(0, bisect_right(firsts, ref) - 1)
        of_slice.setdefault(number, {})[ref] = entry
        if count % _CHANGES_AT_ONCE == 0:
            yield
    write = layout.items()
    at_once = min(_ENCODED_AT_ONCE, layout.items_at_once)
    made: list[Slice] = []
    encoded = 0
    for number, held in enumerate(slices):
        if number not in of_slice and (made or not number):
            made.append(held)
            continue
        refs, items = held.refs[:], list(_cut(layout, held, is_first=not number))
        for ref, entry in of_slice.get(number, {}).items():
            place = bisect_left(refs, ref)
            end = place + (refs[place : place + 1] == [ref])
            refs[place:end] = [ref] if entry is not None else []
            items[place:end] = [write(entry)] if entry is not None else []
            encoded += 1
            if encoded % at_once == 0:
                yield
        made += _joined(layout, refs, items, is_first=not made)
    return made


def _size_bytes(slices: Sequence[Slice]) -> int:
    return sum(len(slice_.items) for slice_ in slices)


def _cut(layout: Layout, slice_: Slice, *, is_first: bool) -> Iterator[bytes | memoryview]:
    """The items of a slice, one by one; `is_first` of its list."""
    whole, gap = memoryview(slice_.items), len(layout.separator)
    end = -gap if is_first else 0
    for size in slice_.sizes:
        start, end = end + gap, end + gap + size
        yield whole[start:end]


def _joined(
    layout: Layout, refs: list[JobRef], items: Sequence[bytes | memoryview], *, is_first: bool
) -> Iterator[Slice]:
    """One slice, two or more when it would be too large, none without items."""
    sizes = array("I", map(len, items))
    if len(items) > 1 and sum(sizes) + len(sizes) > TOO_LARGE_BYTES:
        middle = len(items) // 2
        yield from _joined(layout, refs[:middle], items[:middle], is_first=is_first)
        yield from _joined(layout, refs[middle:], items[middle:], is_first=False)
    elif items:
        yield Slice(refs, sizes, Part(layout.separator.join(items if is_first else (b"", *items))))
