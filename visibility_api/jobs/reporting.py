"""The conditions Reporting and Fresh: whether reports of a job can be read, and whether they are current.

Each condition has a rule, and a function that says since when it has its status: by the job's own times, so
it does not matter who evaluates it, or when. None there: all that is known is that it has it now.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from visibility_api.models.sources import PASSIVE

from .job import Phase, TrainingJob
from .record import FRESH_AT_LEAST_S, Record
from .summary import NOT_RUNNING

Found = tuple[str, str, str]  # status, reason, message
# message: the reason says it all, as metav1.Condition allows; such messages were a tenth of every list
PLAIN = ""
NO_REPORT = "NoReport"
NOT_TRAINING = "NotTraining"
FAILING_INTERVALS = 2.0  # after this a report is old if the probes since then have failed
METRICS_UNAVAILABLE = "MetricsUnavailable"  # Katib's word for a trial that has ended so
KATIBS = {"katib.kubeflow.org/trial", "katib.kubeflow.org/experiment"}
CALL_OUT_S = 60.0  # a clock that is off by less is corrected for without a word


class Rule(NamedTuple):
    """How one type of condition comes about. `models/condition_types.py` says what it means."""

    type: str
    find: Callable[[Record, datetime], Found | None]  # None: the job does not have it
    began: Callable[[Record, str, str, datetime], datetime | None]  # of record, status, reason and now
    is_jobs_own: bool = False  # its controller gives it, and its time, which counts whatever was shown


def _find_reporting(record: Record, _now: datetime) -> Found:
    status, reason, message = _reporting_plainly(record)
    # Where the author of an annotation that cannot be used finds it.
    return status, reason, " ".join(filter(None, (message, *record.job.hints.faults)))


def _reporting_plainly(record: Record) -> Found:
    if record.job.unread is not None:
        what, reason = record.job.unread
        why = "is too large" if reason == "ObjectTooLarge" else "has a field of an unexpected type"
        message = (
            f"The {what} {why}, so this server cannot read it. Remove large and unexpected fields from it."
        )
        return "Unknown", reason, message
    if record.is_current:
        return "True", "DocumentRead", PLAIN
    rank0, phase = record.job.rank0, record.job.phase
    if phase.is_final and record.report is None and KATIBS & record.job.labels.keys():
        why = record.failure.message if record.failure is not None else _why_never_read(record)
        return "False", METRICS_UNAVAILABLE, why
    if record.failure is not None:
        return "False", record.failure.reason, record.failure.message
    if phase.is_final:
        if record.report is not None:
            return "True", "DocumentRead", "Rank 0 reported its progress."
        return "False", "EndedWithoutReport", _why_never_read(record)
    if record.job.hints.source == "none":
        annotation = "Annotation visibility.trainer.kubeflow.org/source of the job"
        return "False", "SwitchedOff", f"{annotation} switches probing off. Remove it to see progress."
    if record.job.runs_elsewhere:
        if record.job.unreported is not None:
            reason, why = record.job.unreported
            return "False", reason or "NotInStatus", f"In {record.job.place}: {why}"
        message = "The job runs in another cluster, and its status has no progress. Use write-back there."
        return "False", "NotInStatus", message
    if rank0 is None:
        return "False", "NoRank0Pod", "The job has no rank-0 pod yet. Its phase says what it waits for."
    if not rank0.is_running:
        why = f" ({rank0.waiting_reason})" if rank0.waiting_reason else ""
        return "False", NOT_RUNNING, f"Container {rank0.container_name} is not running{why}."
    if (source := record.job.hints.source) in PASSIVE:
        message = (
            f"No report has come yet; the job's source annotation says {source}, so rank 0 is not probed. "
            "Let the job report, or remove the annotation."
        )
        return "Unknown", "NotYetReported", message
    return "Unknown", "NotYetProbed", "Rank 0 has not been probed yet."


def _why_never_read(record: Record) -> str:
    """Of a job that has ended. Nothing was refused: nobody has looked while it ran."""
    if record.missed is not None:
        return f"The job ended and no report of it was read. In an earlier attempt: {record.missed.message}"
    return (
        "The job ended before it was probed. Write a termination message, which is read afterwards too "
        "(docs/document.md). If the job does not report yet, instrument it (docs/instrument.md)."
    )


def _find_fresh(record: Record, now: datetime) -> Found:
    report, reported_at = record.report, record.reported_at
    if report is None or reported_at is None:
        return "False", NO_REPORT, "There is no report yet. The condition Reporting says why."
    if report.is_final and record.is_current:
        return "True", "FinalReport", "This is the final report of the run."
    if not record.is_watched:
        said = "kube-apiserver has sent no changes of the job's objects for over a minute"
        return "Unknown", "WatchDown", f"{said}; the server's log and /readyz?verbose name the collection."
    why_old = _why_not_current(record, reported_at)
    if why_old is not None:
        return why_old
    age_s, failure = (now - reported_at).total_seconds(), record.failure
    if failure is not None and age_s > FAILING_INTERVALS * record.interval_s:
        return (
            "False",
            failure.reason,
            f"{_last_report(record, reported_at, age_s)} Since then: {failure.message}",
        )
    if age_s > FRESH_AT_LEAST_S and age_s > record.fresh_limit_s:
        where = record.job.message if record.job.cluster else ""  # it may say that this cluster is not read
        text = " ".join(filter(None, (_last_report(record, reported_at, age_s), where)))
        return "False", "NoNewReport", text
    if record.earliest_at == reported_at:
        return "True", "RecentReport", PLAIN
    if record.is_age_known or (
        record.earliest_at is not None and (now - record.earliest_at).total_seconds() <= record.fresh_limit_s
    ):
        return "True", "RecentReport", _about_time(record)
    return "Unknown", "AgeNotKnown", _about_time(record)


def _about_time(record: Record) -> str:
    """What the age is reckoned from, where that is not simply the time which the report bears."""
    read = record.reports.get(record.reporter)
    if read is not None and read.timestamp is None:
        return "The report bears no time: its age counts from when it was first seen."
    ahead_s = record.clock.ahead_s
    if abs(ahead_s) < CALL_OUT_S:
        return PLAIN
    off = f"{describe_age(timedelta(seconds=abs(ahead_s)))} {'ahead' if ahead_s > 0 else 'behind'}"
    if ahead_s > 0 and not record.is_age_known:
        return (
            f"The clock that dates the reports is at least {off}, so the age of this one is not known. "
            "Synchronise the clock of rank 0's node."
        )
    return (
        f"The clock that dates the reports is {off}, and ages allow for that. "
        "Synchronise the clock of rank 0's node."
    )


def _last_report(record: Record, reported_at: datetime, age_s: float) -> str:
    age = describe_age(timedelta(seconds=age_s))
    text = f"Last new report at {_instant(reported_at)}, {age} before this was evaluated."
    about = PLAIN if record.earliest_at == reported_at else _about_time(record)
    return f"{text} {about}" if about else text


def _why_not_current(record: Record, reported_at: datetime) -> Found | None:
    """Why the last report is old whatever its age; None when only its age counts."""
    job = record.job
    if job.phase.is_final:
        reason, why = "EndedWithoutFinalReport", "The job ended"
    elif not record.is_current:
        return "False", "AttemptEnded", f"Reported at {_instant(reported_at)} by an attempt that has ended."
    elif job.phase is Phase.SUSPENDED:
        reason, why = "Suspended", "The job is suspended"
    elif job.hints.source == "none":
        reason, why = "SwitchedOff", "Rank 0 is no longer probed"
    # There is no probe until a container runs, so nothing would ever take a "True" back.
    elif not is_running(job):
        reason, why = NOT_RUNNING, "Rank 0 is not running"
    else:
        return None
    return "False", reason, f"{why}; its last report came at {_instant(reported_at)}."


def is_running(job: TrainingJob) -> bool:
    """Whether there is a process whose next report may be waited for."""
    if job.runs_elsewhere:
        return job.phase is Phase.RUNNING
    return job.rank0 is not None and (job.rank0.is_running or any(a.is_running for a in job.alternates))


def _instant(moment: datetime) -> str:
    """Where no probe follows, an age would be read hours later as if it were of then."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _reporting_began(record: Record, status: str, *_: object) -> datetime | None:
    return record.reported_at if status == "True" else unreported_since(record)


