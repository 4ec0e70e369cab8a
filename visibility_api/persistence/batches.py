"""The states that were written last: those of one moment together in few rows, in the order of writing.

Thousands of jobs report in turn. To change a row of each costs as much as to make the states; to append a row
for all of them a tenth of it. The oldest batch goes when there are too many: most of its jobs are in a later
one by then, and the others get a row of their own.
"""

from __future__ import annotations

import math
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import structlog

from visibility_api.jobs.job import JobRef

log = structlog.get_logger("visibility.state")

TABLE = "batches"
CREATE = """
CREATE TABLE batches (
    id INTEGER PRIMARY KEY,
    updated INTEGER NOT NULL,  -- seconds since 1970, when it was written
    states BLOB NOT NULL  -- MessagePack: an array of rows
)
"""
BATCH_BYTES = 256 * 1024  # of the jobs in one row; it has one more at most
BATCH_ROWS = 1024
_ROW_BYTES = 64  # of the rest of a row, about
MAX_ROWS = 100_000  # in all batches: ten of each job that one server is made for


class TooMany(Exception):
    """There are more of them than this server writes."""


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of one job, or its history; in a batch None: the job is gone."""

    uid: str
    resource: str
    namespace: str
    name: str
    updated: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    format: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    state: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[list[Row]] = msgspec.msgpack.Decoder(
    Annotated[list[Row], msgspec.Meta(max_length=BATCH_ROWS)]
)


@dataclass(slots=True, kw_only=True)
class _Batch:
    id: int
    updated: int  # seconds since 1970
    size: int  # bytes
    rows: int
    live: int  # of its rows, those that no later batch has


class Batches:
    """The batches of one file. `load` is called first, and again when a transaction is undone."""

    def __init__(self, connection: sqlite3.Connection, *, max_bytes: int) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._queue: deque[_Batch] = deque()
        self._latest: dict[str, _Batch] = {}  # by uid: which batch has its state
        self._size = self._rows = 0
        self._loaded: list[Row] | None = None  # as they were read last; None once that is not so, or was used

    def states(self) -> list[Row]:
        """The latest state of each job in them. Raises sqlite3.Error, TooMany."""
        if self._loaded is None:
            self.load()
        states, self._loaded = self._loaded or [], None
        return states

    def load(self) -> None:
        """Read which are there. Raises sqlite3.Error, TooMany."""
        self._queue.clear()
        self._latest.clear()
        self._loaded = None
        self._size = self._rows = 0
        latest: dict[str, Row] = {}
        unread = 0
        for id_, updated, size, rows in self._read():
            self._note(id_, updated, size, rows)
            latest.update((row.uid, row) for row in rows)
            unread += not rows
            if self._rows > 2 * MAX_ROWS:
                raise TooMany
        if unread:
            log.warning("states in the data directory cannot be read and are passed over", batches=unread)
        self._loaded = [row for row in latest.values() if row.state is not None]

    @property
    def oldest(self) -> float:
        """When the oldest of them was written, in seconds since 1970; infinity if there is none."""
        return self._queue[0].updated if self._queue else math.inf

    def __contains__(self, uid: object) -> bool:
        return uid in self._latest

    def append(self, rows: Iterable[Row], gone: Sequence[JobRef], now: int) -> list[Row]:
        """Write these; returns the rows that go out of the oldest batches, to be written elsewhere.

        Raises sqlite3.Error.
        """
        self._loaded = None
        removed = [Row(ref.uid, "", "", "", now, 0, None) for ref in gone if ref.uid in self._latest]
        for batch in _portions([*rows, *removed]):
            states = _encode(batch)
            cursor = self._connection.execute(
                "INSERT INTO batches (updated, states) VALUES (?, ?)", (now, states)
            )
            self._note(cursor.lastrowid or 0, now, len(states), batch)
        left: list[Row] = []
        while self._queue and (self._size > self._max_bytes or self._rows > MAX_ROWS):
            left += self.take_oldest()
        return left

    def take_oldest(self) -> list[Row]:
        """Remove the oldest; returns those of its states that no later one has. Raises sqlite3.Error."""
        if not self._queue:
            return []
        self._loaded = None
        oldest = self._queue.popleft()
        self._size -= oldest.size
        self._rows -= oldest.rows
        left: list[Row] = []
        if oldest.live:
            for row in self._rows_of(oldest.id):
                if self._latest.get(row.uid) is oldest:
                    del self._latest[row.uid]
                    left.append(row)
        self._connection.execute("DELETE FROM batches WHERE id = ?", (oldest.id,))
        return [row for row in left if row.state is not None]

    def _note(self, id_: int, updated: int, size: int, rows: Sequence[Row]) -> None:
        batch = _Batch(id=id_, updated=updated, size=size, rows=len(rows), live=0)
        latest = self._latest
        for row in rows:
            before = latest.get(row.uid)
            if before is not batch:
                if before is not None:
                    before.live -= 1
                latest[row.uid] = batch
                batch.live += 1
        self._queue.append(batch)
        self._size += size
        self._rows += len(rows)

    def _read(self) -> Iterator[tuple[int, int, int, list[Row]]]:
        """Identity, time and size of each, and what is in it."""
        found = self._connection.execute("SELECT id, updated, states FROM batches ORDER BY id")
        for id_, updated, states in found:
            size = len(states) if isinstance(states, bytes) else 0
            yield id_, updated if isinstance(updated, int) else 0, size, _rows_in(states)

    def _rows_of(self, id_: int) -> list[Row]:
        found = self._connection.execute("SELECT states FROM batches WHERE id = ?", (id_,)).fetchone()
        return _rows_in(found[0]) if found is not None else []


def _rows_in(states: object) -> list[Row]:
    try:
        if not isinstance(states, bytes):
            raise ValueError("not a blob")
        return _decoder.decode(states)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # of UTF-8 too
        return []


def _portions(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """In their order, so many together as one row of the table has."""
    portion: list[Row] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += len(row.state or b"") + len(row.uid) + len(row.namespace) + len(row.name) + _ROW_BYTES
        if size >= BATCH_BYTES or len(portion) == BATCH_ROWS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
