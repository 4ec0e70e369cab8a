"""The conditions of one job, each with a reason, and a message where the reason alone does not say it.

`kubectl wait --for=condition=…` and automation read these. Those that a TrainJob has as well are there when
it has them, so not before they are true (docs/decisions/0007); the others always.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from visibility_api.errors.text import harmless
from visibility_api.reports.document import Progress
from visibility_api.reports.ranks import Ranks

from .clock import later
from .job import Phase, TrainingJob
from .record import FRESH_AT_LEAST_S, Record
from .rhythm import longest_pause_s
from .straggling import FACTOR, REPORTS, Slow
from .summary import NOT_RUNNING, STALLED, Condition
from .watched import GRAD_NORM, LOSSES, WATCHED, Goal

FAILING_INTERVALS = 2.0  # after this a report is old if the probes since then have failed
CALL_OUT_S = 60.0  # a clock that is off by less is corrected for without a word
NEVER_STALLED_S = 10.0  # nor does any annotation ask for less: most jobs have reported since
STALL_INTERVALS = 4.0  # probes at least, before a run that was not seen to advance counts as stalled
NAMED_STALL_INTERVALS = 2.0  # the same where an annotation says after how long
# Without an improvement: values at least, and share of the run so far. Evaluations are few and say much.
PLATEAU_EVALUATIONS = (10, 0.3)
PLATEAU_LOSSES = (200, 0.5)
PLATEAU_VALUES = 3  # at least, where an annotation says after how long
_NO_REPORT, _NOT_TRAINING = "NoReport", "NotTraining"
_NO_METRIC = f"The reports contain none of {', '.join(WATCHED)}."
# message: the reason says it all, as metav1.Condition allows; such messages were a tenth of every list
_PLAIN = ""


def evaluate(record: Record, now: datetime) -> tuple[Condition, ...]:
    """All that apply; those of the record, the same tuple, where none has changed. One whose status did not
    change keeps the `since` that the record has of it."""
    held = record.conditions or _NONE  # as they were made here
    made = []
    for (type_, rule, beginning), old in zip(_VERDICTS, held, strict=False):
        status, reason, message = rule(record, now)
        if old.reason != reason or old.message != message:
            # Controllers' own words, names and annotations are among them.
            reason, message = harmless(reason), harmless(message)
        if old.status != status or _begins_anew(old.reason, reason):
            since = beginning(record, status, reason, now)
            if since is None or since > now:
                since = old.since if old.status == status else now
        elif old.reason != reason or old.message != message:
            since = old.since
        else:
            made.append(old)
            continue
        made.append(Condition(type=type_, status=status, reason=reason, message=message, since=since))
    occasional = held[len(_VERDICTS) :]
    for type_, repeat, time_of in _OCCASIONAL:
        found = repeat(record)
        if found is None:
            continue
        status, reason, message = found[0], harmless(found[1]), harmless(found[2])
        before = next((each for each in occasional if each.type == type_), None)
        since = time_of(record, status)
        if before is not None and before.status == status:
            since = since or before.since
            if (before.since, before.reason, before.message) == (since, reason, message):
                made.append(before)
                continue
        made.append(Condition(type=type_, status=status, reason=reason, message=message, since=since or now))
    is_same = len(made) == len(held) and all(map(operator.is_, made, held))
    return held if is_same else tuple(made)


def _begins_anew(before: str, reason: str) -> bool:
    """Whether the time is worked out anew although the status may be the same. A process that has not seen
    what was before would name another one: the first report, or the run of a job that has ended."""
    return reason == _NOT_TRAINING or (before == _NO_REPORT and reason != _NO_REPORT)


def restore(began: Iterable[tuple[str, str, datetime]]) -> tuple[Condition, ...]:
    """Conditions of these types, status and beginnings: `evaluate` gives them reasons and messages."""
    by_type = {
        type_: Condition(type=type_, status=status, reason="", message="", since=since)
        for type_, status, since in began
    }
    verdicts = [by_type.get(none.type, none) for none in _NONE]
    return (*verdicts, *[by_type[type_] for type_, _, _ in _OCCASIONAL if type_ in by_type])


def describe_age(age: timedelta) -> str:
    """`90s`, `12m`, `5h`, `3d`: as precise as an age needs to be."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return f"{seconds // 86400}d"


_Found = tuple[str, str, str]  # status, reason, message
_Rule = Callable[[Record, datetime], _Found]
_Beginning = Callable[[Record, str, str, datetime], datetime | None]


def _reporting(record: Record, _now: datetime) -> _Found:
    status, reason, message = _reporting_plainly(record)
    # Where the author of an annotation that cannot be used finds it.
    return status, reason, " ".join(filter(None, (message, *record.job.hints.faults)))


def _reporting_plainly(record: Record) -> _Found:
    if record.job.unread is not None:
        what, reason = record.job.unread
        why = "is too large" if reason == "ObjectTooLarge" else "has a field of an unexpected type"
        return "Unknown", reason, f"The {what} {why} to be read here. Look at it with kubectl, and mend it."
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
        return "False", _NO_REPORT, "There is no report yet."
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
        return "False", "NoNewReport", _last_report(record, reported_at, age_s)
    if record.earliest_at == reported_at:
        return "True", "RecentReport", _PLAIN
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
        return _PLAIN
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
    about = _PLAIN if record.earliest_at == reported_at else _about_time(record)
    return f"{text} {about}" if about else text


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
    phase = record.job.phase
    if phase is not Phase.RUNNING and (phase.is_final or phase is Phase.SUSPENDED):
        return "False", _NOT_TRAINING, _PLAIN
    if phase is not Phase.RUNNING or record.moved_at is None or not record.is_current:
        return "Unknown", "NotJudged", "Only a running job with reports is evaluated."
    if record.report is not None and record.report.is_final:
        return "False", "Finished", "The run has reported its end."
    if record.pace.position is None:
        return "Unknown", "NotJudged", "The reports contain no step, percentage or epoch."
    if not _is_running(record.job):
        return "Unknown", "NotJudged", "Rank 0 is not running, so nothing can be said to stand still."
    still = now - record.moved_at
    still_s = still.total_seconds()
    if still_s <= NEVER_STALLED_S or record.report is None:
        return "False", "Advancing", _PLAIN
    if still_s <= stalled_after_s(record, record.report):
        return "False", "Advancing", _PLAIN
    if record.failure is not None and not _is_held(record, "Stalled", "True"):
        return "Unknown", "NotJudged", "Rank 0 cannot be probed, so it is not known whether it advances."
    message = (
        f"No advance for {describe_age(still)}; the longest pause before was "
        f"{describe_age(timedelta(seconds=record.pace.longest_gap_s))}. Check the training process."
    )
    return "True", STALLED, message


def stalled_after_s(record: Record, report: Progress) -> float:
    """Seconds after its last advance at which a run that stands still counts as stalled."""
    named_s = record.job.hints.thresholds.stalled_after_s
    if named_s is not None:
        return max(named_s, NAMED_STALL_INTERVALS * record.interval_s)
    return max(longest_pause_s(record.pace, report), STALL_INTERVALS * record.interval_s)


def _is_held(record: Record, type_: str, status: str | None = None) -> bool:
    """Whether the job had this condition when it was last evaluated, with this status if one is given."""
    return any(held.type == type_ and (status is None or held.status == status) for held in record.conditions)


def _diverged(record: Record, _now: datetime) -> _Found:
    watched = record.watched
    above = record.job.hints.thresholds.diverged_above
    if above is not None and record.report is not None:
        for name, text in record.report.metrics:
            if name != GRAD_NORM and name in WATCHED and _is_above(text, above):
                allowed = f"above the {above:g} of the job's annotation diverged-above"
                return "True", "AboveThreshold", f"{name} is {text}, {allowed}."
    alarm = watched.alarm
    if alarm is not None:
        if alarm.usual is None:
            return "True", "NonFiniteMetric", f"{alarm.name} is not a finite number."
        if above is None:
            message = (
                f"{alarm.name} is {alarm.text}, and was about {alarm.usual:.3g} before. Check the learning"
                " rate and the data; resume from an earlier checkpoint."
            )
            return "True", "FarAboveUsual", message
    return ("False", "Finite", _PLAIN) if watched.courses else ("Unknown", "NotJudged", _NO_METRIC)


def _is_above(text: str, limit: float) -> bool:
    try:
        return float(text) > limit
    except ValueError:
        return False


def _plateaued(record: Record) -> _Found | None:
    """Not there before it is true for the first time in an attempt."""
    goal, report = record.watched.goal, record.report
    if goal is None or report is None:
        return None
    values = record.watched.since_best
    if values >= PLATEAU_VALUES - 1 and _has_plateaued(record, goal, report, values):
        where = f" at {record.pace.unit} {goal.position:g}" if goal.position is not None else ""
        message = f"{goal.name} has not improved for long: its best was {goal.best:.4g}{where}."
        return "True", "NoImprovement", f"{message} Stop the run, or change its learning rate."
    if len(record.conditions) > len(_VERDICTS) and _is_held(record, "Plateaued"):
        return "False", "Improving", _PLAIN
    return None


def _has_plateaued(record: Record, goal: Goal, report: Progress, values: int) -> bool:
    thresholds = record.job.hints.thresholds
    if thresholds.plateau_values is not None:
        return values >= thresholds.plateau_values
    if thresholds.plateau_after_s is not None:
        if goal.at is None or report.timestamp is None or values < PLATEAU_VALUES:
            return False
        return (report.timestamp - goal.at).total_seconds() >= thresholds.plateau_after_s
    least, share = PLATEAU_LOSSES if goal.name in LOSSES else PLATEAU_EVALUATIONS
    if values < least:
        return False
    position, base = record.pace.position, record.pace.base
    if position is None or goal.position is None:
        return values >= share * (goal.values + values)
    return position - goal.position >= share * (position - base)


def _plateau_began(record: Record, status: str) -> datetime | None:
    goal = record.watched.goal
    if status != "True" or goal is None or goal.at is None or record.reported_at is None:
        return None
    return min(record.reported_at, later(goal.at, -record.clock.ahead_s))


def gather(record: Record, ranks: Ranks) -> None:
    """Take over what the record's report, which has just come, says of the other ranks."""
    report, named = record.report, record.job.hints.thresholds.straggling_above
    if report is None or report.timestamp is None or named == math.inf:
        return
    record.gathered = record.gathered.advance(
        ranks,
        ranks.at or report.timestamp,
        attempt=record.attempt,
        factor=named or FACTOR,
        pause_s=stalled_after_s(record, report),
    )


def _straggling(record: Record) -> _Found | None:
    """Not there unless rank 0 reports of the others, in this attempt."""
    gathered, report = record.gathered, record.report
    if not gathered.reports or gathered.attempt != record.attempt or report is None:
        return None
    if record.job.hints.thresholds.straggling_above == math.inf:
        return None
    if not record.is_current or record.job.phase is not Phase.RUNNING or report.is_final:
        return "False", _NOT_TRAINING, _PLAIN
    lagging = gathered.lagging
    if lagging:
        return "True", "SlowReplica", _describe_slow(lagging)
    if gathered.reports < REPORTS:
        return "Unknown", "NotJudged", f"Rank 0 has reported of the others fewer than {REPORTS} times yet."
    return "False", "NoSlowReplica", _PLAIN


def _describe_slow(lagging: tuple[Slow, ...]) -> str:
    worst, *others = lagging
    name = f" ({worst.name})" if worst.name else ""
    if worst.step_s < math.inf:
        takes = f"takes {worst.step_s:.3g} s for a step, {worst.step_s / worst.usual_s:.2g} times as long as"
    else:
        takes = "does not advance, in contrast to"
    median = f"the median of the {worst.others} others ({worst.usual_s:.3g} s)"
    if worst.others == 1:
        median = f"the other one ({worst.usual_s:.3g} s)"
    also = ""
    if others:
        also = f" Also slow: rank {', '.join(str(each.rank) for each in others)}."
    return f"Rank {worst.rank}{name} {takes} {median}.{also} Check its node, its accelerator and its data."


def _straggling_began(record: Record, status: str) -> datetime | None:
    lagging = record.gathered.lagging
    if status != "True" or not lagging or record.reported_at is None:
        return None
    began = min(each.since for each in lagging)
    return min(record.reported_at, later(began, -record.clock.ahead_s))


# When a condition began to have its status: by the job's own times, so it does not matter who looks when.
# None: all that is known is that it has it now.


def _reporting_began(record: Record, status: str, _reason: str, _now: datetime) -> datetime | None:
    return record.reported_at if status == "True" else _unreported_since(record)


def _fresh_began(record: Record, status: str, reason: str, now: datetime) -> datetime | None:
    reported_at = record.reported_at
    if reported_at is None:  # nor was there one of an earlier container
        return record.job.created_at or _unreported_since(record)
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


def _stalled_began(record: Record, status: str, reason: str, _now: datetime) -> datetime | None:
    if reason == _NOT_TRAINING:
        return record.job.ended_at if record.job.phase.is_final else record.job.suspension_changed_at
    if status == "Unknown":
        return record.reported_at if record.is_current else _unreported_since(record)
    return record.moved_at


def _diverged_began(record: Record, _status: str, _reason: str, _now: datetime) -> datetime | None:
    return record.reported_at or _unreported_since(record)


def _unreported_since(record: Record) -> datetime | None:
    """Since when there could have been a report, and was none."""
    return _container_started_at(record) or record.job.created_at


def _container_started_at(record: Record) -> datetime | None:
    return record.job.rank0.started_at if record.job.rank0 is not None else None


def _container_ended_at(record: Record) -> datetime | None:
    return record.last_termination.finished_at if record.last_termination is not None else None


# Always there, in this order: what is judged of a job, how, and when it began.
_VERDICTS: tuple[tuple[str, _Rule, _Beginning], ...] = (
    ("Reporting", _reporting, _reporting_began),
    ("Fresh", _fresh, _fresh_began),
    ("Stalled", _stalled, _stalled_began),
    ("Diverged", _diverged, _diverged_began),
)
NEVER = datetime.min.replace(tzinfo=UTC)
_NONE = tuple(
    Condition(type=type_, status="", reason="", message="", since=NEVER) for type_, _, _ in _VERDICTS
)


def _suspended(record: Record) -> _Found | None:
    job = record.job
    if job.is_queued:
        return "True", "Queued", job.message or "The job waits in its queue."
    if job.is_suspended:
        return "True", job.reason or "Suspended", job.message or "The job is suspended."
    return ("False", "Resumed", _PLAIN) if job.is_suspended is False else None


def _suspension_changed_at(record: Record, _status: str) -> datetime | None:
    return record.job.suspension_changed_at


def _complete(record: Record) -> _Found | None:
    job = record.job
    if job.phase is Phase.SUCCEEDED:
        return "True", job.reason or "Complete", job.message or "The job has completed."
    return None


def _failed(record: Record) -> _Found | None:
    job = record.job
    if job.phase is Phase.FAILED:
        return "True", job.reason or "Failed", job.message or "The job has failed."
    return None


def _ended_at(record: Record, _status: str) -> datetime | None:
    return record.job.ended_at


# Those that are there only once they are true, with the time that is known of them. The last ones are the
# job's own, with the time that its controller gives, if it does.
_OCCASIONAL: tuple[
    tuple[str, Callable[[Record], _Found | None], Callable[[Record, str], datetime | None]], ...
]
_OCCASIONAL = (
    ("Straggling", _straggling, _straggling_began),
    ("Plateaued", _plateaued, _plateau_began),
    ("Suspended", _suspended, _suspension_changed_at),
    ("Complete", _complete, _ended_at),
    ("Failed", _failed, _ended_at),
)
