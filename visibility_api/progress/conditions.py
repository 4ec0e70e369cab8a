"""The conditions of one job, each with a reason, and a message where the reason alone does not say it.

`kubectl wait --for=condition=…` and automation read these. Those that a TrainJob has as well are there when
it has them, so not before they are true (docs/decisions/0007); the others always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from visibility_api.text import harmless

from .job import Phase, TrainingJob
from .record import Record
from .summary import NOT_RUNNING, STALLED, Condition

FRESH_INTERVALS = 3.0  # a report may be missed twice before its numbers count as old
FRESH_AT_LEAST_S = 30.0
STALLED_GAPS = 5.0  # evaluation and checkpoints pause the steps: allow the longest pause seen, several times
STALLED_AT_LEAST_S = 300.0
WATCHED_METRICS = ("loss", "train_loss", "grad_norm", "eval_loss")  # NaN filters hide losses, not grad_norm
# message: the reason says it all, as metav1.Condition allows; such messages were a tenth of every list
_PLAIN = ""


def evaluate(record: Record, now: datetime) -> tuple[Condition, ...]:
    """All that apply; `since` of one that did not change is taken over from the record's present ones."""
    previous = iter(record.conditions)  # in the order of the rules, as they were made here
    following = next(previous, None)
    made = []
    for type_, rule in _RULES.items():
        old = None
        if following is not None and following.type == type_:
            old, following = following, next(previous, None)
        found = rule(record, now)
        if found is None:
            continue
        status, reason, message = found
        if old is not None and old.status == status and old.reason == reason and old.message == message:
            made.append(old)
            continue
        since = old.since if old is not None and old.status == status else now
        # Controllers' own words, names and annotations are among them.
        reason, message = harmless(reason), harmless(message)
        made.append(Condition(type=type_, status=status, reason=reason, message=message, since=since))
    return tuple(made)


