"""Earlier values that come with a report, so that rare probes do not cost resolution.

A document's tail of them, `recent` (docs/document.md), is read as hostile bytes, like the document itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Annotated

import msgspec

from .fields import (
    EARLIEST,
    MAX_MEASURED,
    MAX_METRICS,
    MAX_POINT_AGE_S,
    MAX_POINTS,
    Count,
    Name,
    Share,
    Value,
    says,
)


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a training process reported at one time. Absent is None."""

    timestamp: datetime  # the training process's clock, UTC; may disagree with ours
    step: int | None = None
    epoch: float | None = None
    metrics: tuple[tuple[str, str], ...] = ()  # measured then; not the latest of each


_Cells = msgspec.Meta(max_length=MAX_POINTS)


class RecentValues(msgspec.Struct, rename="camel"):
    """Earlier values: columns of one length, a row a time, oldest first."""

    seconds_before: Annotated[
        list[Annotated[float, msgspec.Meta(ge=0, le=MAX_POINT_AGE_S)]],
        _Cells,
        says("How long before timestamp each row was, never growing."),
    ]
    step: Annotated[list[Count], _Cells] | None = None
    epoch: Annotated[list[Share], _Cells] | None = None
    metrics: Annotated[
        Annotated[dict[Name, Annotated[list[Value], _Cells]], msgspec.Meta(max_length=MAX_METRICS)] | None,
        says("What was measured at each time; null where nothing was."),
    ] = None


_INFINITE = (math.inf, -math.inf)  # as 1e999 is read
_encode = msgspec.json.Encoder().encode


def read_recent(parsed: object, timestamp: datetime) -> tuple[Point, ...]:
    """The points of a tail, oldest first. `timestamp`: the document's own, from which their times count back.

    One that breaks a rule of docs/document.md has none: it is no reason to refuse the report it comes with.
    Of too many values the latest count.
    """
    try:
        recent = msgspec.convert(parsed, RecentValues)
    except msgspec.ValidationError:
        return ()
    ages, columns = recent.seconds_before, recent.metrics or {}
    steps, epochs = recent.step, recent.epoch
    length = len(ages)
    if any(len(column) != length for column in (steps, epochs, *columns.values()) if column is not None):
        return ()
    if not length or timestamp - timedelta(seconds=ages[0]) < EARLIEST:
        return ()
    if any(later > earlier for earlier, later in pairwise(ages)):
        return ()
    rows = [*zip(*map(_texts, columns.values()), strict=True)] or [()] * length
    points, room = [], MAX_MEASURED
    for place in reversed(range(length)):
        cells = tuple([cell for cell in zip(columns, rows[place], strict=True) if cell[1]])
        room -= len(cells)
        if room < 0:
            break
        points.append(
            Point(
                timestamp=timestamp - timedelta(seconds=ages[place]),
                step=steps[place] if steps else None,
                epoch=epochs[place] if epochs else None,
                metrics=cells,
            )
        )
    return tuple(reversed(points))


def latest(points: Sequence[Point]) -> tuple[Point, ...]:
    """Of points in the order of their times the latest, with as many values of metrics as are read."""
    room, first = MAX_MEASURED, len(points)
    while first and (room := room - len(points[first - 1].metrics)) >= 0:
        first -= 1
    return tuple(points[first:])


def _texts(column: list[float | str | None]) -> list[str]:
    """Its values as text; "" where there is none. Only read as numbers again: `str` takes twenty times as
    long for some floats."""
    encoded = _encode(column)  # at once: there may be 2,048 values
    if b'"' in encoded or encoded.count(b"null") != column.count(None):  # as infinity is written too
        return [_text(value) for value in column]
    texts = encoded[1:-1].decode().split(",")
    return ["" if text == "null" else text for text in texts] if None in column else texts


def _text(value: float | str | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) or value in _INFINITE else _encode(value).decode()
