"""The pace of all ranks, as rank 0 reports it: the field `ranks` of a document (docs/document.md).

Read as hostile bytes, like the document itself.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Annotated

import msgspec

from .fields import MAX_INTEGER, MAX_METRIC_CHARACTERS, MAX_RANKS, TIME_SCHEMA, says, within_times

_Rows = msgspec.Meta(max_length=MAX_RANKS)
_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, lt=MAX_INTEGER)] | None
_Text = Annotated[str, msgspec.Meta(max_length=MAX_METRIC_CHARACTERS)] | None


class RankRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one rank, as of the moment at which rank 0 gathered it. Absent is None."""

    rank: int
    name: str  # of its pod or host; "" if it has none
    step: int | None  # it has finished
    step_s: float | None  # of its own work for one step, without waiting for the others
    # Of a rank that says it in its own file:
    node: str = ""
    whole_s: float | None = None  # of the whole step
    best_s: float | None = None  # the least own work of its run
    slowest: str = ""  # of SLOWEST, what most of its work is


class Ranks(msgspec.Struct, frozen=True, gc=False):
    """One account of the ranks."""

    mark: int  # of what it says: until the next account a document repeats the one before
    at: datetime | None  # when it was gathered, by the training process's clock; None: it does not say
    rows: tuple[RankRow, ...]  # in order of rank, each once
    is_median: bool = False  # over the last minute, as ranks' own files say; else of the last step
    accelerators: tuple[tuple[str, str], ...] = ()  # metrics of all that these files tell of


NO_RANKS = Ranks(0, None, ())
SLOWEST = ("DataLoading", "Productive", "CheckpointSave")


class RankColumns(msgspec.Struct, rename="camel"):
    """Columns of one length, a row a rank, as of one moment."""

    rank: Annotated[list[_Number], _Rows, says("Global ranks, each once.")]
    timestamp: Annotated[
        Annotated[datetime, msgspec.Meta(tz=True)] | None,
        says("When rank 0 gathered them.", **TIME_SCHEMA),
    ] = None
    name: Annotated[Annotated[list[_Text], _Rows] | None, says("Of its pod or host.")] = None
    step: Annotated[Annotated[list[_Number | None], _Rows] | None, says("Steps it has finished.")] = None
    step_seconds: Annotated[
        Annotated[list[_Seconds], _Rows] | None,
        says("Its own work for one step, without waiting for the other ranks."),
    ] = None


def read_ranks(parsed: object) -> Ranks:
    """The account that was parsed. One that breaks a rule of docs/document.md is empty: it is no reason to
    refuse the report it comes with."""
    try:
        found = msgspec.convert(parsed, RankColumns)
    except msgspec.ValidationError:
        return NO_RANKS
    at = None if found.timestamp is None else within_times(found.timestamp)
    if at is None and found.timestamp is not None:
        return NO_RANKS
    ranks, none = found.rank, [None] * len(found.rank)
    columns = (found.name or none, found.step or none, found.step_seconds or none)
    if any(len(column) != len(ranks) for column in columns) or len(set(ranks)) != len(ranks):
        return NO_RANKS
    rows = [
        RankRow(rank, name or "", step, step_s)
        for rank, name, step, step_s in zip(ranks, *columns, strict=True)
        if step is not None or step_s is not None
    ]
    if not rows:
        return NO_RANKS
    return make_ranks(at, rows)


def make_ranks(at: datetime | None, rows: list[RankRow], *, is_median: bool = False) -> Ranks:
    rows.sort(key=lambda row: row.rank)
    return Ranks(zlib.crc32(msgspec.json.encode((at, rows))), at, tuple(rows), is_median)
