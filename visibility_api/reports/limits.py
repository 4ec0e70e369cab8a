"""Bounds of what a training process reports (docs/document.md), and the types of fields that keep to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

MAX_DOCUMENT_BYTES = 64 * 1024
MAX_METRICS = 256
MAX_METRIC_CHARACTERS = 64  # of a name and of a value, as upstream's trainerStatus has it
MAX_MESSAGE_CHARACTERS = 1024
MAX_INTEGER = 2**53  # JSON readers that hold numbers as doubles lose those above (RFC 8259 section 6)
MAX_POINTS = 256  # earlier values in one report
MAX_RECENT_BYTES = 16 * 1024  # of a document: its earlier values
MAX_RANKS = 64  # of which one report says how they get on
MAX_RANKS_BYTES = 16 * 1024
MAX_POINT_AGE_S = 366 * 86400  # before the document's own time

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)] | None
Share = Annotated[float, msgspec.Meta(ge=0, lt=MAX_INTEGER)] | None
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_METRIC_CHARACTERS)]
Value = (
    Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
    | float
    | Annotated[str, msgspec.Meta(max_length=MAX_METRIC_CHARACTERS)]
    | None
)
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
