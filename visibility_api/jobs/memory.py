"""What must be remembered of a job to evaluate it later, or elsewhere, as if it had been watched throughout.

`remember` takes it from a record and `recall` puts it into the record of a process that has not seen it: one
that was restarted, or another replica. It contains no times of probes: while a job reports nothing new, what
is remembered of it does not change, so it need not be stored again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from visibility_api.reports.document import Progress, Refused

from .clock import NodeClock
from .conditions import restore
from .estimate import Pace
from .failure import Failure
from .holding import Holding, joined
from .job import Rank0, Termination
from .merge import take
from .record import Encoded, Record, note_failure
from .straggling import NOTHING_GATHERED, Gathered
from .summary import Condition
from .watched import NOTHING_WATCHED, Watched

encode = msgspec.msgpack.Encoder().encode


class Beginning(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Since when a condition has its status. Its reason and message follow from the rest."""

    type: str
    status: str
    since: datetime


class Memory(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Of one job, which its JobRef names. msgspec encodes and decodes it (JSON, MessagePack).

    It is stored as an array of the fields, as are most of its parts: names would be a third of it. In an
    array a field may be added at the end with a default, and what is beyond the known ones is ignored; none
    ever changes its place or meaning. All times are aware, UTC, by our clock unless it says otherwise.
    """

    attempt: str = ""  # of `report`; Rank0.attempt
    source: str = ""  # of `report`: exec, http, logs, push, status, termination
    reporter: str = ""  # of `report`: its source, or the kind of process if it is not rank 0
    report: Progress | None = None  # completed by earlier ones; its timestamp by the training clock
    # The last of each reporter as it was read, for the same again is no news. None: it is equal to `report`.
    reports: dict[str, Progress | None] = {}
    reported_at: datetime | None = None  # when `report` was written, or first seen if it has no time
    earliest_at: datetime | None = None  # before which `report` was not written; None: not known
    moved_at: datetime | None = None  # when a report last showed an advance
    positioned_at: datetime | None = None  # when a source other than the log last reported the position
    clock: NodeClock = NodeClock()  # of the training process
    pace: Pace = Pace()
    watched: Watched = NOTHING_WATCHED
    gathered: Gathered = NOTHING_GATHERED
    refused: Refused | None = None  # why the last probe of `rank0` brought no report; None: it brought one
    left_over: tuple[str, Progress] | None = None  # an attempt, and what it found in its file as it began
    rank0: Rank0 | None = None  # the last known, without its messages
    last_termination: Termination | None = None
    failed: Failure | None = None  # why an attempt failed last
    holding: Holding | None = None  # of accelerators
    begun: int = 0  # attempts so far
    begun_last: str = ""  # the last of them; Rank0.attempt
    began: tuple[Beginning, ...] = ()
    begun_pod_at: datetime | None = None  # when the pod of `begun_last` was created


def remember(record: Record) -> Memory:
    """What is known of a job now."""
    return _remember(record, _without_messages(record.rank0), _beginnings(record.conditions))


def remember_encoded(record: Record) -> bytes:
    """The same as MessagePack. What seldom changes is encoded once: it was half of what a state costs."""
    parts = record.encoded
    if parts is None or parts.rank0 is not record.rank0 or parts.conditions is not record.conditions:
        parts = record.encoded = Encoded(
            rank0=record.rank0,
            conditions=record.conditions,
            rank0_state=msgspec.Raw(encode(_without_messages(record.rank0))),
            began_state=msgspec.Raw(encode(_beginnings(record.conditions))),
        )
    return encode(_remember(record, parts.rank0_state, parts.began_state))


def _remember(record: Record, rank0: Any, began: Any) -> Memory:  # noqa: ANN401 - both as they are or encoded
    return Memory(
        attempt=record.attempt,
        source=record.source,
        reporter=record.reporter,
        report=record.report,
        reports={
            name: None if report is record.report or report == record.report else report
            for name, report in record.reports.items()
        },
        reported_at=record.reported_at,
        earliest_at=record.earliest_at,
        moved_at=record.moved_at,
        positioned_at=record.positioned_at,
        clock=record.clock,
        pace=record.pace,
        watched=record.watched,
        gathered=record.gathered,
        refused=record.refused,
        left_over=record.left_over,
        rank0=rank0,
        last_termination=record.last_termination,
        failed=record.failed,
        holding=record.holding if record.job.accelerators else None,
        begun=record.begun,
        begun_last=record.begun_last,
        began=began,
        begun_pod_at=record.begun_pod_at,
    )


def _without_messages(rank0: Rank0 | None) -> Rank0 | None:
    if rank0 is None or not (rank0.termination_message or rank0.waiting_message):
        return rank0
    return replace(rank0, termination_message="", waiting_message="")


def _beginnings(conditions: tuple[Condition, ...]) -> tuple[Beginning, ...]:
    return tuple([Beginning(type=each.type, status=each.status, since=each.since) for each in conditions])


def recall(record: Record, memory: Memory, now: datetime) -> None:
    """Evaluate a job by what another process remembers of it as well.

    A report that the record has already is merged into those remembered, if it is of the same attempt. Of
    another attempt it stays as it is, and what is remembered is of no use, unless its own attempt is over.
    """
    recall_past(record, memory, now)
    own, attempt, source, reporter = record.report, record.attempt, record.source, record.reporter
    is_same = memory.attempt == attempt or {memory.attempt, attempt} <= set(record.attempts)
    is_over = attempt not in record.attempts or record.job.rank0 is None
    if own is not None and (memory.report is None or not (is_same or is_over)):
        return
    read = record.reports.get(reporter)
    _adopt(record, memory)
    if is_same and read is not None and _is_newer(own, memory.report):
        take(record, read, attempt, source, now, reporter)


def recall_past(record: Record, memory: Memory, now: datetime) -> bool:
    """Take over what is over: pods that this process may never see, as they are deleted. Whose report counts
    does not matter for it. Returns whether anything was new."""
    known = record.begun, record.holding, record.failed, record.rank0, record.last_termination
    if memory.begun > record.begun:
        record.begun, record.begun_last = memory.begun, memory.begun_last
        record.begun_pod_at = memory.begun_pod_at
        if record.job.rank0 is not None:
            record.count_attempt(record.job.rank0, record.job.rank0.attempt)
    if memory.holding is not None:
        record.holding = joined(record.holding, memory.holding)
        shown = record.job.rank0.pod_uid if record.job.rank0 is not None else ""
        if record.holding.pod_uid not in ("", shown):
            record.told_at = now
    if memory.failed is not None:
        note_failure(record, memory.failed)
    if record.rank0 is None:
        record.rank0 = memory.rank0
    elif record.job.rank0 is None and memory.rank0 is not None and _is_later(memory.rank0, record.rank0):
        record.show_rank0(memory.rank0)
        record.attempts = (memory.rank0.attempt,)
    if _has_ended_later(memory.last_termination, record.last_termination):
        record.last_termination = memory.last_termination
    return known != (record.begun, record.holding, record.failed, record.rank0, record.last_termination)


def _is_later(remembered: Rank0, own: Rank0) -> bool:
    """Whether another process has seen a later pod, or a later state of this one."""
    if remembered.pod_uid == own.pod_uid:
        return _state(remembered) > _state(own)
    if remembered.pod_created_at is None or own.pod_created_at is None:
        return remembered.restart_attempt > own.restart_attempt
    return remembered.pod_created_at > own.pod_created_at


def _state(rank0: Rank0) -> tuple[int, bool, bool]:
    return rank0.restart_count, rank0.has_begun, not rank0.is_running


def _has_ended_later(remembered: Termination | None, own: Termination | None) -> bool:
    if remembered is None or own is None or remembered.finished_at is None or own.finished_at is None:
        return own is None
    return remembered.finished_at > own.finished_at


def _is_newer(own: Progress | None, remembered: Progress | None) -> bool:
    if own is None or own.timestamp is None or remembered is None or remembered.timestamp is None:
        return own is not None
    return own.timestamp > remembered.timestamp


def _attempt(rank0: Rank0 | None) -> str:
    return "" if rank0 is None else rank0.attempt


def _adopt(record: Record, memory: Memory) -> None:
    record.attempt, record.source, record.reporter = memory.attempt, memory.source, memory.reporter
    record.report = memory.report
    record.reports = {
        name: report for name, each in memory.reports.items() if (report := each or memory.report) is not None
    }
    record.reported_at, record.earliest_at = memory.reported_at, memory.earliest_at
    record.moved_at, record.positioned_at = memory.moved_at, memory.positioned_at
    record.clock, record.left_over = memory.clock, memory.left_over
    record.pace = memory.pace
    record.watched, record.gathered = memory.watched, memory.gathered
    if record.report is not None and not memory.watched.courses:  # what an earlier version remembers has none
        record.watched = memory.watched.advance(record.report, None, record.pace.position)
    if record.last_observation is None and _attempt(record.rank0) == _attempt(memory.rank0):
        record.refused = memory.refused
    if not record.attempts and record.rank0 is not None:
        record.attempts = (record.rank0.attempt,)
    record.conditions = restore((each.type, each.status, each.since) for each in memory.began)
