"""What is kept of one job beyond this process, in the form in which it is stored and passed on.

Its bytes end with their CRC-32: what a disk has damaged may still decode, to numbers that cannot be.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

import msgspec

from visibility_api.history.attempt import UNREADABLE
from visibility_api.history.job_history import JobHistory, restore as restore_columns
from visibility_api.reports.document import Progress

from .estimate import Pace
from .job import JobRef
from .memory import Memory, encode

# Of a state and of a history; of one in another format nothing is read. The one before each has no checksum.
FORMAT, HISTORY_FORMAT = 3, 3
_CHECKSUM_BYTES = 4
_NEVER = datetime.min.replace(tzinfo=UTC)

_decode = msgspec.msgpack.Decoder(Memory).decode


class SavedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of one job as bytes, or its history, for those who need not know what is in it."""

    ref: JobRef
    format: int  # that `state` is written in
    state: bytes


def save(ref: JobRef, state: bytes) -> SavedJob:
    """`state`: a Memory, encoded (`memory.encode`)."""
    return SavedJob(ref=ref, format=FORMAT, state=_with_checksum(state))


def save_history(ref: JobRef, history: JobHistory) -> SavedJob:
    return SavedJob(ref=ref, format=HISTORY_FORMAT, state=_with_checksum(history.save()))


def restore_history(saved: SavedJob) -> JobHistory | None:
    """What `save_history` saved; None for what is damaged, or in a form that this version cannot read."""
    state = _checked(saved, HISTORY_FORMAT)
    return None if state is None else restore_columns(state)


def restore(saved: SavedJob) -> Memory | None:
    """What `save` saved; None for what is damaged, or in a form that this version cannot read."""
    state = _checked(saved, FORMAT)
    if state is None:
        return None
    try:
        return _decode(state)
    except UNREADABLE:
        return None


def _with_checksum(state: bytes) -> bytes:
    return state + zlib.crc32(state).to_bytes(_CHECKSUM_BYTES)


def _checked(saved: SavedJob, form: int) -> bytes | None:
    """The bytes without their checksum, if they have one; None if it is another one, or they are in another
    form."""
    if saved.format == form - 1:
        return saved.state
    state, told = saved.state[:-_CHECKSUM_BYTES], saved.state[-_CHECKSUM_BYTES:]
    is_whole = saved.format == form and zlib.crc32(state).to_bytes(_CHECKSUM_BYTES) == told
    return state if is_whole else None


def supersedes(one: Memory | None, other: Memory | None) -> bool:
    """Whether the one is to be used and not the other.

    The later report counts: by the reports' own times, or by ours, which allow for a clock that is wrong,
    where they are of two clocks. Of one and the same report that does which knows it for longer: a report
    without a time since an earlier moment, or the pace by more reports. Where earlier reports have completed
    it differently, more of them count.
    """
    if one is None or other is None:
        return _reported_at(one) > _reported_at(other)
    if _is_same_report(one, other):
        if (first := _first_seen(one)) != (second := _first_seen(other)):
            return first < second
        return _knows_more(one.pace, other.pace)
    at, other_at = _reported_at(one), _reported_at(other)
    if one.reported_at is not None and other.reported_at is not None and _are_of_two_clocks(one, other):
        at, other_at = one.reported_at, other.reported_at
    return at > other_at or (at == other_at and _gathered(one) > _gathered(other))


def _gathered(memory: Memory) -> tuple[int, int, int, bytes]:
    """How much of earlier reports is in it; any two that differ have an order."""
    if memory.report is None:
        return 0, 0, 0, b""
    values = sum(course.count + course.far + course.broken for course in memory.watched.courses)
    return len(memory.report.metrics), values, len(memory.pace.samples), encode(memory.report)


def _are_of_two_clocks(one: Memory, other: Memory) -> bool:
    """Whether the reports' own times cannot be compared: they are of two nodes, or a clock was set."""
    if one.report is None or other.report is None:
        return False
    return one.attempt != other.attempt or one.clock.contradicts(other.clock)


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
