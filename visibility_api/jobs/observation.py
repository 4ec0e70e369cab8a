"""What one source brought of a job at one time, as sources hand it to the tracker."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from visibility_api.history.job_history import JobHistory
from visibility_api.reports.document import Outcome, Point, Progress
from visibility_api.reports.ranks import NO_RANKS

from .job import JobRef


class Addition(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What one report adds to the job's history: the arguments of `JobHistory.add`, as followers replay
    them."""

    attempt: str
    report: Progress
    points: tuple[Point, ...]
    continues: bool
    reported_at: datetime
    ahead_s: float
    is_clock_set: bool

    def add_to(self, history: JobHistory) -> None:
        history.add(
            self.attempt,
            self.report,
            self.points,
            continues=self.continues,
            reported_at=self.reported_at,
            ahead_s=self.ahead_s,
            is_clock_set=self.is_clock_set,
        )


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One outcome, good or bad, of one source about one attempt of one job."""

    ref: JobRef
    attempt: str  # Rank0.attempt of the container that was read
    source: str
    at: datetime  # our clock
    outcome: Outcome
    latency_s: float | None = None  # None when there was no report
    next_at: datetime | None = None  # when the job is probed again; None = it is not
    why: str = ""  # why this source, in our own words
    is_final_read: bool = False  # of an attempt that has ended: read from what it left behind
    is_other_rank: bool = False  # of another process of the job; counts until rank 0 itself reports


def without_points(observation: Observation) -> Observation:
    """What may be held of it: the report alone, which is compared, remembered and shown."""
    outcome = observation.outcome
    if not isinstance(outcome, Progress) or not (outcome.points or outcome.ranks.rows):
        return observation
    return replace(observation, outcome=replace(outcome, points=(), ranks=NO_RANKS))
