"""Sinks that are files: the progress file, replaced whole, and the container's termination message."""

from __future__ import annotations

import os
import stat
import time

from trainjob_progress import document
from trainjob_progress.document import MAX_BYTES, Snapshot, encode, format_time
from trainjob_progress.tail import Tail

TERMINATION_MAX_BYTES = 1000  # the kubelet keeps 12 KiB for all containers of a pod, 4 KiB for each
# What is said now is there for a reader within a second: half of it until a number is asked for, half until
# it is written.
INTERVAL_S = 0.5
MAX_LINKS = 40  # as in Linux
QUIET_S = 10.0  # without a document, after which another process makes room
_OURS = b'{"schemaVersion":'


class FileSink:
    """Replaces the file at `path` with each document: readers see the old one or the new one, never half."""

    reopens = True  # for results after the end
    is_local = True  # quickly written, even at the end of a process in which no thread can start any more

    def __init__(self, path: str, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._path = path = os.path.abspath(path)  # the program may change its directory
        self._tail = Tail()
        # On the same filesystem, or it could not be renamed; one for each sink, so that two never share it.
        self._suffix = f".{os.getpid()}.{id(self):x}.tmp"
        # The file that this sink has put there last: inode and time; and the beginning of what it shows.
        self._put, self._begun = (0, 0), ""

    def write(self, snapshot: Snapshot) -> None:
        self._tail.follow(snapshot)
        begun = format_time(snapshot.start_time)
        if self._begun and self._is_taken(begun):
            raise OSError(f"{self._path} shows a process that began earlier: give each a file of its own")
        body = encode(snapshot, recent=self._tail.columns(snapshot)) + b"\n"
        path = _follow(self._path)
        self._put = replace_file(path, path + self._suffix, body)
        self._begun = begun

    def _is_taken(self, begun: str) -> bool:
        """Whether another process has written here since, and began before: they would take turns. What was
        there before our first document does not count: its process may be dead."""
        try:
            status = os.stat(self._path)
            if _mark(status) == self._put or time.time() - status.st_mtime > QUIET_S:
                return False
            with open(self._path, "rb") as file:
                there = document.decode(file.read(MAX_BYTES))
            is_earlier: bool = there["startTime"] < begun and there["startTime"] != self._begun
            return is_earlier and there["state"] == "running"
        except (OSError, ValueError, KeyError, TypeError):  # no document
            return False

    def close(self) -> None:
        """Nothing is left to remove: `replace_file` did. Another call could wait for a busy disk."""


class TerminationSink:
    """Keeps the last document in the container's termination message, for a job that ends between two probes.

    The kubelet mounts this file by itself, so it cannot be renamed over. It is written in one call, filled
    up with blanks to the length it had: a process killed half-way leaves a whole document. A message that
    the program wrote itself is left alone.
    """

    reopens = True
    is_local = True

    def __init__(self, path: str, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._path = os.path.abspath(path)

    def write(self, snapshot: Snapshot) -> None:
        body = encode(snapshot, TERMINATION_MAX_BYTES)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o644)
        try:
            there = os.read(descriptor, len(_OURS))
            if there.strip() and there != _OURS:
                return
            length = os.fstat(descriptor).st_size
            os.lseek(descriptor, 0, os.SEEK_SET)
            padded = body.ljust(min(length, TERMINATION_MAX_BYTES))
            if os.write(descriptor, padded) < len(padded):
                os.ftruncate(descriptor, 0)  # no message is better than half of one
                raise OSError("there was room for a part of the message only")
        finally:
            os.close(descriptor)

    def close(self) -> None:
        pass


def replace_file(path: str, temporary: str, body: bytes) -> tuple[int, int]:
    """Put a whole file in the place of another one. Returns the new one's inode and time of change. Raises
    OSError, and leaves nothing behind then."""
    _check_place(path)
    try:
        # 0644: an exec probe may run as another user. No fsync: readers share the page cache, and a
        # node that loses power loses the container too.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _CLOEXEC, 0o644)
        try:
            while body:  # a write may stop half-way without an error
                body = body[os.write(descriptor, body) :]
            mark = _mark(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        return mark
    except BaseException:
        remove_file(temporary)
        raise


def _follow(path: str) -> str:
    """The file that a link stands for, as long as the links are this user's or root's: another user's could
    name any file of this one's, and is replaced itself. Raises OSError."""
    for _ in range(MAX_LINKS):
        _check_place(path)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(status.st_mode) or status.st_uid not in (0, getattr(os, "geteuid", int)()):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(f"{path} is a link to itself")


def _mark(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_mtime_ns


def open_anew(path: str) -> int:
    """A new, empty file in the place of another one, to append to. Raises OSError."""
    _check_place(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    remove_file(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _CLOEXEC, 0o644)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.close(descriptor)
        remove_file(temporary)
        raise
    return descriptor


def remove_file(path: str) -> None:
    """If it is there."""
    try:  # noqa: SIM105 — contextlib takes its time to be imported
        os.unlink(path)
    except OSError:
        pass


def _check_place(path: str) -> None:
    """Raises OSError where no file may be put: root can replace /dev/null and /dev/stdout by one."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            if os.readlink(path).startswith("/proc/"):
                raise OSError(f"{path} is not a file")
            mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(f"{path} is not a file")


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
