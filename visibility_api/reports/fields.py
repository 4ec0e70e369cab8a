"""Bounds of what a training process reports (docs/document.md), and how a value of any type is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec

MAX_DOCUMENT_BYTES = 64 * 1024
MAX_METRICS = 256
MAX_METRIC_CHARACTERS = 64  # of a name and of a value, as upstream's trainerStatus has it
MAX_MESSAGE_CHARACTERS = 1024
MAX_TIME_CHARACTERS = 64
MAX_INTEGER = 2**53  # JSON readers that hold numbers as doubles lose those above (RFC 8259 section 6)
MAX_POINTS = 256  # rows of earlier values in one report
MAX_MEASURED = 2048  # values of metrics that are read of them, the latest: half a millisecond
MAX_RANKS = 64  # that one report describes
MAX_POINT_AGE_S = 366 * 86400  # before the document's own time
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)] | None
Share = Annotated[float, msgspec.Meta(ge=0, lt=MAX_INTEGER)] | None
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_METRIC_CHARACTERS)]
Value = (
    Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
    | float
    | Annotated[str, msgspec.Meta(max_length=MAX_METRIC_CHARACTERS)]
    | None
)

TIME_SCHEMA: dict[str, Any] = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,12})?([Zz]|[+-]\d{2}:\d{2})$",
}

Planned = TypeVar("Planned", int, float)

# RFC 3339 section 5.6; `fromisoformat` alone would take week dates and times without a zone.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_SECOND = timedelta(seconds=1)


def says(description: str, **schema: Any) -> msgspec.Meta:  # noqa: ANN401 - any JSON
    """What the published schema says of a field: its description, and what writers should write."""
    return msgspec.Meta(description=description, extra_json_schema=schema or None)


def amount(value: object) -> float | None:
    """A number from 0 to MAX_INTEGER; None for anything else. NaN is outside of any range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= MAX_INTEGER else None


def count(value: object) -> int | None:
    """A whole number from 0 to MAX_INTEGER, `5.0` too; None for anything else."""
    number = amount(value)
    return int(number) if number is not None and number.is_integer() else None


def whole(value: object) -> int | None:
    """An amount, rounded; None for anything else."""
    number = amount(value)
    return None if number is None else round(number)


def percentage(value: object) -> int | None:
    """A number, rounded and clamped to 0 to 100; None for NaN and for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return round(max(0, min(100, value)))  # clamped first: an int of hundreds of digits is no float


def total(planned: Planned | None, done: float | None) -> Planned | None:
    """What is planned. A wrong plan is no plan (docs/document.md)."""
    return planned if planned and planned >= (done or 0) else None


def parse_time(text: str) -> datetime | None:
    """The instant of an RFC 3339 text, in UTC, or None; a leap second counts as the second after it."""
    if _RFC3339.fullmatch(text) is None:
        return None
    is_leap = text[17:19] == "60"
    try:
        instant = datetime.fromisoformat((f"{text[:17]}59{text[19:]}" if is_leap else text).upper())
        return within_times(instant + _SECOND if is_leap else instant)
    except (ValueError, OverflowError):
        return None


def time_of(value: object) -> datetime | None:
    """The same of any value: None for what is no text."""
    return parse_time(value[:MAX_TIME_CHARACTERS]) if isinstance(value, str) else None


def within_times(instant: datetime) -> datetime | None:
    """The same in UTC; None where it could not be encoded again, or be added to."""
    try:
        instant = instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return instant if EARLIEST <= instant <= LATEST else None
