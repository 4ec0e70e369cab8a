"""The internal document: everything one job's TrainJobProgress is encoded from.

Every API version is an encoder over this value; `tracker` builds it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from visibility_api.diagnosis.result import Diagnosis
from visibility_api.models.condition_types import CONDITION_TYPES

from .failure import Failure
from .job import Phase, TrainingJob

# Reasons of conditions that show a run not to move: no end of it can be estimated.
NOT_RUNNING, STALLED = "Rank0NotRunning", "NoAdvance"
BEHIND = "ReplicaBehind"  # of Fresh: the replica that shows it has lost the one that owns the jobs


class Condition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A `metav1.Condition`; `since` moves only when `status` does."""

    type: str  # Reporting, Fresh, Stalled, Diverged, …: docs/troubleshooting.md
    status: str  # "True", "False" or "Unknown"
    reason: str  # CamelCase, never empty (metav1.Condition requires it)
    message: str
    since: datetime


class Beginning(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Since when a condition has its status. Its reason and message follow from the rest."""

    type: str
    status: str
    since: datetime


class ObservationSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How we know what we show, and how well."""

    source: str  # exec, http, logs, push, status, termination
    last_probe_at: datetime | None
    next_probe_at: datetime | None
    latency_s: float | None  # of the last probe that was answered
    consecutive_failures: int
    reason: str  # "" after a success
    message: str


class Resources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The accelerators of all pods of a job."""

    accelerators: int
    by_name: tuple[tuple[str, int], ...]
    held_s: int  # seconds of all of them together, so far
    wasted_s: int | None  # of these, with nothing to show for them; None: it reports nowhere


_AGING = frozenset(each.name for each in CONDITION_TYPES if each.ages)


class JobProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is served for one job. Absent is None, never 0 or ""."""

    job: TrainingJob
    phase: Phase
    progress_percentage: int | None = None  # 0 to 100
    remaining_s: int | None = None  # at least 0
    completion_at: datetime | None = None  # estimated
    completion_range: tuple[datetime, datetime] | None = None  # in which that should lie: earliest, latest
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ran_s: int | None = None  # from start to end; at least 0
    attempts: int | None = None  # so far, at least 1; None: none has begun
    updated_at: datetime | None = None  # the training process's clock, UTC
    step: int | None = None
    total_steps: int | None = None
    steps_per_s: float | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    resources: Resources | None = None  # None: it requests no accelerators
    checkpoint: tuple[int, datetime] | None = None  # the last one: its step, and when it was complete
    goodput: bytes = b""  # what its time was spent on: account.Account
    failure: Failure | None = None  # the last one, what came first; stays while the job goes on
    diagnosis: Diagnosis | None = None  # the last one; stays when the run goes on, and when the pods are gone
    conditions: tuple[Condition, ...] = ()
    observation: ObservationSummary | None = None
    seen_at: datetime | None = None  # when the last report was written, by our clock; None: that is not known

    def essence(self) -> JobProgress:
        """What a watcher is notified of: all but what every probe changes (times, counts, ages)."""
        seen = self.observation
        return replace(
            self,
            remaining_s=None,
            completion_at=None,
            completion_range=None,
            resources=None,  # how many there are is in `job`
            goodput=b"",
            conditions=tuple(replace(c, message="") if c.type in _AGING else c for c in self.conditions),
            observation=seen
            and replace(seen, last_probe_at=None, next_probe_at=None, latency_s=None, consecutive_failures=0),
        )

    def as_of(self, heard_at: datetime, now: datetime, source: str) -> JobProgress:
        """The same, as a replica shows it that has heard nothing of the job since `heard_at`, by its clock.
        `source`: from where, in words.
        A job that has ended, or whose numbers are old already, is shown as it is."""
        fresh = self.condition("Fresh")
        if self.phase.is_final or fresh is None or fresh.status == "False":
            return self
        message = (
            f"This replica of the server has heard nothing since {heard_at:%H:%M:%SZ} {source},"
            " and the numbers are no newer than that. Ask again: another replica may know more."
        )
        behind = Condition(type="Fresh", status="False", reason=BEHIND, message=message, since=now)
        return replace(
            self,
            remaining_s=None,
            completion_at=None,
            completion_range=None,
            steps_per_s=None,
            conditions=tuple(behind if each is fresh else each for each in self.conditions),
        )

    def condition(self, type_: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == type_), None)

    @property
    def stall(self) -> Condition | None:
        """The condition, while the run is stalled."""
        found = self.condition("Stalled")
        return found if found is not None and found.status == "True" else None

    @property
    def stall_diagnosis(self) -> Diagnosis | None:
        """That of the stall that lasts."""
        stall, last = self.stall, self.diagnosis
        return last if stall is not None and last is not None and last.at >= stall.since else None
