"""Tables, which `kubectl get` shows.

Ages and the remaining time depend on the clock and are encoded when a row is made; the rest of a row is
encoded once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec

from visibility_api.jobs.job import Phase
from visibility_api.store import Entry

from .age import UNKNOWN, age
from .columns import Column, clock_moments
from .list_options import IncludeObject
from .metadata import MetadataForm
from .negotiation import TableVersion
from .v1alpha1 import Codec

# How old the ages in a Table may be: as old as a list that was on its way for so long.
MAX_AGE = timedelta(seconds=5)

_encode = msgspec.json.encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
_NULL, _UNKNOWN = b"null", _encode(UNKNOWN)


class _Row(NamedTuple):
    """What of a row depends on the document alone. Moments are microseconds since 1970, which are cheaper to
    subtract than datetimes."""

    start: bytes
    end: bytes
    completion_us: int | None
    seen_us: int | None
    created_us: int | None


class TableForm:
    """Tables of one resource. The `object` of each row is as `includeObject` requests."""

    is_timeless = False
    items_field = "rows"

    def __init__(
        self, codec: Codec, version: TableVersion, include: IncludeObject, now: Callable[[], datetime]
    ) -> None:
        self.key = f"{codec.form}table/{version}/{include}"
        self._version = version.encode()
        self._include = include
        self._codec = codec
        self._definitions = _definitions(tuple(codec.columns))
        self._metadata = MetadataForm(codec, version)
        self._now = now
        self._row_key = f"row {self.key}"

    def one(self, entry: Entry) -> bytes:
        """The Table of a single object, with the object's own revision."""
        return self._table(b'{"resourceVersion":"%d"}' % entry.revision, self._definitions, self.item(entry))

    def head(self, list_meta: bytes) -> bytes:
        return (
            b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":%s,"columnDefinitions":%s,"rows":['
            % (self._version, list_meta, self._definitions)
        )

    def item(self, entry: Entry) -> bytes:
        """One row, with the ages of now."""
        return self._item(entry, _micros(self._now()))

    def items(self) -> Callable[[Entry], bytes]:
        """`item`, with the ages of one time for all rows: that of this call."""
        now_us, item = _micros(self._now()), self._item
        return lambda entry: item(entry, now_us)

    def moment(self) -> int:
        return _micros(self._now()) // (_SECOND_US * int(MAX_AGE.total_seconds()))

    def _item(self, entry: Entry, now_us: int) -> bytes:
        start, end, completion_us, seen_us, created_us = entry.encoded(self._row_key, self._row)
        return b"%s%s,%s,%s%s" % (
            start,
            # An estimate that has passed is none.
            _NULL
            if completion_us is None or completion_us <= now_us
            else _age(_seconds(completion_us - now_us)),
            _NULL if seen_us is None else _age(_seconds(now_us - seen_us)),
            _UNKNOWN if created_us is None else _age(_seconds(now_us - created_us)),
            end,
        )

    def event(self, entry: Entry, *, is_first: bool) -> bytes:
        """The Table of one event; only the first of a stream has column definitions, which kubectl reuses."""
        definitions = self._definitions if is_first else b"null"
        return self._table(b'{"resourceVersion":"%d"}' % entry.revision, definitions, self.item(entry))

    def bookmark(self, metadata: bytes) -> bytes:
        return self._table(metadata, b"null", b"")

    def _table(self, metadata: bytes, definitions: bytes, row: bytes) -> bytes:
        return (
            b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":%s,"columnDefinitions":%s,"rows":[%s]}'
            % (self._version, metadata, definitions, row)
        )

    def _row(self, entry: Entry) -> _Row:
        moments = [None if each is None else _micros(each) for each in clock_moments(entry.document)]
        start = b'{"cells":%s,' % _encode(self._codec.leading_cells(entry.document))[:-1]
        return _Row(start, self._row_end(entry), *moments)

    def _row_end(self, entry: Entry) -> bytes:
        cells = _encode(self._codec.trailing_cells(entry.document))[1:]
        match self._include:
            case "Object":
                carried = self._codec.document(entry)
            case "Metadata":
                carried = self._metadata.one(entry)
            case "None":
                carried = b"null"
        return b',%s%s,"object":%s}' % (cells, _conditions(entry), carried)


@lru_cache
def _definitions(columns: tuple[Column, ...]) -> bytes:
    return _encode([column.definition() for column in columns])


def _conditions(entry: Entry) -> bytes:
    """A row condition that marks finished jobs."""
    phase = entry.document.phase
    if phase not in (Phase.SUCCEEDED, Phase.FAILED):
        return b""
    return b',"conditions":[{"type":"Completed","status":"True","reason":"%s"}]' % phase.value.encode()


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_US + since.microseconds


def _seconds(us: int) -> int:
    """Whole seconds, rounded toward 0."""
    return us // _SECOND_US if us >= 0 else -(-us // _SECOND_US)


@lru_cache(maxsize=16_384)
def _age(seconds: int) -> bytes:
    """The cell of an age or a duration."""
    return _encode(age(seconds))
