"""The conditions Stalled, Diverged and Plateaued: how the training itself goes.

Rules and beginnings as in `reporting`. Plateaued is absent until there is something to say.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from visibility_api.diagnosis.result import AT_WORK, IDLE
from visibility_api.errors.text import join_sentences
from visibility_api.reports.document import Progress
from visibility_api.reports.marks import SECTIONS

from .clock import later
from .job import Phase
from .lagging import STRAGGLING
from .record import Record
from .reporting import NOT_TRAINING, PLAIN, Found, Rule, describe_age, is_running, unreported_since
from .rhythm import longest_pause_s, section_s
from .summary import STALLED
from .watched import GRAD_NORM, LARGEST, LOSSES, WATCHED, Goal

NEVER_STALLED_S = 10.0  # nor does any annotation ask for less: most jobs have reported since
STALL_INTERVALS = 4.0  # probes at least, before a run that was not seen to advance counts as stalled
# Then its ranks are read: two minutes without an advance, and twice its longest pause.
SUSPICIOUS_S, SUSPICIOUS_GAPS = 120.0, 2.0
OUTLIVED_S = 120.0  # after a run has reported that it failed, while its pod goes on
PUT_OFF = 2.0  # times as long, until a run one of whose ranks works counts as stalled
LOOK_S = 60.0  # and half of the time that a run stands still: what its ranks have shown is as old at most
NAMED_STALL_INTERVALS = 2.0  # the same where an annotation says after how long
# Without an improvement: values at least, and share of the run so far. Evaluations are few and say much.
PLATEAU_EVALUATIONS = (10, 0.3)
PLATEAU_LOSSES = (200, 0.5)
PLATEAU_VALUES = 3  # at least, where an annotation says after how long
_NO_METRIC = f"The reports contain none of {', '.join(WATCHED)}."


def _find_stalled(record: Record, now: datetime) -> Found:
    phase = record.job.phase
    if phase is not Phase.RUNNING and (phase.is_final or phase is Phase.SUSPENDED):
        return "False", NOT_TRAINING, PLAIN
    if phase is not Phase.RUNNING or record.moved_at is None or not record.is_current:
        return "Unknown", "NotJudged", "Only a running job with reports is evaluated."
    if record.report is not None and record.report.is_final:
        return _find_outlived(record, record.report, now)
    if record.pace.position is None:
        return "Unknown", "NotJudged", "The reports contain no step, percentage or epoch."
    if not is_running(record.job):
        return "Unknown", "NotJudged", "Rank 0 is not running, so nothing can be said to stand still."
    still = now - record.moved_at
    still_s = still.total_seconds()
    if still_s <= NEVER_STALLED_S or record.report is None:
        return "False", "Advancing", PLAIN
    limit_s, shows, evidence = stalled_after_s(record, record.report), *_shown(record, now)
    if still_s <= limit_s and not _is_proven(record):
        return "False", "Advancing", PLAIN
    if shows == AT_WORK and still_s <= PUT_OFF * limit_s and not is_held(record, "Stalled", "True"):
        return "False", "AtWork", f"No advance for {describe_age(still)}. {evidence}"
    if record.failure is not None and not is_held(record, "Stalled", "True"):
        return "Unknown", "NotJudged", "Rank 0 cannot be probed, so it is not known whether it advances."
    section = record.report.marks.section
    within = f" in its section {SECTIONS[section]}" if section is not None else ""
    message = (
        f"No advance for {describe_age(still)}{within}; the longest pause before was "
        f"{describe_age(timedelta(seconds=record.pace.longest_gap_s))}."
    )
    says = f"{message} {_say_diagnosis(record)}"
    return "True", STALLED, join_sentences(says, evidence if shows == IDLE else "")


def _find_outlived(record: Record, report: Progress, now: datetime) -> Found:
    """A rank that fails may leave others behind, or a launcher: then the job neither ends nor trains."""
    age, named_s = now - (record.reported_at or now), record.job.hints.thresholds.stalled_after_s
    limit_s = OUTLIVED_S if named_s is None else max(named_s, NAMED_STALL_INTERVALS * record.interval_s)
    if report.state != "failed" or age.total_seconds() <= limit_s or not is_running(record.job):
        return "False", "Finished", "The run has reported its end."
    message = f"The run has reported its failure {describe_age(age)} ago, and its pod still runs."
    return "True", STALLED, f"{message} {_say_diagnosis(record)}"


def _say_diagnosis(record: Record) -> str:
    """Of since its last advance."""
    diagnosis, moved_at = record.diagnosis, record.moved_at
    if diagnosis is None or moved_at is None or diagnosis.at < moved_at:
        return "Check the training process."
    return join_sentences(diagnosis.message, diagnosis.hint)


def _shown(record: Record, now: datetime) -> tuple[str, str]:
    """What its ranks show, where they were read since its last advance, and lately."""
    look, moved_at = record.look, record.moved_at
    if look is None or moved_at is None or look.at < moved_at:
        return "", ""
    is_late = (now - look.at).total_seconds() > (now - moved_at).total_seconds() / 2 + LOOK_S
    is_named = record.job.hints.thresholds.stalled_after_s is not None
    return ("", "") if is_late or is_named else (look.shows, look.evidence)


def _is_proven(record: Record) -> bool:
    """Whether its ranks were read since its last advance, and none of them can go on."""
    last, moved_at = record.diagnosis, record.moved_at
    is_since = last is not None and last.is_hang and moved_at is not None and last.at >= moved_at
    return is_since and record.job.hints.thresholds.stalled_after_s is None


def suspicious_s(record: Record, now: datetime) -> float | None:
    """For how long a run stands still, if its ranks should be read: before it counts as stalled, or again if
    that has told nothing."""
    report, moved_at = record.report, record.moved_at
    if report is None or moved_at is None or report.is_final or not record.is_current:
        return None
    still_s = (now - moved_at).total_seconds()
    if still_s <= NEVER_STALLED_S:
        return None  # as nearly always
    if is_held(record, "Stalled", "True"):
        last = record.diagnosis
        return still_s if last is not None and last.at >= moved_at and last.is_vague else None
    limit_s = stalled_after_s(record, report)
    least_s = max(min(SUSPICIOUS_S, limit_s / 2), SUSPICIOUS_GAPS * record.pace.longest_gap_s)
    if still_s < least_s or section_s(report):
        return None
    is_named = record.job.hints.thresholds.stalled_after_s is not None
    is_judged = record.job.phase is Phase.RUNNING and record.pace.position is not None
    return still_s if is_judged and not is_named and is_running(record.job) else None


def stalled_after_s(record: Record, report: Progress) -> float:
    """Seconds after its last advance at which a run that stands still counts as stalled."""
    named_s = record.job.hints.thresholds.stalled_after_s
    if named_s is not None:
        return max(named_s, NAMED_STALL_INTERVALS * record.interval_s)
    usual_s = max(longest_pause_s(record.pace, report), section_s(report)) + record.pace.marked_since_s(
        report
    )
    return max(usual_s, STALL_INTERVALS * record.interval_s)


def is_held(record: Record, type_: str, status: str | None = None) -> bool:
    """Whether the job had this condition when it was last evaluated, with this status if one is given."""
    for held in record.conditions:
        if held.type == type_:
            return status is None or held.status == status
    return False


def _find_diverged(record: Record, _now: datetime) -> Found:
    watched = record.watched
    above = record.job.hints.thresholds.diverged_above
    if above is not None and record.report is not None:
        for name, text in record.report.metrics:
            if name != GRAD_NORM and name in WATCHED and _is_above(text, above):
                allowed = f"above the {above:g} of the job's annotation diverged-above"
                return "True", "AboveThreshold", f"{name} is {text}, {allowed}."
    alarm = watched.alarm
    if alarm is not None:
        if alarm.usual is None and math.isfinite(float(alarm.text)):
            message = (
                f"{alarm.name} is {alarm.text}, which is too large (more than {LARGEST:g})."
                " Check the learning rate and the data; resume from an earlier checkpoint."
            )
            return "True", "FarAboveUsual", message
        if alarm.usual is None:
            return "True", "NonFiniteMetric", f"{alarm.name} is not a finite number."
        if above is None:
            message = (
                f"{alarm.name} is {alarm.text}, and was about {alarm.usual:.3g} before. Check the learning"
                " rate and the data; resume from an earlier checkpoint."
            )
            return "True", "FarAboveUsual", message
    return ("False", "Finite", PLAIN) if watched.courses else ("Unknown", "NotJudged", _NO_METRIC)


def _is_above(text: str, limit: float) -> bool:
    try:
        return float(text) > limit
    except ValueError:
        return False


def _find_plateaued(record: Record, _now: datetime) -> Found | None:
    """Not there before it is true for the first time in an attempt."""
    goal, report = record.watched.goal, record.report
    if goal is None or report is None:
        return None
    values = record.watched.since_best
    if values >= PLATEAU_VALUES - 1 and _has_plateaued(record, goal, report, values):
        where = f" at {record.pace.unit} {goal.position:g}" if goal.position is not None else ""
        message = (
            f"{goal.name} has not improved for long, except by chance: it was {goal.best:.4g}{where}."
            " Stop the run, or change its learning rate."
        )
        return "True", "NoImprovement", message
    if is_held(record, "Plateaued"):
        return "False", "Improving", PLAIN
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


def _plateaued_began(record: Record, status: str, *_: object) -> datetime | None:
    goal = record.watched.goal
    if status != "True" or goal is None or goal.at is None or record.reported_at is None:
        return None
    return min(record.reported_at, later(goal.at, -record.clock.ahead_s))


def _stalled_began(record: Record, status: str, reason: str, _now: datetime) -> datetime | None:
    if reason == NOT_TRAINING:
        return record.job.ended_at if record.job.phase.is_final else record.job.suspension_changed_at
    if status == "Unknown":
        return record.reported_at if record.is_current else unreported_since(record)
    return record.moved_at


def _diverged_began(record: Record, *_: object) -> datetime | None:
    return record.reported_at or unreported_since(record)


TRAINING = (
    Rule("Stalled", _find_stalled, _stalled_began),
    Rule("Diverged", _find_diverged, _diverged_began),
    STRAGGLING,
    Rule("Plateaued", _find_plateaued, _plateaued_began),
)
