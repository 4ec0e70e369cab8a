"""What is kept of one job beyond this process, in the form in which it is stored and passed on."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from .attempt import UNREADABLE
from .document import Progress
from .estimate import Pace
from .history import FORMAT as HISTORY_FORMAT, JobHistory, restore as restore_columns
from .job import JobRef
from .memory import Memory

FORMAT = 2  # of a state; of one in another format nothing is read
_NEVER = datetime.min.replace(tzinfo=UTC)

_decode = msgspec.msgpack.Decoder(Memory).decode


class SavedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of one job as bytes, or its history, for those who need not know what is in it."""

    ref: JobRef
    format: int  # that `state` is written in
    state: bytes


def save(ref: JobRef, state: bytes) -> SavedJob:
    """`state`: a Memory, encoded (`memory.encode`)."""
    return SavedJob(ref=ref, format=FORMAT, state=state)


def save_history(ref: JobRef, history: JobHistory) -> SavedJob:
    return SavedJob(ref=ref, format=HISTORY_FORMAT, state=history.save())


def restore_history(saved: SavedJob) -> JobHistory | None:
    """What `save_history` saved; None for what this version cannot read."""
    return restore_columns(saved.state) if saved.format == HISTORY_FORMAT else None


def restore(saved: SavedJob) -> Memory | None:
    """What was saved; None for what this version cannot read."""
    if saved.format != FORMAT:
        return None
    try:
        return _decode(saved.state)
    except UNREADABLE:
        return None


def supersedes(one: Memory | None, other: Memory | None) -> bool:
    """Whether the one is to be used and not the other.

    The later report counts, by the reports' own time. Of one and the same report that does which knows it for
    longer: a report without a time since an earlier moment, or the pace by more reports.
    """
    if one is not None and other is not None and _is_same_report(one, other):
        if (first := _first_seen(one)) != (second := _first_seen(other)):
            return first < second
        return _knows_more(one.pace, other.pace)
    return _reported_at(one) > _reported_at(other)


def _is_same_report(one: Memory, other: Memory) -> bool:
    if (one.attempt, one.reporter) != (other.attempt, other.reporter) or one.report is None:
        return False
    return one.report == other.report or (_undated(one) is not None and _undated(one) == _undated(other))


def _undated(memory: Memory) -> Progress | None:
    """The report as it was read, if it had no time."""
    read = memory.reports.get(memory.reporter)
    return read if read is not None and read.timestamp is None else None


def _first_seen(memory: Memory) -> datetime:
    return _NEVER if _undated(memory) is None or memory.reported_at is None else memory.reported_at


def _knows_more(pace: Pace, other: Pace) -> bool:
    if pace.origin is None or other.origin is None:
        return pace.origin is not None
    return pace.origin < other.origin or (
        pace.origin == other.origin and pace.longest_gap_s > other.longest_gap_s
    )


def _reported_at(memory: Memory | None) -> datetime:
    if memory is None or memory.report is None:
        return _NEVER
    return memory.report.timestamp or memory.reported_at or _NEVER
