"""What is read of the archive, by every replica."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter, lt
from weakref import WeakValueDictionary

import structlog
from cachetools import LRUCache, TTLCache

from .bucket import Bucket, Damaged, Found, Unavailable
from .index import INDEX, Line, Place, place_of, read_lines, write_lines
from .namespaces import Namespaces

log = structlog.get_logger("visibility.archive")

MAX_CACHED_BYTES = 96 * 1024 * 1024  # of indexes
READ_AT_ONCE, LARGE_BYTES = 16, 64 * 1024  # indexes; all of them, compressed: some 1,200 jobs
MAX_LIST_BYTES = 192 * 1024 * 1024  # of what one list looks through: some 175,000 jobs
MAX_SIZES = 4096  # of indexes that are known
# A namespace whose index took longer to parse waits for so many times as long before its next one.
QUICK_S, PAUSE = 0.005, 2.0
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
        self._sizes: LRUCache[str, tuple[str, int]] = LRUCache(MAX_SIZES)  # with their tags
        # By path and namespace: each is read once for all who ask, those of a namespace are parsed in turn.
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def newest(
        self,
        namespace: str | None,
        most: int,
        choose: Callable[[Iterable[Line]], Awaitable[list[Line]]] | None = None,
    ) -> list[Line]:
        """The jobs of a namespace, or of all, that ended last, the last first: `most` of them, and of those
        of each day only what `choose` leaves.

        Of a namespace that exists only what belongs to it, not to an earlier one of its name.
        """
        kept: list[Line] = []
        async for _, lines in self._days(namespace):
            later: Iterable[Line] = lines
            if len(kept) == most:
                later = itertools.takewhile(partial(lt, kept[-1][:3]), lines)
            chosen = list(later) if choose is None else await choose(later)
            merged = heapq.merge(kept, chosen, key=_order, reverse=True)
            kept = list(itertools.islice(merged, most))
        return kept

    async def find(self, namespace: str, name: str) -> Filed | None:
        """The job whose record has this name."""
        async for place, lines in self._days(namespace):
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

    async def _days(self, namespace: str | None) -> AsyncIterator[tuple[Place, Sequence[Line]]]:
        """The latest first. Few are in memory at a time: together they may need more than there is."""
        prefix = INDEX if namespace is None else f"{INDEX}{namespace}/"
        if namespace is not None and (found := await self._namespaces.find(namespace)) is not None:
            prefix += f"{found.uid}/"
        if (listed := self._listed.get(prefix)) is None:
            listed = self._listed[prefix] = (await self._bucket.objects(prefix))[::-1]
        size = sum(map(self._known_size, listed))  # of what was read before, and then of all
        _check(size)
        for some in _read_together(listed):
            known = sum(self._known_size(each) for _, each in some)
            read = await asyncio.gather(*(self._read(place, each) for place, each in some))
            size += sum(map(_size_of_lines, read)) - known
            _check(size)
            for (place, _), lines in zip(some, read, strict=True):
                yield place, lines

    def _known_size(self, found: Found) -> int:
        tag, size = self._sizes.get(found.path, ("", 0))
        return size if tag == found.tag else 0

    async def _read(self, place: Place, found: Found) -> Sequence[Line]:
        async with self._reading.setdefault(found.path, asyncio.Lock()):
            tag, lines = self._lines.get(found.path, ("", []))
            return lines if tag == found.tag and tag else await self._read_anew(place, found)

    async def _read_anew(self, place: Place, found: Found) -> Sequence[Line]:
        try:
            content = await self._bucket.get(found.path) or b""
        except Damaged as error:  # said once: what was read of it is kept
            log.error("a day of the archive is left out of lists", reason=str(error))
            content = b""
        async with self._reading.setdefault(place.namespace, asyncio.Lock()):
            lines, took_s = await asyncio.to_thread(_sorted, content)  # of thousands of jobs it takes long
            if took_s > QUICK_S:
                await asyncio.sleep(PAUSE * took_s)
        size = _size_of_lines(lines)
        if size < MAX_CACHED_BYTES:
            self._lines[found.path] = found.tag, lines
        if size > LARGE_BYTES:
            self._sizes[found.path] = found.tag, size
        return lines


def _check(size: int) -> None:
    """Raises Unavailable."""
    if size > MAX_LIST_BYTES:
        raise Unavailable(f"a list may look through {MAX_LIST_BYTES >> 20} MiB of records: ask by namespace")


def _read_together(listed: Iterable[Found]) -> Iterator[list[tuple[Place, Found]]]:
    """Few, or small ones, whose lines are in memory together."""
    some: list[tuple[Place, Found]] = []
    size = 0
    for each in listed:
        if (place := place_of(each.path)) is None:
            continue
        size += each.size_bytes
        if some and (len(some) == READ_AT_ONCE or size > LARGE_BYTES):
            yield some
            some, size = [], each.size_bytes
        some.append((place, each))
    if some:
        yield some


def _sorted(content: bytes) -> tuple[list[Line], float]:
    """And the seconds of CPU time that it took."""
    began = time.thread_time()
    return sorted(read_lines(content).values(), key=_order, reverse=True), time.thread_time() - began


_order = attrgetter("ended", "name", "uid")


def _size(cached: tuple[str, Iterable[Line]]) -> int:
    return _size_of_lines(cached[1]) + 1


def _size_of_lines(lines: Iterable[Line]) -> int:
    return sum(len(line.content) + _PER_LINE_BYTES for line in lines)
