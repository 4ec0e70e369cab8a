"""For how long a job held its accelerators, and for how much of that it had nothing to show for them.

Counted from when rank 0's pod was accepted by its node until the job ended, was suspended, or the pod was
gone, in every attempt. Wasted is the time until the first report of an attempt, and that in which the job
stalled. All times are those of the job and its reports, so it does not matter who counts, or when.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from .clock import later
from .job import Phase

if TYPE_CHECKING:
    from .record import Record  # of which `Holding` is a part


class Holding(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What is over is in seconds, what goes on has its beginning."""

    pod_uid: str = ""  # of rank 0, while `since` is known
    since: datetime | None = None  # when its pod began to hold them; None: nothing is held
    held_s: float = 0.0  # by pods before
    attempt: str = ""  # the last that has reported; Rank0.attempt
    silent_since: datetime | None = None  # since when the present attempt has not reported
    stalled_since: datetime | None = None
    wasted_s: float = 0.0  # of silences and stalls that are over
    last_until: datetime | None = None  # when the pod that held them last ceased to


NOTHING_HELD = Holding()


def hold(record: Record, now: datetime) -> None:
    """Bring up to date for how long the accelerators are held. Needs the record's conditions of now."""
    job, held, rank0 = record.job, record.holding, record.job.rank0
    if not job.accelerators:
        return
    holds = job.phase not in (Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)
    began_at = rank0.pod_started_at if rank0 is not None and holds else None
    if held == NOTHING_HELD and rank0 is not None and job.phase.is_final:
        # It had ended before it was first seen: held by its last pod. What was wasted is not known.
        ended_at = job.ended_at or _run_ended_at(record)
        if rank0.pod_started_at is not None and ended_at is not None:
            seconds = _until(rank0.pod_started_at, ended_at)
            record.holding = replace(held, held_s=seconds, last_until=ended_at)
        return
    if held.since is not None and (began_at is None or rank0 is None or rank0.pod_uid != held.pod_uid):
        held = _released(held, _released_at(record, now))
    if began_at is not None and rank0 is not None:
        if held.since is None:
            if held.last_until is not None:  # pods of one job may overlap, and its accelerators count once
                began_at = max(began_at, held.last_until)
            held = replace(held, pod_uid=rank0.pod_uid, since=began_at, silent_since=began_at, attempt="")
        held = _watched(held, record, now)
    record.holding = held


def held_s(held: Holding, now: datetime) -> float:
    """Seconds in which they were held."""
    return held.held_s + _until(held.since, now)


def wasted_s(held: Holding, now: datetime) -> float:
    """Seconds of these in which the job stalled, or had not reported yet."""
    return held.wasted_s + max(_until(held.silent_since, now), _until(held.stalled_since, now))


def _watched(held: Holding, record: Record, now: datetime) -> Holding:
    moved_at, ended_at = record.moved_at, _run_ended_at(record)
    attempt, is_reporting = record.attempts[0], record.is_current
    is_stalled = any(each.type == "Stalled" and each.status == "True" for each in record.conditions)
    if is_stalled and moved_at is not None and held.since is not None:
        # It may stand still for longer than it holds any.
        held = replace(held, stalled_since=max(moved_at, held.since))
    elif held.stalled_since is not None:
        until = moved_at if moved_at is not None and moved_at > held.stalled_since else now
        if not is_reporting and ended_at is not None and ended_at > held.stalled_since:
            until = ended_at
        held = replace(held, stalled_since=None, wasted_s=held.wasted_s + _until(held.stalled_since, until))
    if is_reporting:
        if held.silent_since is not None:
            silent_s = _until(held.silent_since, _reports_began_at(record) or now)
            held = replace(held, silent_since=None, wasted_s=held.wasted_s + silent_s)
        held = replace(held, attempt=attempt)
    elif held.silent_since is None and held.attempt != attempt:  # restarted in place
        held = replace(held, silent_since=ended_at or now)
    return held


def _reports_began_at(record: Record) -> datetime | None:
    report, reported_at = record.report, record.reported_at
    if report is None or report.started_at is None or reported_at is None:
        return reported_at
    # Of a run that was reporting before it was first read: its reports began as it did, by its own clock.
    return min(reported_at, later(report.started_at, -record.clock.ahead_s))


def _run_ended_at(record: Record) -> datetime | None:
    """When rank 0's container last ended."""
    return record.last_termination.finished_at if record.last_termination is not None else None


def _released(held: Holding, at: datetime) -> Holding:
    """Nothing is held from then on."""
    wasted = max(_until(held.silent_since, at), _until(held.stalled_since, at))
    return replace(
        held,
        pod_uid="",
        since=None,
        last_until=at,
        held_s=held.held_s + _until(held.since, at),
        attempt="",
        silent_since=None,
        stalled_since=None,
        wasted_s=held.wasted_s + wasted,
    )


def _released_at(record: Record, now: datetime) -> datetime:
    job, since = record.job, record.holding.since
    if job.phase is Phase.SUSPENDED:
        at = job.suspension_changed_at
    elif job.phase.is_final:
        at = job.ended_at
    else:
        # The pod is gone. How its last run ended may not have been seen, but how the one before did.
        at = _run_ended_at(record)
        started_at = record.rank0.started_at if record.rank0 is not None else None
        if at is not None and started_at is not None and at < started_at:
            at = None
    return at if at is not None and since is not None and since <= at <= now else now


def _until(since: datetime | None, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds()) if since is not None else 0.0
