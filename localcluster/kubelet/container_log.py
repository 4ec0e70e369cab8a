"""One container's log file: lines with their time, bounded, readable while it grows (X11, X12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from localcluster.machinery.node_agent import LogQuery

MAX_LOG_BYTES = 10 * 1024 * 1024  # the kubelet's containerLogMaxSize; then the file starts afresh
MAX_LINE_BYTES = 16 * 1024  # a longer line is written in parts, as a CRI does
READ_BYTES = 64 * 1024


class ContainerLog:
    """Append-only until it is full. A record is `TIME SP TAG SP BYTES LF`; tag P: the line continues."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._grown = asyncio.Event()
        self.is_closed = False

    async def copy_from(self, reader: asyncio.StreamReader) -> None:
        """Write what a process prints until it closes its end; a line shows once complete or too long."""
        pending = b""
        while chunk := await reader.read(READ_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            records = [record for line in lines for record in _records(line)]
            while len(pending) > MAX_LINE_BYTES:
                records.append((b"P", pending[:MAX_LINE_BYTES]))
                pending = pending[MAX_LINE_BYTES:]
            self._append(records)
        if pending:
            self._append([(b"F", pending)])

    def close(self) -> None:
        self._file.close()
        self.is_closed = True
        self._grown.set()

    def tail(self, *, max_bytes: int, max_lines: int) -> bytes:
        """The end of the log, for FallbackToLogsOnError."""
        records = _split(self._path.read_bytes())[-max_lines:]
        return _text(records, timestamps=False)[-max_bytes:]

    async def read(self, query: LogQuery) -> AsyncIterator[bytes]:
        """The selected part in pieces; with `follow`, on until the container ends."""
        offset, left = self._path.stat().st_size, query.limit_bytes
        records = _split(self._path.read_bytes()[:offset])
        if query.since_seconds is not None:
            since = _now(datetime.now(UTC) - timedelta(seconds=query.since_seconds))
            records = [record for record in records if record[: len(since)] >= since]
        if query.tail_lines is not None:
            records = records[len(records) - min(query.tail_lines, len(records)) :]
        while True:
            text = _text(records, timestamps=query.timestamps)
            if left is not None:
                text, left = text[:left], left - len(text[:left])
            if text:
                yield text
            if not query.follow or left == 0:
                return
            while self._path.stat().st_size == offset:
                if self.is_closed:
                    return
                self._grown.clear()
                await self._grown.wait()
            with self._path.open("rb") as file:
                file.seek(offset if offset <= self._path.stat().st_size else 0)
                records = _split(file.read(MAX_LOG_BYTES))
                offset = file.tell()

    def _append(self, records: list[tuple[bytes, bytes]]) -> None:
        if not records or self.is_closed:
            return
        if self._file.tell() > MAX_LOG_BYTES:
            self._file.truncate(0)
        at = _now(datetime.now(UTC))
        self._file.write(b"".join(b"%b %b %b\n" % (at, tag, line) for tag, line in records))
        self._grown.set()


def _records(line: bytes) -> list[tuple[bytes, bytes]]:
    parts = [line[start : start + MAX_LINE_BYTES] for start in range(0, len(line), MAX_LINE_BYTES)] or [b""]
    return [(b"P", part) for part in parts[:-1]] + [(b"F", parts[-1])]


def _split(content: bytes) -> list[bytes]:
    return content.split(b"\n")[:-1]  # not splitlines: progress bars print carriage returns inside a line


def _text(records: list[bytes], *, timestamps: bool) -> bytes:
    """A part of a line has no end, and what comes next no time of its own, of whichever stream it is."""
    text, is_new_line = [], True
    for record in records:
        at, tag, line = record.split(b" ", 2)
        if timestamps and is_new_line:
            text.append(at + b" ")
        is_new_line = tag == b"F"
        text.append(line + b"\n" if is_new_line else line)
    return b"".join(text)


def _now(at: datetime) -> bytes:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
