"""What is kept of one job, and what is shown of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import harmless
from visibility_api.history.job_history import JobHistory
from visibility_api.models.sources import PASSIVE
from visibility_api.reports.document import Progress, Refused
from visibility_api.reports.fields import MAX_INTEGER

from .clock import UNKNOWN_CLOCK, NodeClock
from .estimate import Pace, percentage
from .failure import Failure, first_of
from .holding import NOTHING_HELD, Holding, held_s
from .job import Phase, Rank0, Termination, TrainingJob
from .observation import Addition, Observation
from .rhythm import section_s
from .straggling import NOTHING_GATHERED, Gathered
from .summary import Beginning, Condition, JobProgress, ObservationSummary, Resources
from .trials import Trials
from .watched import NOTHING_WATCHED, Watched

FRESH_INTERVALS = 3.0  # a report may be missed twice before its numbers count as old
FRESH_AT_LEAST_S = 30.0
LONGEST_RUN_S = 10 * 365 * 86400  # an estimate beyond any run comes of a pace that is noise
REPORTS_LATE = timedelta(seconds=60)  # after a failure, by another clock, a report may be of before it
MAX_QUOTED_CHARACTERS = 300  # of what a run says of itself
_LOSSES = ("loss", "train_loss", "eval_loss")
PASSES_IN_S = 2.0  # an estimated end so close is shown no more: it would pass before the next evaluation


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One that is complete."""

    step: int
    at: datetime  # by our clock
    longest_s: float = 0.0  # the longest time between two of one attempt


