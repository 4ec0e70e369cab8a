"""Writes what is to outlive a job: when an attempt or the job has ended, and when the job is deleted.

The owner of the jobs does. A record is written before its line in the index, so that every line has one.
While the archive cannot be used jobs wait here; of those that are deleted meanwhile so many bytes at most.
Namespaces take turns: thousands of jobs of one hold up, or cost, no record or log of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, zip_longest
from typing import TypeVar

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.errors import ClusterError

from .backlog import Backlog, Encoded, Waiting
from .bucket import Bucket, Found, Unavailable
from .index import (
    INDEX,
    LOGS,
    RECORDS,
    UNKNOWN_NAMESPACE,
    Line,
    Place,
    day_of,
    is_part,
    place_of,
    read_line,
    read_lines,
    write_lines,
)
from .namespaces import Namespaces

log = structlog.get_logger("visibility.archive")

SETTLED_S = 10.0  # from a job's end: its last report may still be read
ROUND_S = 1.0
RETRY_S = 30.0  # while the archive cannot be used
PRUNE_S = 3600.0
AT_ONCE = 100  # jobs of one round
LOGS_AT_ONCE, LOGS_S = 8, 10.0  # of one round: a node that is slow holds up no record
EVENTS_S = 10.0  # of one round, after which records are written without Events
# Of the time that a namespace's index is read and made anew; between two rounds it waits for the rest.
INDEX_SHARE = 0.1

A = TypeVar("A")
T = TypeVar("T")

WRITTEN, UNCHANGED, FAILED, DROPPED = "Written", "Unchanged", "Failed", "Dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept of each namespace. Whole days of it are removed, by when their jobs were made."""

    age: timedelta  # since anything of the day was written
    bytes_of_namespace: int


# Takes a job's document, its history and whether it was deleted before it ended.
Encode = Callable[[JobProgress, JobHistory | None, bool], Encoded]
# The end of a job's log as a JSON object; None where there is none that may be read. Never raises.
ReadLog = Callable[[JobProgress], Awaitable[bytes | None]]
# Kubernetes Events about a job and these pods as a JSON array; b"" where none can be read. Never raises.
ReadEvents = Callable[[JobRef, Sequence[str]], Awaitable[bytes]]


