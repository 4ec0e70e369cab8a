"""Brings the account of a job's time up to date: docs/goodput.md has the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from visibility_api.reports.document import Progress

from .account import (
    DOWN,
    ENDED,
    PLACED,
    PREPARING,
    RUNNING,
    UNKNOWN,
    WAITING,
    Account,
)
from .evidence import WARM_ROWS, checksum, is_stalled, is_steady, position_of, rows_of
from .job import Phase
from .ledger import PRODUCTIVE, QUEUED, RECOVERY, STARTING, WASTED, Ledger, Seconds, none
from .observation import Addition, Observation
from .record import Record
from .saved_account import UNREADABLE_ACCOUNT, load_account, read_head, save_account

LEARNS_S = 120.0  # of an attempt in which each report counts by itself: what is usual is still learned
SETTLED_S = 100.0  # usual steps are settled together, so long after the last ones at most


def goes_on(record: Record, now: datetime) -> bool:
    """Whether all that has come is at most one more report of usual steps, shortly after the last that were
    settled: its account can wait, as nothing but the end of a last step would change.

    This follows from what is stored and the report alone, so every process decides alike.
    """
    report, job = record.report, record.job
    pace = record.pace
    if len(record.points) > 1 or report is None or record.moved_at is None:
        return False
    if pace.at is None or pace.origin is None or (pace.at - pace.origin).total_seconds() < LEARNS_S:
        return False
    try:
        head = read_head(record.account)
    except UNREADABLE_ACCOUNT:
        return False
    attempt, reached_at = record.attempt, now
    for addition in record.points:
        attempt, reached_at = addition.attempt, addition.reported_at
    unit, position = position_of(report)
    took_s = reached_at.timestamp() - head.row_at
    return (
        head.mode == RUNNING
        and checksum(attempt) == head.run
        and record.attempts[:1] == (attempt,)
        and job.phase is Phase.RUNNING
        and job.rank0 is not None
        and job.rank0.is_running
        and report.marks.section is None
        and not report.is_final
        and position is not None
        and unit == head.unit
        and not head.fruitless
        and head.warm == WARM_ROWS
        and 0 < took_s < SETTLED_S
        and not is_stalled(record)
        and (
            # Between two steps, a report comes as much later as the one that goes on.
            position > head.position
            and is_steady(head.warm, head.usual, position - head.position + 1, took_s)
            if record.points
            else position >= head.position and (now - record.moved_at).total_seconds() <= record.fresh_limit_s
        )
    )


def settle_before(record: Record, observation: Observation, now: datetime) -> None:
    """Settle the reports that could wait until now, if this one is of an earlier step of the attempt."""
    outcome, held = observation.outcome, record.report
    if held is None or not isinstance(outcome, Progress) or observation.attempt != record.attempt:
        return
    (unit, position), (held_unit, held_position) = position_of(outcome), position_of(held)
    if position is None or held_position is None or unit != held_unit or position >= held_position:
        return
    record.account = save_account(account_of(record, now))


def account_of(record: Record, now: datetime) -> Account:
    """The account of a job, with what the cluster and its reports show by now. Needs the conditions that the
    job had until now."""
    try:
        account = load_account(record.account)
    except UNREADABLE_ACCOUNT:
        account = _begin(record, now)
    account.tail = []
    if account.mode == ENDED:
        return account
    now_s, points, ran = now.timestamp(), record.points, account.run
    if not points:
        _catch_up(account, record, now_s)
    for each in points:
        if checksum(each.attempt) != ran:
            continue
        if account.mode == RUNNING:
            _follow(account, each, record, now_s)
        else:
            account.note_reached(record)
    for mode, at, run in _facts(account, record, now):
        account.switch(mode, min(at, now_s), record, run)
    for each in points:
        if account.mode == RUNNING and each.attempt in record.attempts and checksum(each.attempt) != ran:
            _follow(account, each, record, now_s)
    record.fruitless = account.fruitless
    return account


def _follow(account: Account, addition: Addition, record: Record, now_s: float) -> None:
    rows = rows_of(addition, position_of(record.report)[0])
    account.follow(addition.reported_at.timestamp(), rows, record, now_s)


def _catch_up(account: Account, record: Record, now_s: float) -> None:
    """With the last report, if that could wait when it came."""
    unit, position = position_of(record.report)
    is_behind = position is not None and unit == account.unit and position > account.position
    is_its = account.mode == RUNNING and checksum(record.attempt) == account.run
    if is_behind and is_its and record.moved_at is not None and account.warm >= WARM_ROWS:
        account.follow(record.moved_at.timestamp(), (), record, now_s)


def reckon_until(account: Account, record: Record, now: datetime) -> None:
    """Add what is not settled yet. Needs the conditions of now."""
    if account.mode != ENDED:
        at = max(now.timestamp(), account.ledger.until)
        tail = account.reckon(at, record)
        # Of a job that waits, or of which nothing is read, nothing changes from one minute to the next.
        if account.mode != WAITING and (record.is_current or record.job.accelerators):
            account.tail = tail


def read_goodput(saved: bytes) -> Account | None:
    """A document's account, with what was not settled in its ledger; None where there is none."""
    try:
        account = load_account(saved)
    except UNREADABLE_ACCOUNT:
        return None
    account.show()
    return account


