"""What is kept of one job beyond this process, in the form in which it is stored and passed on."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from .job import JobRef
from .memory import Memory

FORMAT = 1  # of a state; of one in a newer format nothing is read
_NEVER = datetime.min.replace(tzinfo=UTC)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Memory).decode


class SavedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of one job as bytes, for those who need not know what is in it."""

    ref: JobRef
    format: int  # that `state` is written in
    state: bytes


def save(ref: JobRef, memory: Memory) -> SavedJob:
    return SavedJob(ref=ref, format=FORMAT, state=_encode(memory))


def restore(saved: SavedJob) -> Memory | None:
    """What was saved; None for what this version cannot read."""
    if saved.format != FORMAT:
        return None
    try:
        return _decode(saved.state)
    except msgspec.MsgspecError:
        return None


def is_later(one: Memory | None, other: Memory | None) -> bool:
    """Whether the report of the one was made after that of the other, by the reports' own time."""
    return _reported_at(one) > _reported_at(other)


def _reported_at(memory: Memory | None) -> datetime:
    if memory is None or memory.report is None:
        return _NEVER
    return memory.report.timestamp or memory.reported_at or _NEVER
