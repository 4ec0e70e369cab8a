"""For how long a job held its accelerators, and for how much of that it had nothing to show for them.

Counted from when rank 0's pod was accepted by its node until the job ended, was suspended, or the pod was
gone, in every attempt. Wasted is the time until the first report of an attempt, and that in which the job
stalled. All times are those of the job and its reports, so it does not matter who counts, or when.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from .job import Phase, Rank0, TrainingJob


class Holding(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What is over is in seconds, what goes on has its beginning."""

    pod_uid: str = ""  # of rank 0, while `since` is known
    since: datetime | None = None  # when its pod began to hold them; None: nothing is held
    held_s: float = 0.0  # by pods before
    attempt: str = ""  # the last that has reported; Rank0.attempt
    silent_since: datetime | None = None  # since when the present attempt has not reported
    stalled_since: datetime | None = None
    wasted_s: float = 0.0  # of silences and stalls that are over
    last_pod_uid: str = ""  # of the pod that held them last and does no more
    last_until: datetime | None = None  # until then


NOTHING_HELD = Holding()


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What decides it, of a job's record."""

    attempt: str  # the present one; "" without a pod
    is_reporting: bool  # it has reported
    reported_at: datetime | None  # when its reports began, if it has
    stalled_since: datetime | None  # None: it does not stall
    moved_at: datetime | None  # when a report last showed an advance
    started_at: datetime | None  # when rank 0's container was last started
    ended_at: datetime | None  # when rank 0's container last ended


def advance(held: Holding, job: TrainingJob, seen: Seen, now: datetime) -> Holding:
    """The same, now. Equal to what it was while nothing begins or ends."""
    rank0 = job.rank0
    holds = job.phase not in (Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)
    began_at = rank0.pod_started_at if rank0 is not None and holds else None
    if held == NOTHING_HELD and rank0 is not None and job.phase.is_final:
        return _held_before(held, rank0, job.ended_at or seen.ended_at)
    if held.since is not None and (began_at is None or rank0 is None or rank0.pod_uid != held.pod_uid):
        held = _released(held, _released_at(held, job, seen, now))
    if began_at is not None and rank0 is not None:
        if held.since is None:
            if held.last_until is not None:  # pods of one job may overlap, and its accelerators count once
                began_at = max(began_at, held.last_until)
            held = replace(held, pod_uid=rank0.pod_uid, since=began_at, silent_since=began_at, attempt="")
        held = _watched(held, seen, now)
    return held


def _held_before(held: Holding, rank0: Rank0, ended_at: datetime | None) -> Holding:
    """By the last pod of a job that had ended before it was first seen. What was wasted is not known."""
    if rank0.pod_started_at is None or ended_at is None:
        return held
    held_s = _until(rank0.pod_started_at, ended_at)
    return replace(held, held_s=held_s, last_pod_uid=rank0.pod_uid, last_until=ended_at)


def held_s(held: Holding, now: datetime) -> float:
    """Seconds in which they were held."""
    return held.held_s + _until(held.since, now)


def wasted_s(held: Holding, now: datetime) -> float:
    """Seconds of these in which the job stalled, or had not reported yet."""
    return held.wasted_s + max(_until(held.silent_since, now), _until(held.stalled_since, now))


def _watched(held: Holding, seen: Seen, now: datetime) -> Holding:
    if held.stalled_since is not None and seen.stalled_since is None:
        until = seen.moved_at if seen.moved_at is not None and seen.moved_at > held.stalled_since else now
        if not seen.is_reporting and seen.ended_at is not None and seen.ended_at > held.stalled_since:
            until = seen.ended_at
        held = replace(held, stalled_since=None, wasted_s=held.wasted_s + _until(held.stalled_since, until))
    elif seen.stalled_since is not None and held.since is not None:
        stalled_since = max(seen.stalled_since, held.since)  # it may stand still for longer than it holds any
        if stalled_since != held.stalled_since:
            held = replace(held, stalled_since=stalled_since)
    if seen.is_reporting:
        if held.silent_since is not None:
            silent_s = _until(held.silent_since, seen.reported_at or now)
            held = replace(held, silent_since=None, wasted_s=held.wasted_s + silent_s)
        if held.attempt != seen.attempt:
            held = replace(held, attempt=seen.attempt)
    elif held.silent_since is None and held.attempt != seen.attempt:  # restarted in place
        held = replace(held, silent_since=seen.ended_at or now)
    return held


def _released(held: Holding, at: datetime) -> Holding:
    """Nothing is held from then on."""
    wasted = max(_until(held.silent_since, at), _until(held.stalled_since, at))
    return replace(
        held,
        pod_uid="",
        since=None,
        last_pod_uid=held.pod_uid,
        last_until=at,
        held_s=held.held_s + _until(held.since, at),
        attempt="",
        silent_since=None,
        stalled_since=None,
        wasted_s=held.wasted_s + wasted,
    )


def _released_at(held: Holding, job: TrainingJob, seen: Seen, now: datetime) -> datetime:
    if job.phase is Phase.SUSPENDED:
        at = job.suspension_changed_at
    elif job.phase.is_final:
        at = job.ended_at
    else:
        # The pod is gone. How its last run ended may not have been seen, but how the one before did.
        is_known = seen.started_at is None or seen.ended_at is None or seen.ended_at >= seen.started_at
        at = seen.ended_at if is_known else None
    return at if at is not None and held.since is not None and held.since <= at <= now else now


def _until(since: datetime | None, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds()) if since is not None else 0.0
