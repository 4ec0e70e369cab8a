"""The state of a job as bytes: what is stored, and what a process that takes the job over begins with.

A field of `record.State` is all that a thing which must survive a restart needs; what is special about a few
of them is here. The bytes end with their CRC-32: what a disk has damaged may still decode, to numbers that
cannot be."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from visibility_api.history.attempt import UNREADABLE
from visibility_api.history.job_history import JobHistory, restore as restore_columns

from .job import JobRef, Rank0
from .observation import Addition
from .record import Record, State
from .summary import Beginning, Condition

# Of a state and of a history; of one in another format nothing is read.
FORMAT, HISTORY_FORMAT = 5, 3
_CHECKSUM_BYTES = 4

_FIELDS = State.__struct_fields__
_INDEX = {name: index for index, name in enumerate(_FIELDS)}
_values = attrgetter(*_FIELDS)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode
_decode_points = msgspec.msgpack.Decoder(list[Addition]).decode


class SavedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of one job as bytes, or its history, for those who need not know what is in it."""

    ref: JobRef
    format: int  # that `state` is written in
    state: bytes


def encode_state(record: Record) -> bytes:
    """What is known of a job now, as MessagePack. Equal bytes: nothing has changed."""
    values = list(_values(record))
    values[_INDEX["reports"]] = _reports(record)
    values[_INDEX["rank0"]] = _without_messages(record.rank0)
    values[_INDEX["began"]] = [
        Beginning(type=each.type, status=each.status, since=each.since) for each in record.conditions
    ]
    return _encode(values)


def take_state(record: Record, state: bytes) -> bool:
    """Let a record that is new begin with this state; False for bytes that cannot be read."""
    try:
        kept = _decode(state)
    except UNREADABLE:
        return False
    for name in _FIELDS:
        setattr(record, name, getattr(kept, name))
    if kept.report is not None:
        record.reports.setdefault(kept.reporter, kept.report)
    record.attempts = (kept.rank0.attempt,) if kept.rank0 is not None else ()
    record.conditions = tuple(  # `evaluate` gives them reasons and messages
        [
            Condition(type=each.type, status=each.status, reason="", message="", since=each.since)
            for each in kept.began
        ]
    )
    return True


def save(ref: JobRef, state: bytes) -> SavedJob:
    """`state`: as `encode_state` returns it."""
    return SavedJob(ref=ref, format=FORMAT, state=_with_checksum(state))


def save_history(ref: JobRef, history: JobHistory) -> SavedJob:
    return SavedJob(ref=ref, format=HISTORY_FORMAT, state=_with_checksum(history.save()))


def save_points(points: Sequence[Addition]) -> bytes:
    """What a history has gained, for `restore_points`."""
    return _with_checksum(_encode(points))


def restore_points(saved: bytes) -> list[Addition]:
    """What `save_points` saved; nothing for what is damaged."""
    state, checksum = saved[:-_CHECKSUM_BYTES], saved[-_CHECKSUM_BYTES:]
    if zlib.crc32(state).to_bytes(_CHECKSUM_BYTES) != checksum:
        return []
    try:
        return _decode_points(state)
    except UNREADABLE:
        return []


def restore(saved: SavedJob) -> bytes | None:
    """The state that `save` saved; None for what is damaged, or in a form that this version cannot read."""
    return _checked(saved, FORMAT)


def restore_history(saved: SavedJob) -> JobHistory | None:
    """What `save_history` saved; None as `restore`."""
    state = _checked(saved, HISTORY_FORMAT)
    return None if state is None else restore_columns(state)


def _reports(record: Record) -> object:
    """Without the one that is equal to the report that counts: it would be half of the state."""
    if record.reports.get(record.reporter) != record.report:
        return record.reports
    return {name: report for name, report in record.reports.items() if name != record.reporter}


def _without_messages(rank0: Rank0 | None) -> Rank0 | None:
    if rank0 is None or not (rank0.termination_message or rank0.waiting_message):
        return rank0
    return replace(rank0, termination_message="", waiting_message="")


def _with_checksum(state: bytes) -> bytes:
    return state + zlib.crc32(state).to_bytes(_CHECKSUM_BYTES)


def _checked(saved: SavedJob, form: int) -> bytes | None:
    """The bytes without their checksum; None if it is another one, or they are in another form."""
    state, checksum = saved.state[:-_CHECKSUM_BYTES], saved.state[-_CHECKSUM_BYTES:]
    is_whole = saved.format == form and zlib.crc32(state).to_bytes(_CHECKSUM_BYTES) == checksum
    return state if is_whole else None