def sums_until(
    saved: bytes, until: float, window: Literal["whole", "hour", "day"], *, is_over: bool
) -> Seconds | None:
    """The sums of a window that ends at `until`, by a document's account; None where there are none.

    `is_over`: the job has ended. Of another one the time since its account counts as what it did then.
    """
    account = read_goodput(saved)
    if account is None:
        return None
    ledger = account.ledger
    if not is_over and until > ledger.until:
        seconds = none()
        seconds[account.doing] = until - ledger.until
        ledger.show(seconds)
    if window == "whole":
        return ledger.whole
    return ledger.hour(until) if window == "hour" else ledger.day(until)


def wasted(account: Account | None) -> dict[int, float]:
    """Seconds by kind in which the job held what it has for nothing."""
    if account is None:
        return {}
    spent = account.spent()
    found = {kind: spent[kind] for kind in WASTED}
    prepared_s = account.prepared_s + (sum(account.tail) if account.mode == PREPARING else 0.0)
    for kind in (STARTING, RECOVERY):  # after a suspension initializers run again
        found[kind], prepared_s = max(0.0, found[kind] - prepared_s), max(0.0, prepared_s - found[kind])
    return found


def goodput(seconds: Sequence[float]) -> float | None:
    """Productive time, of all in which the job was not queued."""
    whole_s = sum(seconds) - seconds[QUEUED]
    return min(1.0, seconds[PRODUCTIVE] / whole_s) if whole_s > 0 else None


def scheduling_goodput(seconds: Sequence[float]) -> float | None:
    """Time in which the job was not queued, of all."""
    whole_s = sum(seconds)
    return max(0.0, 1 - seconds[QUEUED] / whole_s) if whole_s > 0 else None


def _begin(record: Record, now: datetime) -> Account:
    """Of a job that is seen for the first time, at least by a version that keeps accounts."""
    job = record.job
    account = Account(Ledger(max(0.0, min(job.created_at or now, now).timestamp())))
    account.has_run, account.is_changed = record.begun > 1, True
    if account.has_run or (job.phase.is_final and job.rank0 is None):
        account.mode = UNKNOWN
    return account


_Fact = tuple[int, float, int | None]  # what it does, from when, and the attempt if one begins


def _facts(account: Account, record: Record, now: datetime) -> Iterator[_Fact]:
    """What the cluster shows that is not in the account yet, in order."""
    job, rank0, mode = record.job, record.job.rank0, account.mode
    phase, now_s = job.phase, now.timestamp()
    if phase is Phase.UNKNOWN:
        return
    is_running = rank0 is not None and rank0.is_running and phase is Phase.RUNNING
    if is_running and mode == RUNNING and checksum(record.attempts[0]) == account.run:
        return  # nearly always
    ended = record.last_termination
    ended_at = _seconds(ended.finished_at if ended is not None else None, now_s)
    if rank0 is not None:
        pod, run = checksum(rank0.pod_uid), checksum(rank0.attempt)
        if pod != account.pod and rank0.node_name is not None:
            account.pod = pod
            mode = PLACED
            yield mode, _seconds(rank0.pod_started_at, now_s), None
        if run != account.run and rank0.has_begun:
            mode = RUNNING
            yield mode, _seconds(rank0.started_at, now_s), run
        elif rank0.is_running and mode != RUNNING and not (phase is Phase.SUSPENDED or phase.is_final):
            mode = RUNNING
            yield mode, _seconds(job.suspension_changed_at, now_s), None
        if mode == RUNNING and not rank0.is_running and rank0.has_begun:
            mode = UNKNOWN if ended is not None and ended.exit_code == 0 else DOWN
            yield mode, ended_at, None
    elif phase is Phase.RUNNING:
        if mode != RUNNING:  # all that is known: it runs elsewhere
            mode = RUNNING
            yield mode, now_s, checksum(record.attempt)
    elif (mode in (PLACED, PREPARING) and phase is Phase.PENDING) or (
        mode == RUNNING and phase in (Phase.PENDING, Phase.INITIALIZING)
    ):
        # Its pod is gone. How the attempt before ended may be all that was seen.
        mode = DOWN if mode == RUNNING or account.has_run else WAITING
        yield mode, ended_at if ended_at > account.row_at else now_s, None
    if phase is Phase.INITIALIZING and mode == WAITING:
        yield PREPARING, now_s, None
    elif phase is Phase.SUSPENDED and mode != WAITING:
        yield WAITING, _seconds(job.suspension_changed_at, now_s), None
    elif phase.is_final:
        yield ENDED, _seconds(job.ended_at, ended_at), None


def _seconds(moment: datetime | None, otherwise: float) -> float:
    return moment.timestamp() if moment is not None else otherwise
