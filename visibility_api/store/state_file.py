"""The SQLite file of the data directory: opening, reading, writing, bounds, and files that are not ours.

All calls block, and come from one thread at a time. A file that cannot be what this version has written is
renamed, never read and never deleted; a directory that cannot be used raises `Unavailable`, and may be tried
again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import SavedJob

log = structlog.get_logger("visibility.state")

FILE, LOCK, ASIDE = "state.sqlite3", "lock", "set-aside-"
APPLICATION_ID = (
    0x544A5650  # "TJVP", in the file's header: https://www.sqlite.org/fileformat.html#application_id
)
SCHEMA_VERSION = 4  # of the tables; a file of another version is set aside
_TABLE = """
CREATE TABLE {} (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    updated INTEGER NOT NULL,  -- seconds since 1970, when it was written
    format INTEGER NOT NULL,
    state BLOB NOT NULL
)
"""
# What histories have gained since they were written whole, in this order.
_POINTS = """
CREATE TABLE points (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL,
    points BLOB NOT NULL
)
"""
_POINTS_BY_JOB = "CREATE INDEX points_by_job ON points (uid)"
_JOBS, _HISTORIES = "jobs", "histories"  # the history of a job, in the same form as its state
_TABLES = (_JOBS, _HISTORIES)
# What this server never makes: views, triggers and virtual tables may compute without end.
_MADE_UP = "SELECT 1 FROM sqlite_schema WHERE type IN ('view', 'trigger') OR type = 'table' AND rootpage = 0"
CHECKPOINT_BYTES = 32 * 1024 * 1024  # pages that changed again meanwhile are written to the main file once
MAX_STATE_BYTES = 256 * 1024  # of one job; four times the largest document
MAX_NAME_BYTES = 1024  # of what names a job: resource, namespace, name and uid together
MAX_LOADED_BYTES = (
    256 * 1024 * 1024
)  # of all states, and of all histories: what may be held until the jobs are known
LARGE_STATE_BYTES = 16 * 1024  # those go first when the file is full
KEPT_ASIDE = 2  # files that were set aside last
_EVICTED_SHARE = 10  # a tenth of the rows makes room
_MOST_TIMES = 4  # a file so many times its limit is not read: its limit may have been lowered, not so far

# https://www.sqlite.org/rescode.html; the low byte of an extended code.
# ERROR (no such table), CORRUPT, TOOBIG, MISMATCH, FORMAT, NOTADB
_DAMAGED = frozenset((1, 11, 18, 20, 24, 26))
_FULL = 13
_REASONS = {
    8: "it is read-only",
    10: "input/output error",
    _FULL: "the disk is full",
    14: "it cannot be opened",
}


_Row = tuple[str, str, str, str, int, int, bytes]  # uid, resource, namespace, name, updated, format, state


class Unavailable(Exception):
    """The data directory cannot be used now; the message says why, without a path."""


class _Foreign(Exception):
    """The file is not one that this version can read; the message says what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of the file."""

    max_bytes: int
    max_age_s: float  # a row that was not written for so long is removed


class StateFile:
    """The open file; it holds the lock of its directory until `close`."""

    def __init__(self, directory: Path, bounds: Bounds) -> None:
        """Opens the file, or makes it. Raises Unavailable."""
        self._path = directory / FILE
        self._bounds = bounds
        with self._translated():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(directory / LOCK) as self._lock:
                self._connection = self._open()

    def close(self) -> None:
        """Ends the use of the file; what was written stays."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        os.close(self._lock)

    @property
    def size_bytes(self) -> int:
        """Of the file and its log."""
        return sum(_size(self._beside(suffix)) for suffix in ("", "-wal"))

    def load(self) -> list[SavedJob]:
        """Every job in the file, as far as its state may be held. Raises Unavailable."""
        return self._load(_JOBS, MAX_LOADED_BYTES)

    def load_histories(self) -> list[SavedJob]:
        """The same of the histories."""
        return self._load(_HISTORIES, MAX_LOADED_BYTES)

    def load_points(self) -> list[tuple[str, bytes]]:
        """What histories have gained since, by the uid of the job, in the order in which it was written."""
        left = MAX_LOADED_BYTES
        loaded: list[tuple[str, bytes]] = []
        with self._translated():
            for uid, points in self._connection.execute(
                "SELECT uid, points FROM points"
                " WHERE typeof(points) = 'blob' AND length(points) <= ? ORDER BY id",
                (MAX_STATE_BYTES,),
            ):
                left -= len(points)
                if left < 0:
                    break
                loaded.append((uid, points))
        return loaded

    def _load(self, table: str, left: int) -> list[SavedJob]:
        loaded: list[SavedJob] = []
        with self._translated():
            rows = self._connection.execute(
                f"SELECT resource, namespace, name, uid, format, state FROM {table}"  # noqa: S608 - ours
                " WHERE typeof(format) = 'integer' AND typeof(state) = 'blob' AND length(state) <= ?"
                " AND length(resource) + length(namespace) + length(name) + length(uid) <= ?",
                (MAX_STATE_BYTES, MAX_NAME_BYTES),
            )
            for resource, namespace, name, uid, format_, state in rows:
                left -= len(state)
                if left < 0:
                    log.warning(
                        "data directory has more than can be used, the rest is left", jobs=len(loaded)
                    )
                    break
                ref = JobRef(resource=resource, namespace=namespace, name=name, uid=uid)
                loaded.append(SavedJob(ref=ref, format=format_, state=state))
        return loaded

    def write(
        self,
        saved: Iterable[SavedJob],
        gone: Iterable[JobRef],
        histories: Iterable[SavedJob] = (),
        points: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Put these jobs and histories in, and take those out, all or nothing. `points`: by uid, what other
        histories have gained. Raises Unavailable."""
        rows, past, gone, gained = _rows(saved), _rows(histories), list(gone), list(points)
        with self._translated():
            try:
                self._write(rows, past, gone, gained)
            except sqlite3.Error as error:
                if _code(error) != _FULL or not self._is_at_its_bound():
                    raise
                self._evict()
                self._write(rows, past, gone, gained)

    def prune(self) -> int:
        """Remove rows that are too old; how many. Raises Unavailable."""
        oldest = int(time.time() - self._bounds.max_age_s)
        with self._translated(), self._transaction() as connection:
            connection.execute(f"DELETE FROM points WHERE uid NOT IN (SELECT uid FROM {_JOBS})")  # noqa: S608
            return sum(
                connection.execute(f"DELETE FROM {table} WHERE updated < ?", (oldest,)).rowcount  # noqa: S608
                for table in _TABLES
            )

    def _write(
        self,
        rows: Sequence[_Row],
        histories: Sequence[_Row],
        gone: Sequence[JobRef],
        points: Sequence[tuple[str, bytes]],
    ) -> None:
        uids = [(ref.uid,) for ref in gone]
        with self._transaction() as connection:
            for table in _TABLES:
                connection.executemany(f"DELETE FROM {table} WHERE uid = ?", uids)  # noqa: S608
            self._put(_JOBS, rows)
            self._put(_HISTORIES, histories)
            whole = [*uids, *((row[0],) for row in histories)]
            connection.executemany("DELETE FROM points WHERE uid = ?", whole)
            connection.executemany("INSERT INTO points (uid, points) VALUES (?, ?)", points)

    def _put(self, table: str, rows: Iterable[_Row]) -> None:
        self._connection.executemany(
            f"INSERT INTO {table} (uid, resource, namespace, name, updated, format, state)"  # noqa: S608 - ours
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (uid) DO UPDATE SET updated = excluded.updated, format = excluded.format,"
            " state = excluded.state",
            rows,
        )

    def _is_at_its_bound(self) -> bool:
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (most,) = self._connection.execute("PRAGMA max_page_count").fetchone()
        return int(pages) >= int(most) * 9 // 10

    def _evict(self) -> None:
        """Remove a tenth of the histories, or of the jobs if there are none: without them jobs are judged
        anew, without their past they only show less. Large ones go, then the oldest of whoever has most."""
        with self._transaction() as connection:
            removed = connection.execute("DELETE FROM points").rowcount
            for table in reversed(_TABLES) if not removed else ():
                (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
                removed = connection.execute(
                    f"DELETE FROM {table} WHERE id IN (SELECT id FROM (SELECT id, length(state) AS size,"  # noqa: S608
                    " sum(length(state)) OVER (PARTITION BY namespace ORDER BY updated DESC, id DESC) AS held"
                    f" FROM {table}) ORDER BY size > ? DESC, held DESC LIMIT ?)",
                    (LARGE_STATE_BYTES, count // _EVICTED_SHARE + 1),
                ).rowcount
                if removed:
                    break
        log.warning("data directory at its size limit, large and old rows removed", table=table, rows=removed)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk may have ended it already
                connection.execute("ROLLBACK")
            raise

    # --- opening

    def _open(self) -> sqlite3.Connection:
        """The file if it is ours, else a new one in its place."""
        try:
            return self._connect()
        except _Foreign as error:
            reason = str(error)
        except sqlite3.Error as error:
            if _code(error) not in _DAMAGED:
                raise
            reason = "it is damaged"
        self._set_aside(reason)
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        # SQLite would make it readable by others; its log gets the mode of the file.
        # A link would lead to a file that is nobody's state.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if found.st_size > _MOST_TIMES * self._bounds.max_bytes:
            raise _Foreign("it is much larger than its limit")
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        # Names that a disk has damaged are those of no job; they are no reason to read none.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MAX_STATE_BYTES)
        try:
            _prepare(connection, max_bytes=self._bounds.max_bytes)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, reason: str) -> None:
        """Move the file and its log into a directory of their own, and keep only the last few of those."""
        directory = self._path.with_name(f"{ASIDE}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        directory.mkdir(mode=0o700)
        # The file itself last: a log without its file is dropped by SQLite, never applied to another one.
        for suffix in ("-wal", "-shm", "-journal", ""):
            beside = self._beside(suffix)
            with contextlib.suppress(FileNotFoundError):
                beside.rename(directory / beside.name)
        log.error(
            "state file set aside, starting with an empty one",
            file=str(self._path),
            moved_to=str(directory),
            reason=reason,
        )
        for old in sorted(self._path.parent.glob(f"{ASIDE}*"))[:-KEPT_ASIDE]:
            shutil.rmtree(old, ignore_errors=True)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(FILE + suffix)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(_describe(error)) from error


def _prepare(connection: sqlite3.Connection, *, max_bytes: int) -> None:
    """Settings, and the tables of this version. Raises _Foreign for a file that is not ours to read."""

    pragma = partial(_pragma, connection)
    # Without shared memory beside the file: on a full disk that may end the process with SIGBUS.
    pragma("locking_mode = EXCLUSIVE")
    pragma("trusted_schema = OFF")
    pragma("cell_size_check = ON")
    # Debian's SQLite would write zeros over whatever is replaced, with each write.
    pragma("secure_delete = OFF")
    pragma("temp_store = MEMORY")  # the image has no other directory that can be written
    application, version = pragma("application_id"), pragma("user_version")
    is_new = application == version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if not is_new:
        _check(connection, application, version)
    pragma("journal_mode = WAL")
    pragma("synchronous = NORMAL")  # the disk is waited for at checkpoints only; a kill loses nothing
    page_bytes = int(str(pragma("page_size")))
    pragma(f"wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}")
    pragma(f"journal_size_limit = {CHECKPOINT_BYTES}")
    pragma(f"max_page_count = {max_bytes // page_bytes}")
    connection.execute("BEGIN IMMEDIATE")
    if is_new:
        for table in _TABLES:
            connection.execute(_TABLE.format(table))
        connection.execute(_POINTS)
        connection.execute(_POINTS_BY_JOB)
        pragma(f"application_id = {APPLICATION_ID}")
    for table in _TABLES:
        connection.execute(
            f"SELECT uid, resource, namespace, name, updated, format, state FROM {table} LIMIT 1"  # noqa: S608
        )
    connection.execute("SELECT id, uid, points FROM points LIMIT 1")
    if is_new:
        pragma(f"user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, application: object, version: object) -> None:
    """Raises _Foreign."""
    if application != APPLICATION_ID:
        raise _Foreign("it is another application's")
    if version != SCHEMA_VERSION:
        raise _Foreign(f"it has schema version {version}, this server reads version {SCHEMA_VERSION}")
    if connection.execute(_MADE_UP).fetchone():
        raise _Foreign("it has views or triggers")
    if _pragma(connection, "quick_check(1)") != "ok":
        raise _Foreign("it is damaged")


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    row = connection.execute(f"PRAGMA {text}").fetchone()
    return row[0] if row else None


def _rows(saved: Iterable[SavedJob]) -> list[_Row]:
    now = int(time.time())
    return [
        (each.ref.uid, each.ref.resource, each.ref.namespace, each.ref.name, now, each.format, each.state)
        for each in saved
        if len(each.state) <= MAX_STATE_BYTES
    ]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, locked for this process alone; unlocked on leaving with an error, or when it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _describe(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "another process uses it"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return _REASONS.get(_code(error), type(error).__name__)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