class Idleness(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Reports in a row in which no accelerator was busy."""

    since: datetime  # the first of them, by our clock
    until: datetime  # the last one
    reports: int


class Look(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """At the ranks of a run that stood still."""

    at: datetime
    shows: str  # Diagnosis.shows
    evidence: str


class State(msgspec.Struct, kw_only=True, array_like=True):
    """What of a job outlives a process: `memory` encodes it, as an array in the order of these fields.

    A field may be added at the end with a default; none ever changes its place or meaning. It contains no
    times of probes: while a job reports nothing new, its state does not change, so it need not be stored
    again. All times are aware, UTC, by our clock unless it says otherwise."""

    attempt: str = ""  # of `report`; Rank0.attempt
    source: str = ""  # of `report`: exec, http, logs, push, status, termination
    reporter: str = ""  # of `report`: its source, or the kind of process if it is not rank 0
    report: Progress | None = None  # completed by earlier ones; its timestamp by the training clock
    reports: dict[str, Progress] = {}  # the last of each reporter, as it was read, this attempt
    # By our clock: the time that `report` bears, corrected; when it was first seen if it bears none.
    reported_at: datetime | None = None
    earliest_at: datetime | None = None  # before which `report` was not written; None: that is not known
    moved_at: datetime | None = None  # the `reported_at` of the last report that showed an advance
    positioned_at: datetime | None = None  # when a source other than the log reported the position last
    clock: NodeClock = UNKNOWN_CLOCK  # the training process's, as far as its reports show it
    pace: Pace = Pace()
    watched: Watched = NOTHING_WATCHED  # what its metrics were like, this attempt
    gathered: Gathered = NOTHING_GATHERED  # what rank 0 said of the others, an attempt
    refused: Refused | None = None  # the outcome of the last probe of this attempt, if it brought no report
    left_over: tuple[str, Progress] | None = None  # an attempt, and what it found in the file as it began
    rank0: Rank0 | None = None  # the last known; outlives the pod
    last_termination: Termination | None = None  # outlives the pod that shows it
    failed: Failure | None = None  # why an attempt failed last; outlives the pods that show it
    holding: Holding = NOTHING_HELD  # of accelerators, if the job has any
    begun: int = 0  # attempts so far: how often the container of rank 0 was started
    begun_last: str = ""  # the last of them: Rank0.attempt
    began: tuple[Beginning, ...] = ()  # since when each condition has its status
    begun_pod_at: datetime | None = None  # when the pod of `begun_last` was created
    accelerators: tuple[tuple[str, int], ...] = ()  # the last known; they outlive the JobSet that shows them
    account: bytes = b""  # of its time: account.Account
    checkpoint: Checkpoint | None = None  # the last one that the run has told of, in any attempt
    diagnosis: Diagnosis | None = None  # where its ranks were when they were read last
    missed: Refused | None = None  # `refused` of an earlier attempt
    idle: Idleness | None = None  # of the accelerators, by the last report that says how busy they are
    look: Look | None = None  # what its ranks showed when they were read last, told or not
    # When all ranks' files were read last, and what they said of their accelerators: names and values.
    accelerators_of_all: tuple[datetime, tuple[tuple[str, str], ...]] | None = None


class Record(State, kw_only=True):
    """All that is kept of one job: its state, and what this process alone needs."""

    job: TrainingJob
    interval_s: float  # between two probes
    # Whose reports count: of the pods that may hold rank 0 now, or of the last one known.
    attempts: tuple[str, ...] = ()
    is_current: bool = False  # `report` is of the attempt that runs now, or that the job has ended with
    read_at: dict[str, datetime] = {}  # when each reporter of this attempt last was
    history: JobHistory | None = None  # None: nothing was reported yet
    fruitless: int = 0  # attempts in a row without a new step, as the account has it
    wasted_s: float | None = None  # held for nothing, by the account
    points: list[Addition] = []  # of the history, that are not in the log yet
    last_observation: Observation | None = None  # of a probe or a push, by this process
    observed: ObservationSummary | None = None  # the same by another process, until then
    failures: int = 0  # probes in a row
    is_watched: bool = True  # the cluster's objects of the job are followed at this moment
    conditions: tuple[Condition, ...] = ()
    message_read: int = 0  # of the termination message read last: a hash, of attempt and text
    shown: JobProgress | None = None  # what was published last
    shown_at: datetime | None = None
    passes_at: datetime | None = None  # when the estimated end that was shown will have passed
    trials: Trials | None = None  # that it is compared with

    @property
    def failure(self) -> Refused | None:
        """Why the last probe brought no report; None when that does not matter."""
        if self.refused is not None and self.source in PASSIVE and self.is_current:
            return None  # of another source: this one is not probed
        return self.refused

    @property
    def declares_progress(self) -> bool:
        """Whether the job reports, or says where it would: else nothing shows that it is not at work."""
        rank0 = self.job.rank0 or self.rank0
        says = rank0 is not None and bool(rank0.declared) and self.job.hints.source != "none"
        return self.report is not None or says

    @property
    def fresh_limit_s(self) -> float:
        """The age, in seconds, at which the report counts as old."""
        least_s = max(FRESH_AT_LEAST_S, FRESH_INTERVALS * self.interval_s, 2 * self.pace.longest_gap_s)
        return max(least_s, section_s(self.report)) if self.report is not None else least_s

    @property
    def is_age_known(self) -> bool:
        """Whether the report was written at `reported_at`, as nearly as it matters. A report without a time,
        or with one in the future, that was there at the first probe may be as old as its container."""
        earliest, latest = self.earliest_at, self.reported_at
        if earliest is None or latest is None:
            return False
        return earliest == latest or (latest - earliest).total_seconds() <= self.fresh_limit_s

    def show_rank0(self, rank0: Rank0) -> None:
        """This is the last known one."""
        if self.rank0 is not None and self.rank0.attempt != rank0.attempt:
            # Of an attempt that has ended.
            self.missed = self.refused or self.missed
            self.last_observation, self.refused, self.failures = None, None, 0
            self.read_at = {}
            self.observed = None
        self.rank0 = rank0

    def count_attempt(self, rank0: Rank0, attempt: str) -> None:
        """Count this attempt of this pod, and those before it in the same pod, unless they are counted."""
        if not rank0.has_begun:
            return
        if attempt == self.begun_last:
            self.begun_pod_at = rank0.pod_created_at
            return
        pod, _, rest = self.begun_last.partition("/")
        missed, created_at = rank0.restart_count + 1, rank0.pod_created_at
        if pod == rank0.pod_uid:
            missed = rank0.restart_count - int(rest.partition("/")[0])
            if missed <= 0:
                return
        elif created_at is not None and self.begun_pod_at is not None and created_at < self.begun_pod_at:
            return  # a watch of pods may show an earlier one again
        # What was not watched: each restart of the JobSet made another pod, which ran at least once.
        self.begun = max(self.begun + missed, rank0.restart_attempt + rank0.restart_count + 1)
        self.begun_last, self.begun_pod_at = attempt, created_at

    def last_run(self) -> tuple[datetime | None, datetime | None]:
        """When rank 0's container last began, and when it, or the one before, ended."""
        began_at = self.rank0.started_at if self.rank0 is not None else None
        return began_at, self.last_termination.finished_at if self.last_termination is not None else None

    def rank0_of(self, attempt: str) -> Rank0 | None:
        """The pod that this is an attempt of; None when it is not there any more."""
        pods = (self.job.rank0, *self.job.alternates) if self.job.rank0 is not None else ()
        return next((pod for pod in pods if pod.attempt == attempt), None)


def note_failure(record: Record, found: Failure) -> None:
    """This is how the job, or one of its pods, failed; it may be known, or come of another failure."""
    rank0 = record.job.rank0
    if found.is_of_job and record.rank0 is not None and record.rank0.waiting_reason:
        waited = f" Rank 0 had not started: {record.rank0.waiting_reason}."
        found = replace(found, message=found.message.removesuffix(waited) + waited)
    started_at = rank0.started_at if rank0 else None
    held, moved_at = record.failed, record.moved_at
    has_moved = held is not None and moved_at is not None and moved_at > held.at + REPORTS_LATE
    if has_moved and started_at is not None and moved_at is not None:
        started_at = max(started_at, moved_at)  # it went on, and rank 0 was not started again
    record.failed = first_of(held, found, started_at=started_at)


def _resources(record: Record, now: datetime) -> Resources | None:
    job = record.job
    if not job.accelerators:
        return None
    number = min(sum(count for _, count in job.accelerators), MAX_INTEGER)
    held = held_s(record.holding, now)
    return Resources(
        accelerators=number,
        by_name=job.accelerators,
        held_s=_seconds(number, held),
        # Nothing shows that a job which neither reports nor says where it would is not at work.
        wasted_s=_seconds(number, min(held, record.wasted_s or 0.0)) if record.declares_progress else None,
    )


def _seconds(number: int, each_s: float) -> int:
    """Of all of them together; a tenant may claim to hold any number, and JSON and replicas take so many."""
    return min(int(number * each_s), MAX_INTEGER)


def note_reached(record: Record) -> None:
    """Keep with a failure how far the run had come: the next attempt's reports take the place of its own."""
    failed, report, reported_at = record.failed, record.report, record.reported_at
    if failed is None or report is None or reported_at is None:
        return
    if reported_at > failed.at + REPORTS_LATE or (failed.since is not None and reported_at < failed.since):
        return
    reached = _reached(report)
    if reached != failed.reached:
        record.failed = replace(failed, reached=reached)


def _reached(report: Progress) -> str:
    where = []
    if report.step is not None:
        where.append(f"step {report.step}" + (f" of {report.total_steps}" if report.total_steps else ""))
    elif (done := percentage(report)) is not None:
        where.append(f"{done}%")
    where += [f"{name} {value}" for name, value in report.metrics if name in _LOSSES][:1]
    if not where and not report.message:
        return ""
    said = f": {harmless(report.message[:MAX_QUOTED_CHARACTERS])}" if report.message else ""
    return f"It had reported {harmless(', '.join(where)) or 'this'}{said.rstrip('.')}."


def summarise(record: Record, now: datetime, goodput: bytes) -> JobProgress:
    """What is shown of the job. Needs the record's conditions, and its account, of now."""
    job, report = record.job, record.report
    rank0 = job.rank0 or record.rank0
    if rank0 is not None and rank0.last_termination is None and record.last_termination is not None:
        rank0 = replace(rank0, last_termination=record.last_termination)
    if rank0 is not job.rank0:
        job = replace(job, rank0=rank0)
    started_at = (report.started_at if report else None) or (rank0.started_at if rank0 else None)
    ended_at, ran_s = None, None
    if job.phase.is_final:
        ended_at = _ended_at(job)
        ran_s = _ran_s(record, started_at, ended_at)
    shown = JobProgress(
        job=job,
        phase=job.phase,
        started_at=started_at,
        ended_at=ended_at,
        ran_s=ran_s,
        attempts=record.begun or None,
        checkpoint=(saved.step, saved.at) if (saved := record.checkpoint) is not None else None,
        failure=record.failed,
        diagnosis=record.diagnosis,
        resources=_resources(record, now),
        goodput=goodput,
        conditions=record.conditions,
        observation=_observation(record),
    )
    if report is None:
        return shown
    done = percentage(report)
    is_cut = report.ending in ("stopped", "preempted")  # before the planned end, and says so
    if report.is_whole or (job.phase is Phase.SUCCEEDED and report.is_final and not is_cut):
        done = 100 if done is not None else None
    is_moving = _is_moving(record, report)
    remaining_s, completion_at, completion_range = _end(record, report, now) if is_moving else _NO_END
    if report.state == "completed" and record.is_current and job.phase not in (Phase.FAILED, Phase.SUSPENDED):
        remaining_s = 0
    return replace(
        shown,
        progress_percentage=done,
        remaining_s=remaining_s,
        completion_at=completion_at,
        completion_range=completion_range,
        updated_at=report.timestamp,
        step=report.step,
        total_steps=report.total_steps,
        steps_per_s=record.pace.steps_per_s() if is_moving else None,
        epoch=report.epoch,
        total_epochs=report.total_epochs,
        metrics=report.metrics,
        message=report.message,
        seen_at=record.reported_at
        if record.earliest_at == record.reported_at or record.is_age_known
        else None,
    )


_End = tuple[int | None, datetime | None, tuple[datetime, datetime] | None]
_NO_END: _End = (None, None, None)


def _is_moving(record: Record, report: Progress) -> bool:
    """Whether the job advances now, as far as is known: else it has no rate, and no end can be estimated."""
    if record.job.phase is not Phase.RUNNING or not record.is_current or report.is_final:
        return False
    status_of = {each.type: each.status for each in record.conditions}
    return status_of["Fresh"] == "True" and status_of["Stalled"] != "True"


def _end(record: Record, report: Progress, now: datetime) -> _End:
    """Seconds left, when the attempt will end, and between when; nothing when that should be over."""
    found = record.pace.left_s(report)
    if found is None or found[0] > LONGEST_RUN_S or record.reported_at is None:
        return _NO_END
    remaining_s, least_s, most_s = found
    completion_at = record.reported_at + timedelta(seconds=remaining_s)
    left_s = (completion_at - now).total_seconds()
    if left_s <= PASSES_IN_S:
        return _NO_END
    if least_s is None or most_s is None:
        return round(left_s), completion_at, None
    earliest = max(now, record.reported_at + timedelta(seconds=least_s))
    latest = record.reported_at + timedelta(seconds=min(most_s, 2 * LONGEST_RUN_S))
    return round(left_s), completion_at, (earliest, latest)


def _ended_at(job: TrainingJob) -> datetime | None:
    if job.ended_at is None and job.rank0 is not None and job.rank0.last_termination is not None:
        return job.rank0.last_termination.finished_at
    return job.ended_at


def _ran_s(record: Record, started_at: datetime | None, ended_at: datetime | None) -> int | None:
    """Seconds from its start to its end. The start is by the node's clock, the end by the control plane's."""
    if started_at is None or ended_at is None:
        return None
    ran_s = (ended_at - started_at).total_seconds() + record.clock.ahead_s
    return round(ran_s) if ran_s >= 0 else None


def _observation(record: Record) -> ObservationSummary | None:
    last = record.last_observation
    if last is None and record.observed is not None:
        return record.observed
    if last is None:
        refused = record.refused  # another process has found it
        if record.report is None and refused is None:
            return None
        return ObservationSummary(
            source=record.source,
            last_probe_at=None,
            next_probe_at=None,
            latency_s=None,
            consecutive_failures=0,
            reason=refused.reason if refused else "",
            message=harmless(refused.message) if refused else "",
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
