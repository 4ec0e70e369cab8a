"""The index: what a list shows of each job, one line a job, one object a namespace and day.

A day is that on which the jobs were made. A namespace is known by its uid too: one that was deleted and made
anew does not show what the former one did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from typing import NamedTuple

import msgspec

INDEX, RECORDS, LOGS = "v1/index/", "v1/records/", "v1/logs/"
MAX_INDEX_BYTES = 24 * 1024 * 1024
UNKNOWN_NAMESPACE = "unknown"  # the uid of one that was gone before it could be asked for
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")


class Place(NamedTuple):
    """Where the jobs of one day are."""

    namespace: str
    namespace_uid: str
    day: str  # 2026-01-31

    @property
    def index_path(self) -> str:
        return f"{INDEX}{self.namespace}/{self.namespace_uid}/{self.day}.ndjson.gz"

    def record_path(self, uid: str) -> str:
        return f"{RECORDS}{self.namespace}/{self.namespace_uid}/{self.day}/{uid}.json.gz"

    def log_path(self, uid: str) -> str:
        return f"{LOGS}{self.namespace}/{self.namespace_uid}/{self.day}/{uid}.json.gz"


def place_of(path: str) -> Place | None:
    """That of an object of the index, of a record or of a log, None for any other object."""
    for prefix, parts in ((INDEX, 3), (RECORDS, 4), (LOGS, 4)):
        found = path.removeprefix(prefix).split("/")
        if path.startswith(prefix) and len(found) == parts and all(map(_PART.fullmatch, found)):
            return Place(found[0], found[1], found[2].partition(".")[0])
    return None


def day_of(moment: datetime | None) -> str:
    """Of a job whose creation time is not known: the first day there is."""
    return (moment or datetime.fromtimestamp(0, UTC)).astimezone(UTC).strftime("%Y-%m-%d")


def is_part(text: str) -> bool:
    """Whether a uid or a namespace may be a part of a path."""
    return _PART.fullmatch(text) is not None


class _Metadata(msgspec.Struct):
    name: str
    uid: str


class _Summary(msgspec.Struct):
    end_time: str = msgspec.field(name="endTime", default="")


class _Record(msgspec.Struct):
    metadata: _Metadata
    summary: _Summary


class Line(NamedTuple):
    """One job, as a list shows it."""

    ended: str  # RFC 3339 in UTC, so that text sorts as time; "" for one whose end is not known
    name: str
    uid: str
    content: bytes  # a JobRecord as compact JSON, without progress and history


_decode = msgspec.json.Decoder(_Record).decode


def read_line(content: bytes) -> Line:
    """Raises msgspec.MsgspecError for what is no line of an index."""
    record = _decode(content)
    return Line(record.summary.end_time, record.metadata.name, record.metadata.uid, content)


def read_lines(content: bytes) -> dict[str, Line]:
    """By uid. A line that cannot be read is left out."""
    lines: dict[str, Line] = {}
    for each in BytesIO(content):  # `splitlines` would keep all other threads waiting
        try:
            line = read_line(each.rstrip(b"\n"))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        lines[line.uid] = line
    return lines


def write_lines(lines: Iterable[Line]) -> bytes:
    """The content of an index. Of more than it has room for those that ended last."""
    kept, size = [], 0
    for line in sorted(lines, key=lambda line: line.ended, reverse=True):
        size += len(line.content) + 1
        if size > MAX_INDEX_BYTES:
            break
        kept.append(line.content + b"\n")
    return b"".join(kept)