def _fresh_began(record: Record, status: str, reason: str, now: datetime) -> datetime | None:
    reported_at = record.reported_at
    if reported_at is None:  # nor was there one of an earlier container
        return record.job.created_at or unreported_since(record)
    if status != "False":
        return reported_at
    old_at = reported_at + timedelta(seconds=record.fresh_limit_s)
    if reason == "NoNewReport":
        return old_at
    job = record.job
    if reason == "EndedWithoutFinalReport":
        ended_at = job.ended_at
    elif reason == "Suspended":
        ended_at = job.suspension_changed_at
    elif reason in ("AttemptEnded", NOT_RUNNING):
        ended_at = _container_ended_at(record) or _container_started_at(record)
    elif reason == "SwitchedOff":
        ended_at = None
    else:
        ended_at = reported_at + timedelta(seconds=FAILING_INTERVALS * record.interval_s)
    return max(reported_at, min(old_at, ended_at or now))


def unreported_since(record: Record) -> datetime | None:
    """Since when there could have been a report, and was none."""
    return _container_started_at(record) or record.job.created_at


def _container_started_at(record: Record) -> datetime | None:
    return record.job.rank0.started_at if record.job.rank0 is not None else None


def _container_ended_at(record: Record) -> datetime | None:
    return record.last_termination.finished_at if record.last_termination is not None else None


def describe_age(age: timedelta) -> str:
    """`90s`, `12m`, `5h`, `3d`: as precise as an age needs to be."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return f"{seconds // 86400}d"


REPORTING = (
    Rule("Reporting", _find_reporting, _reporting_began),
    Rule("Fresh", _find_fresh, _fresh_began),
)
