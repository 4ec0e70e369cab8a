"""What is kept of one job, and what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from visibility_api.text import harmless

from .clock import UNKNOWN_CLOCK, NodeClock
from .document import Progress, Refused
from .estimate import Pace, percentage
from .job import Phase, Rank0, Termination, TrainingJob
from .observation import Observation
from .summary import NOT_RUNNING, STALLED, Condition, JobProgress, ObservationSummary


@dataclass(slots=True, kw_only=True)
class Record:
    """All that is kept of one job."""

    job: TrainingJob
    interval_s: float  # between two probes
    rank0: Rank0 | None = None  # the last known; outlives the pod
    # Whose reports count: of the pods that may hold rank 0 now, or of the last one known.
    attempts: tuple[str, ...] = ()
    last_termination: Termination | None = None  # outlives the pod that shows it
    report: Progress | None = None
    source: str = ""  # of `report`
    reporter: str = ""  # of `report`: its source, or the kind of process if it is not rank 0
    attempt: str = ""  # of `report`
    is_current: bool = False  # `report` is of the attempt that runs now, or that the job has ended with
    reports: dict[str, Progress] = field(default_factory=dict)  # the last of each reporter, this attempt
    read_at: dict[str, datetime] = field(default_factory=dict)  # when each reporter of this attempt last was
    clock: NodeClock = UNKNOWN_CLOCK  # the training process's, as far as its reports show it
    positioned_at: datetime | None = None  # when a source other than the log reported the position last
    # By our clock: the time that `report` bears, corrected; when it was first seen if it bears none.
    reported_at: datetime | None = None
    earliest_at: datetime | None = None  # not before this, in any case; None: that is not known
    moved_at: datetime | None = None  # the `reported_at` of the last report that showed an advance
    pace: Pace = field(default_factory=Pace)
    last_observation: Observation | None = None  # of a probe or a push
    failures: int = 0  # in a row
    conditions: tuple[Condition, ...] = ()
    left_over: tuple[str, Progress] | None = None  # an attempt, and what it found in the file as it began
    message_read: int = 0  # of the termination message read last: a hash, of attempt and text
    shown: JobProgress | None = None  # what was published last
    shown_at: datetime | None = None

    @property
    def failure(self) -> Refused | None:
        """Why the last probe brought no report; None when that does not matter."""
        if self.last_observation is None or not isinstance(self.last_observation.outcome, Refused):
            return None
        if self.source in ("push", "status") and self.is_current:
            return None  # of another source: this one is not probed
        return self.last_observation.outcome

    def rank0_of(self, attempt: str) -> Rank0 | None:
        """The pod that this is an attempt of; None when it is not there any more."""
        pods = (self.job.rank0, *self.job.alternates) if self.job.rank0 is not None else ()
        return next((pod for pod in pods if pod.attempt == attempt), None)


def summarise(record: Record, now: datetime) -> JobProgress:
    """What is shown of the job."""
    job, report, is_current = record.job, record.report, record.is_current
    rank0 = job.rank0 or record.rank0
    if rank0 is not None and rank0.last_termination is None and record.last_termination is not None:
        rank0 = replace(rank0, last_termination=record.last_termination)
    if rank0 is not job.rank0:
        job = replace(job, rank0=rank0)
    started_at = (report.started_at if report else None) or (rank0.started_at if rank0 else None)
    if report is None:
        return JobProgress(
            job=job,
            phase=job.phase,
            started_at=started_at,
            conditions=record.conditions,
            observation=_observation(record),
        )
    done = percentage(report)
    is_cut = report.ending in ("stopped", "preempted")  # before the planned end, and says so
    if report.is_whole or (job.phase is Phase.SUCCEEDED and report.is_final and not is_cut):
        done = 100 if done is not None else None
    remaining_s, completion_at = _end(record, report, is_current=is_current, now=now)
    return JobProgress(
        job=job,
        phase=job.phase,
        progress_percentage=done,
        remaining_s=remaining_s,
        completion_at=completion_at,
        started_at=started_at,
        updated_at=report.timestamp,
        step=report.step,
        total_steps=report.total_steps,
        steps_per_s=record.pace.steps_per_s() if is_current and not job.phase.is_final else None,
        epoch=report.epoch,
        total_epochs=report.total_epochs,
        metrics=report.metrics,
        message=report.message,
        conditions=record.conditions,
        observation=_observation(record),
        seen_at=record.reported_at,
    )


def _end(
    record: Record, report: Progress, *, is_current: bool, now: datetime
) -> tuple[int | None, datetime | None]:
    """Seconds left and when the attempt will end; nothing for a run that does not move now."""
    if report.state == "completed":
        return 0, None
    if record.job.phase is not Phase.RUNNING or not is_current or record.reported_at is None:
        return None, None
    for condition in record.conditions:
        if condition.reason in (STALLED, NOT_RUNNING):
            return None, None
    remaining_s = record.pace.remaining_s(report)
    if remaining_s is None or remaining_s > 10 * 365 * 86400:  # beyond any run: the pace is noise
        return None, None
    completion_at = record.reported_at + timedelta(seconds=remaining_s)
    return max(0, round((completion_at - now).total_seconds())), completion_at


def _observation(record: Record) -> ObservationSummary | None:
    last = record.last_observation
    if last is None:
        if record.report is None:
            return None
        return ObservationSummary(
            source=record.source,
            last_probe_at=None,
            next_probe_at=None,
            latency_s=None,
            consecutive_failures=0,
            reason="",
            message="",
        )
    refused = last.outcome if isinstance(last.outcome, Refused) else None
    return ObservationSummary(
        source=record.source or last.source,
        last_probe_at=last.at,
        next_probe_at=None if record.job.phase.is_final else last.next_at,
        latency_s=last.latency_s,
        consecutive_failures=record.failures,
        reason=refused.reason if refused else "",
        message=harmless(_how(record, last, refused)),
    )


def _how(record: Record, last: Observation, refused: Refused | None) -> str:
    """Why this source was probed and what it brought, kept apart from where the numbers shown come from."""
    text = " ".join(part for part in (refused.message if refused else "", last.why) if part)
    if not text or record.source in ("", last.source):
        return text
    return f"Last probed through {last.source}: {text}"
