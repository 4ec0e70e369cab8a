"""What is read of the archive, by every replica."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from weakref import WeakValueDictionary

import structlog
from cachetools import LRUCache, TTLCache

from .bucket import Bucket, Damaged, Found, Unavailable
from .index import INDEX, Line, Place, place_of, read_lines, write_lines
from .namespaces import Namespaces

log = structlog.get_logger("visibility.archive")

MAX_CACHED_BYTES = 96 * 1024 * 1024  # of indexes
READ_AT_ONCE = 16  # indexes; then other tasks run
LARGE_BYTES = 256 * 1024  # compressed: 5,000 jobs
MAX_LIST_BYTES = 192 * 1024 * 1024  # of what one list looks through: some 175,000 jobs
LISTED_S = 5.0  # a job that has ended is in lists so much later
_PER_LINE_BYTES = 400  # beside its content

Filed = tuple[Place, Line]


class Shelf:
    """The records of one archive. All methods raise Unavailable; those of a namespace ClusterError too."""

    def __init__(
        self, bucket: Bucket, namespaces: Namespaces, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bucket, self._namespaces = bucket, namespaces
        self._lines: LRUCache[str, tuple[str, list[Line]]] = LRUCache(MAX_CACHED_BYTES, getsizeof=_size)
        self._listed: TTLCache[str, list[Found]] = TTLCache(1024, LISTED_S, timer=clock)
        # By path, and of large ones by namespace: each is read once for all who ask, and of those one by one.
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def lines(self, namespace: str | None) -> Iterator[Filed]:
        """The jobs of a namespace, or of all: those that ended last first, each found as it is asked for.

        Of a namespace that exists only what belongs to it, not to an earlier one of its name.
        """
        days = await self._days(namespace)
        return heapq.merge(
            *(zip(itertools.repeat(place), lines) for place, lines in days),
            key=lambda filed: _order(filed[1]),
            reverse=True,
        )

    async def find(self, namespace: str, name: str) -> Filed | None:
        """The job whose record has this name."""
        for place, lines in await self._days(namespace):
            for line in lines:
                if line.name == name:
                    return place, line
        return None

    async def record(self, place: Place, line: Line) -> bytes | None:
        """All that is known of it; None if it is gone."""
        return await self._bucket.get(place.record_path(line.uid))

    async def log(self, place: Place, line: Line) -> bytes | None:
        """The end of its log; None if none is kept."""
        return await self._bucket.get(place.log_path(line.uid))

    async def remove(self, place: Place, line: Line) -> None:
        """Remove its log and its record, then its line."""
        await self._bucket.delete(place.log_path(line.uid))
        await self._bucket.delete(place.record_path(line.uid))
        content = await self._bucket.get(place.index_path) or b""
        lines = await asyncio.to_thread(read_lines, content)
        if lines.pop(line.uid, None) is not None:
            await self._bucket.put(place.index_path, await asyncio.to_thread(write_lines, lines.values()))
        self._listed.clear()

    async def _days(self, namespace: str | None) -> list[tuple[Place, Sequence[Line]]]:
        prefix = INDEX if namespace is None else f"{INDEX}{namespace}/"
        if namespace is not None and (found := await self._namespaces.find(namespace)) is not None:
            prefix += f"{found.uid}/"
        if (listed := self._listed.get(prefix)) is None:
            listed = self._listed[prefix] = await self._bucket.objects(prefix)
        days: list[tuple[Place, Sequence[Line]]] = []
        size = 0
        for start in range(0, len(listed), READ_AT_ONCE):
            some = [
                (place, each)
                for each in listed[start : start + READ_AT_ONCE]
                if (place := place_of(each.path)) is not None
            ]
            lines = await asyncio.gather(*(self._read(place, each) for place, each in some))
            days += [(place, each) for (place, _), each in zip(some, lines, strict=True)]
            size += sum(map(_size_of_lines, lines))
            if size > MAX_LIST_BYTES:
                raise Unavailable(
                    f"a list may look through {MAX_LIST_BYTES >> 20} MiB of records: ask by namespace"
                )
        return days

    async def _read(self, place: Place, found: Found) -> Sequence[Line]:
        key = place.namespace if found.size_bytes > LARGE_BYTES else found.path
        async with self._reading.setdefault(key, asyncio.Lock()):
            tag, lines = self._lines.get(found.path, ("", []))
            return lines if tag == found.tag and tag else await self._read_anew(found)

    async def _read_anew(self, found: Found) -> Sequence[Line]:
        try:
            content = await self._bucket.get(found.path) or b""
        except Damaged as error:  # said once: what was read of it is kept
            log.error("a day of the archive is left out of lists", reason=str(error))
            content = b""
        lines = await asyncio.to_thread(_sorted, content)  # of thousands of jobs it takes long
        if _size((found.tag, lines)) <= MAX_CACHED_BYTES:
            self._lines[found.path] = found.tag, lines
        return lines


def _sorted(content: bytes) -> list[Line]:
    return sorted(read_lines(content).values(), key=_order, reverse=True)


_order = attrgetter("ended", "name", "uid")


def _size(cached: tuple[str, Iterable[Line]]) -> int:
    return _size_of_lines(cached[1]) + 1


def _size_of_lines(lines: Iterable[Line]) -> int:
    return sum(len(line.content) + _PER_LINE_BYTES for line in lines)