class Keeper:
    """`find` and `history` return the present document of a job, and what it has reported over time.
    `deleted` are jobs that an earlier term has left to be written. `read_log`: None for no logs, and
    `read_events` for no Events."""

    def __init__(
        self,
        bucket: Bucket,
        namespaces: Namespaces,
        retention: Retention,
        *,
        encode: Encode,
        read_log: ReadLog | None,
        read_events: ReadEvents | None = None,
        find: Callable[[JobRef], JobProgress | None],
        history: Callable[[JobRef], JobHistory | None],
        may_write: Callable[[], bool],
        deleted: Backlog | None = None,
        count: Callable[[str, int], None] = lambda _outcome, _jobs: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._namespaces, self._retention = bucket, namespaces, retention
        self._encode, self._read_log, self._find, self._history = encode, read_log, find, history
        self._may_write, self._count, self._clock = may_write, count, clock
        self._read_events, self._events_until = read_events, 0.0
        self._due: dict[JobRef, float] = {}
        self._attempts: dict[JobRef, int] = {}  # of jobs that go on
        self._done: set[JobRef] = set()  # that have ended, and are written as they are
        self._written: set[JobRef] = set()  # by this process: a change of theirs is written again
        self._deleted = deleted if deleted is not None else Backlog()
        self._turns: dict[str, int] = {}  # when each namespace that waits had its last one
        self._turn = 0
        self._rests: dict[str, float] = {}  # until when a namespace waits
        self._pruned_at: float | None = None
        self.fault: str | None = None  # why nothing is written now; None while all is well

    def __len__(self) -> int:
        """How many jobs wait to be written."""
        return len(self._due) + len(self._deleted)

    def changed(self, document: JobProgress) -> None:
        """This is the latest of its job."""
        ref, attempts = document.job.ref, document.attempts or 0
        before = self._attempts.get(ref, attempts)
        self._attempts[ref] = attempts
        if document.phase.is_final or attempts > before:
            self._done.discard(ref)
            self._due[ref] = self._clock() + SETTLED_S

    def gone(self, ref: JobRef) -> None:
        """This job was deleted; its document is still there to be found."""
        self._attempts.pop(ref, None)
        self._due.pop(ref, None)
        self._written.discard(ref)
        document = self._find(ref)
        if document is None or ref in self._done:
            self._done.discard(ref)
            return
        try:
            encoded = self._encode(document, self._history(ref), not document.phase.is_final)
        except Exception as error:  # of one job: decision 0005
            log.error("deleted job not archived", job=str(ref), **describe_fault(error))
            return
        self._wait(Waiting(ref, document.job.created_at, encoded))

    async def run(self) -> None:
        """For ever; what is due at the end of this call is still written, if the archive answers at once."""
        try:
            while True:
                await asyncio.sleep(ROUND_S if self.fault is None else RETRY_S)
                if self._may_write():
                    await self.write()
        except asyncio.CancelledError:
            if self.fault is None and self._deleted and self._may_write():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUND_S):
                        await self.write(is_last=True)
            raise

    async def write(self, *, is_last: bool = False) -> None:
        """One round: what is too old, then what is due, and of that the logs unless this is the last round.

        Never raises for a fault of the archive.
        """
        try:
            if self._pruned_at is None or self._clock() - self._pruned_at >= PRUNE_S:
                self._pruned_at = self._clock()
                await self.prune()  # first: a day that cannot be written may be due to go
            self._events_until = 0.0 if is_last else self._clock() + EVENTS_S
            while batch := self._next(is_last=is_last):
                await self._write(batch, is_last=is_last)
        except (Unavailable, ClusterError) as error:
            self._fail(str(error))
        else:
            if self.fault is not None:
                log.info("archive can be used again")
            self.fault = None

    async def prune(self) -> None:
        """Remove whole days that are too old, and of a namespace that is too large the oldest. Raises
        Unavailable."""
        for namespace in await self._bucket.prefixes(RECORDS):
            for one in await self._bucket.prefixes(namespace):
                await self._prune(one.removeprefix(RECORDS))

    async def _prune(self, namespace: str) -> None:
        """One namespace, by name and uid."""
        days: dict[Place, list[Found]] = {}
        for prefix in (LOGS, RECORDS, INDEX):  # an index last, so that what it names can be found until then
            async for found in in_slices(await self._bucket.objects(prefix + namespace)):
                if (place := place_of(found.path)) is not None:
                    days.setdefault(place, []).append(found)
        oldest_kept = datetime.now(UTC) - self._retention.age
        sizes = {place: sum(each.size_bytes for each in objects) for place, objects in days.items()}
        left = sum(sizes.values())
        for place, objects in sorted(days.items()):
            await asyncio.sleep(0)
            is_old = all(each.written_at < oldest_kept for each in objects)
            if not is_old and left <= self._retention.bytes_of_namespace:
                continue
            left -= sizes[place]
            for each in objects:
                await self._bucket.delete(each.path)
            log.info("day of the archive removed", namespace=place.namespace, day=place.day)

    def _next(self, *, is_last: bool) -> list[Waiting]:
        """Namespaces in turn, and in each of them those that are deleted and those that have ended."""
        now = self._clock()
        self._rests = {namespace: until for namespace, until in self._rests.items() if until > now}
        due: dict[str, list[JobRef]] = {}
        for ref, at in self._due.items():
            if at <= now:
                due.setdefault(ref.namespace, []).append(ref)
        namespaces = {*due, *self._deleted.namespaces}
        self._turns = {namespace: self._turns.get(namespace, 0) for namespace in namespaces}
        lines = [
            _in_turn(islice(self._deleted.of(namespace), AT_ONCE), due.get(namespace, [])[:AT_ONCE])
            for namespace in sorted(namespaces, key=self._turns.__getitem__)
            if is_last or namespace not in self._rests
        ]
        batch: list[Waiting] = []
        self._turn += 1
        for ref in _in_turn(*lines)[:AT_ONCE]:
            self._turns[ref.namespace] = self._turn
            if ref in self._deleted:
                batch.append(self._deleted.take(ref))
                continue
            del self._due[ref]
            if (document := self._find(ref)) is not None:
                batch.append(Waiting(ref, document.job.created_at, None))
        return batch

    def _wait(self, kept: Waiting) -> None:
        for ref in self._deleted.add(kept):
            self._count(DROPPED, 1)
            log.error("deleted job not archived: too many wait for the archive", job=str(ref))

    def _put_back(self, batch: Iterable[Waiting]) -> None:
        for kept in batch:
            if kept.encoded is None:
                self._due.setdefault(kept.ref, 0.0)
            elif kept.ref not in self._deleted:
                self._wait(kept)

    async def _write(self, batch: list[Waiting], *, is_last: bool) -> None:
        """What one day cannot take does not hold up the others: it comes last the next time. Raises
        Unavailable, ClusterError."""
        left = dict.fromkeys(batch)
        fault: Exception | None = None
        renewed: dict[JobRef, Place] = {}
        try:
            for place, of_day in (await self._by_place(batch)).items():
                try:
                    renewed |= dict.fromkeys(await self._write_day(place, of_day), place)
                except Unavailable as error:
                    fault = error
                    continue
                for kept in of_day:
                    del left[kept]
        finally:
            self._put_back(left)
            if left:
                self._count(FAILED, len(left))
        if fault is not None:
            raise fault
        if not is_last:
            await self._write_logs(renewed)

    async def _by_place(self, batch: Iterable[Waiting]) -> dict[Place, list[Waiting]]:
        places: dict[Place, list[Waiting]] = {}
        for kept in batch:
            found = await self._namespaces.find(kept.ref.namespace)
            uid = found.uid if found is not None else ""
            made_at = found.creation_timestamp if found is not None else None
            if not uid or (made_at is not None and kept.created_at is not None and kept.created_at < made_at):
                uid = UNKNOWN_NAMESPACE  # the job is of an earlier one of that name
            place = Place(kept.ref.namespace, uid, day_of(kept.created_at))
            places.setdefault(place, []).append(kept)
        return places

    async def _write_logs(self, shown: Mapping[JobRef, Place]) -> None:
        """Of jobs that exist, after their records. Raises Unavailable."""
        if self._read_log is None or not shown:
            return
        read_log, queue = self._read_log, FairQueue[JobRef](at_a_time=LOGS_AT_ONCE, per_node=LOGS_AT_ONCE)
        for ref in shown:
            queue.push(ref, namespace=ref.namespace, node=None)
        found: dict[JobRef, bytes | None] = {}

        async def read(ref: JobRef) -> None:
            try:
                document = self._find(ref)
                found[ref] = None if document is None else await read_log(document)
            except Exception as error:  # of one job: decision 0005
                log.error("log of a job not archived", job=str(ref), **describe_fault(error))
            queue.release(ref)
            begin()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOGS_S), asyncio.TaskGroup() as group:

                def begin() -> None:
                    while (ref := queue.pop()) is not None:
                        group.create_task(read(ref), name=f"log of {ref}")

                begin()
        for ref, content in found.items():
            if content is not None:
                await self._bucket.put(shown[ref].log_path(ref.uid), content)

    async def _write_day(self, place: Place, batch: Iterable[Waiting]) -> list[JobRef]:
        """Which jobs that exist have a new record."""
        content = await self._bucket.get(place.index_path) or b""
        lines = await self._aside(place, read_lines, content)
        news: dict[str, Line] = {}
        shown: list[JobRef] = []  # as they are now
        renewed: list[JobRef] = []  # of these
        for kept in batch:
            await asyncio.sleep(0)  # one history takes some milliseconds
            encoded, document = kept.encoded, self._find(kept.ref)
            try:
                if encoded is None:
                    if document is None:
                        continue  # deleted meanwhile: it waits as such
                    encoded = self._encode(document, self._history(kept.ref), False)
                line = read_line(encoded.line)
            except Exception as error:  # of one job: decision 0005
                log.error("job not archived", job=str(kept.ref), **describe_fault(error))
                continue
            before = lines.get(line.uid)
            if before is None or before.content != line.content or kept.ref in self._written:
                if not is_part(line.uid):
                    continue
                await self._bucket.put(
                    place.record_path(line.uid), await self._with_events(kept.ref, encoded) + b"\n"
                )
                news[line.uid] = line
                if kept.encoded is None:
                    renewed.append(kept.ref)
            else:
                self._count(UNCHANGED, 1)
            if kept.encoded is None:
                shown.append(kept.ref)
        if news:
            index = await self._aside(place, write_lines, (lines | news).values())
            await self._bucket.put(place.index_path, index)
            self._count(WRITTEN, len(news))
        for ref in shown:  # not before: until then a job that is deleted has to be written once more
            if (now := self._find(ref)) is not None:
                self._written.add(ref)
                if now.phase.is_final and ref not in self._due:
                    self._done.add(ref)
        return renewed

    async def _with_events(self, ref: JobRef, encoded: Encoded) -> bytes:
        if self._read_events is None or self._clock() >= self._events_until:
            return encoded.record
        try:
            events = await self._read_events(ref, encoded.pods)
        except Exception as error:  # of one job: decision 0005
            log.error("events of a job not archived", job=str(ref), **describe_fault(error))
            return encoded.record
        return encoded.record if len(events) < 3 else b'%s,"events":%s}' % (encoded.record[:-1], events)

    async def _aside(self, place: Place, function: Callable[[A], T], argument: A) -> T:
        """In the thread that all share. What it takes is the namespace's to wait for."""
        began = self._clock()
        found = await asyncio.to_thread(function, argument)
        now = self._clock()
        until = max(now, self._rests.get(place.namespace, now)) + (now - began) * (1 / INDEX_SHARE - 1)
        self._rests[place.namespace] = until
        return found

    def _fail(self, reason: str) -> None:
        if reason != self.fault:
            log.error("archive cannot be used, jobs wait for it", reason=reason, waiting=len(self))
        self.fault = reason


def _in_turn(*lines: Iterable[JobRef]) -> list[JobRef]:
    """The first of each, then the second of each."""
    return [ref for turn in zip_longest(*lines) for ref in turn if ref is not None]
