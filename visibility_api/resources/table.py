"""Tables, which `kubectl get` shows.

Ages and the remaining time depend on the clock and are encoded when a row is sent; the rest of a row is
encoded once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from visibility_api.progress.job import Phase
from visibility_api.store import Entry

from .columns import COLUMNS, Cell, clock_cells, leading_cells, trailing_cells
from .list_options import IncludeObject
from .metadata import MetadataForm
from .negotiation import TableVersion
from .v1alpha1 import Codec

_DEFINITIONS = msgspec.json.encode([column.definition() for column in COLUMNS])
_encode = msgspec.json.encode


class TableForm:
    """Tables of one resource. The `object` of each row is as `includeObject` requests."""

    is_timeless = False
    items_field = "rows"

    def __init__(
        self, codec: Codec, version: TableVersion, include: IncludeObject, now: Callable[[], datetime]
    ) -> None:
        self.key = f"table/{version}/{include}"
        self._version = version.encode()
        self._include = include
        self._codec = codec
        self._metadata = MetadataForm(codec, version)
        self._now = now
        self._start_key, self._end_key = "row start", f"row end {self.key}"

    def one(self, entry: Entry) -> bytes:
        """The Table of a single object, with the object's own revision."""
        return self._table(b'{"resourceVersion":"%d"}' % entry.revision, _DEFINITIONS, self.item(entry))

    def head(self, list_meta: bytes) -> bytes:
        return (
            b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":%s,"columnDefinitions":%s,"rows":['
            % (self._version, list_meta, _DEFINITIONS)
        )

    def item(self, entry: Entry) -> bytes:
        """One row, with the ages of now."""
        start = entry.encoded(self._start_key, _row_start)
        end = entry.encoded(self._end_key, self._row_end)
        remaining, seen, age = clock_cells(entry.document, self._now())
        # These three consist of digits and units, so they need no escaping.
        return b"%s%s,%s,%s%s" % (start, _quoted(remaining), _quoted(seen), _quoted(age), end)

    def event(self, entry: Entry, *, is_first: bool) -> bytes:
        """The Table of one event; only the first of a stream has column definitions, which kubectl reuses."""
        definitions = _DEFINITIONS if is_first else b"null"
        return self._table(b'{"resourceVersion":"%d"}' % entry.revision, definitions, self.item(entry))

    def bookmark(self, metadata: bytes) -> bytes:
        return self._table(metadata, b"null", b"")

    def _table(self, metadata: bytes, definitions: bytes, row: bytes) -> bytes:
        return (
            b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":%s,"columnDefinitions":%s,"rows":[%s]}'
            % (self._version, metadata, definitions, row)
        )

    def _row_end(self, entry: Entry) -> bytes:
        cells = _encode(trailing_cells(entry.document))[1:]
        match self._include:
            case "Object":
                carried = self._codec.document(entry)
            case "Metadata":
                carried = self._metadata.one(entry)
            case "None":
                carried = b"null"
        return b',%s%s,"object":%s}' % (cells, _conditions(entry), carried)


def _row_start(entry: Entry) -> bytes:
    return b'{"cells":%s,' % _encode(leading_cells(entry.document))[:-1]


def _conditions(entry: Entry) -> bytes:
    """A row condition that marks finished jobs."""
    phase = entry.document.phase
    if phase not in (Phase.SUCCEEDED, Phase.FAILED):
        return b""
    return b',"conditions":[{"type":"Completed","status":"True","reason":"%s"}]' % phase.value.encode()


def _quoted(cell: Cell) -> bytes:
    return b"null" if cell is None else b'"%s"' % cell.encode()
