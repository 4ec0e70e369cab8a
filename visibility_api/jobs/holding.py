"""For how long a job held its accelerators.

Counted from when rank 0's pod was accepted by its node until the job ended, was suspended, or the pod was
gone, in every attempt. All times are those of the job, so it does not matter who counts, or when.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from .job import Phase, TrainingJob


class Holding(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What is over is in seconds, what goes on has its beginning."""

    pod_uid: str = ""  # of rank 0, while `since` is known
    since: datetime | None = None  # when its pod began to hold them; None: nothing is held
    held_s: float = 0.0  # by pods before
    last_until: datetime | None = None  # when the pod that held them last ceased to


NOTHING_HELD = Holding()


def hold(
    held: Holding, job: TrainingJob, run: tuple[datetime | None, datetime | None], now: datetime
) -> Holding:
    """`held`, brought up to date.

    `run`: when rank 0's container last began and ended, as far as is known; the end may be of the run before.
    """
    rank0 = job.rank0
    if not job.accelerators:
        return held
    holds = job.phase not in (Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)
    began_at = rank0.pod_started_at if rank0 is not None and holds else None
    if held == NOTHING_HELD and rank0 is not None and job.phase.is_final:
        # It had ended before it was first seen: held by its last pod.
        ended_at = job.ended_at or run[1]
        if rank0.pod_started_at is None or ended_at is None:
            return held
        return replace(held, held_s=_until(rank0.pod_started_at, ended_at), last_until=ended_at)
    if held.since is not None and (began_at is None or rank0 is None or rank0.pod_uid != held.pod_uid):
        held = _released(held, _released_at(held.since, job, run, now))
    if began_at is not None and rank0 is not None and held.since is None:
        if held.last_until is not None:  # pods of one job may overlap, and its accelerators count once
            began_at = max(began_at, held.last_until)
        held = replace(held, pod_uid=rank0.pod_uid, since=began_at)
    return held


def held_s(held: Holding, now: datetime) -> float:
    """Seconds in which they were held."""
    return held.held_s + _until(held.since, now)


def _released(held: Holding, at: datetime) -> Holding:
    """Nothing is held from then on."""
    return replace(held, pod_uid="", since=None, last_until=at, held_s=held.held_s + _until(held.since, at))


def _released_at(
    since: datetime, job: TrainingJob, run: tuple[datetime | None, datetime | None], now: datetime
) -> datetime:
    if job.phase is Phase.SUSPENDED:
        at = job.suspension_changed_at
    elif job.phase.is_final:
        at = job.ended_at
    else:
        # The pod is gone. How its last run ended may not have been seen, but how the one before did.
        started_at, at = run
        if at is not None and started_at is not None and at < started_at:
            at = None
    return at if at is not None and since <= at <= now else now


def _until(since: datetime | None, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds()) if since is not None else 0.0