def describe_age(age: timedelta) -> str:
    """`90s`, `12m`, `5h`, `3d`: as precise as an age needs to be."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return f"{seconds // 86400}d"


_Found = tuple[str, str, str]  # status, reason, message


def _reporting(record: Record, _now: datetime) -> _Found:
    status, reason, message = _reporting_plainly(record)
    # Where the author of an annotation that cannot be used finds it.
    return status, reason, " ".join(filter(None, (message, *record.job.hints.faults)))


def _reporting_plainly(record: Record) -> _Found:
    if record.is_current:
        return "True", "DocumentRead", _PLAIN
    if record.failure is not None:
        return "False", record.failure.reason, record.failure.message
    rank0, phase = record.job.rank0, record.job.phase
    if phase.is_final:
        if record.report is not None:
            return "True", "DocumentRead", "Rank 0 reported its progress."
        message = "The job ended and no report of it was read. Instrument it (docs/instrument.md)."
        return "False", "EndedWithoutReport", message
    if record.job.hints.source == "none":
        annotation = "Annotation visibility.trainer.kubeflow.org/source of the job"
        return "False", "SwitchedOff", f"{annotation} switches probing off. Remove it to see progress."
    if record.job.runs_elsewhere:
        return "False", "NotInStatus", "The job runs in another cluster, and its status contains no progress."
    if rank0 is None:
        return "False", "NoRank0Pod", "The job has no rank-0 pod yet."
    if not rank0.is_running:
        why = f" ({rank0.waiting_reason})" if rank0.waiting_reason else ""
        return "False", NOT_RUNNING, f"Container {rank0.container_name} is not running{why}."
    if (source := record.job.hints.source) in ("push", "status"):
        message = (
            f"No report has come yet; the job's source annotation says {source}, so rank 0 is not probed."
        )
        return "Unknown", "NotYetReported", message
    return "Unknown", "NotYetProbed", "Rank 0 has not been probed yet."


def _fresh(record: Record, now: datetime) -> _Found:
    report, reported_at = record.report, record.reported_at
    if report is None or reported_at is None:
        return "False", "NoReport", "There is no report yet."
    if report.is_final and record.is_current:
        return "True", "FinalReport", "This is the final report of the run."
    why_old = _why_not_current(record, reported_at)
    if why_old is not None:
        return why_old
    age = now - reported_at
    limit_s = max(FRESH_AT_LEAST_S, FRESH_INTERVALS * record.interval_s, 2 * record.pace.longest_gap_s)
    failure = record.failure
    if failure is not None and age.total_seconds() > 2 * record.interval_s:
        return "False", failure.reason, f"{_last_report(reported_at, age)} Since then: {failure.message}"
    if age.total_seconds() > limit_s:
        return "False", "NoNewReport", _last_report(reported_at, age)
    return "True", "RecentReport", _PLAIN


def _last_report(reported_at: datetime, age: timedelta) -> str:
    return f"Last new report at {_instant(reported_at)}, {describe_age(age)} before this was evaluated."


def _why_not_current(record: Record, reported_at: datetime) -> _Found | None:
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
    elif not _is_running(job):
        reason, why = NOT_RUNNING, "Rank 0 is not running"
    else:
        return None
    return "False", reason, f"{why}; its last report came at {_instant(reported_at)}."


def _is_running(job: TrainingJob) -> bool:
    """Whether there is a process whose next report may be waited for."""
    if job.runs_elsewhere:
        return job.phase is Phase.RUNNING
    return job.rank0 is not None and (job.rank0.is_running or any(a.is_running for a in job.alternates))


def _instant(moment: datetime) -> str:
    """Where no probe follows, an age would be read hours later as if it were of then."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _stalled(record: Record, now: datetime) -> _Found:
    if record.job.phase is not Phase.RUNNING or record.moved_at is None or not record.is_current:
        return "False", "NotJudged", "Only a running job with reports is evaluated."
    if record.report is not None and record.report.is_final:
        return "False", "Finished", "The run has reported its end."
    if record.pace.position is None:
        return "False", "NotJudged", "The reports contain no step, percentage or epoch."
    limit_s = max(STALLED_AT_LEAST_S, STALLED_GAPS * record.pace.longest_gap_s)
    still = now - record.moved_at
    if still.total_seconds() > limit_s:
        return (
            "True",
            STALLED,
            (
                f"No advance for {describe_age(still)}; the longest pause before was "
                f"{describe_age(timedelta(seconds=record.pace.longest_gap_s))}. Check the training process."
            ),
        )
    return "False", "Advancing", _PLAIN


def _diverged(record: Record, _now: datetime) -> _Found:
    for name, value in record.report.metrics if record.report else ():
        if name in WATCHED_METRICS and not _is_finite(value):
            return "True", "NonFiniteMetric", f"{name} is not a finite number."
    return "False", "Finite", _PLAIN


def _is_finite(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return True  # text is no number, so no divergence either


def _suspended(record: Record, _now: datetime) -> _Found | None:
    job = record.job
    if job.is_queued:
        return "True", "Queued", job.message or "The job waits in its queue."
    if job.is_suspended:
        return "True", job.reason or "Suspended", job.message or "The job is suspended."
    return ("False", "Resumed", _PLAIN) if job.is_suspended is False else None


def _complete(record: Record, _now: datetime) -> _Found | None:
    if record.job.phase is Phase.SUCCEEDED:
        return "True", record.job.reason or "Complete", record.job.message or "The job has completed."
    return None


def _failed(record: Record, _now: datetime) -> _Found | None:
    job = record.job
    if job.phase is Phase.FAILED:
        return "True", job.reason or "Failed", job.message or "The job has failed."
    return None


_RULES: dict[str, Callable[[Record, datetime], _Found | None]] = {
    "Reporting": _reporting,
    "Fresh": _fresh,
    "Stalled": _stalled,
    "Diverged": _diverged,
    "Suspended": _suspended,
    "Complete": _complete,
    "Failed": _failed,
}
TYPES = tuple(_RULES)  # in the order in which they are evaluated and shown
