"""The conditions NoProgress, LowGoodput, AtRisk and AcceleratorsIdle: whether the time of a job comes to
something.

Rules and beginnings as in `reporting`. Each is absent until there is something to say: LowGoodput needs an
annotation, AtRisk a checkpoint, NoProgress failures, AcceleratorsIdle reports of what accelerators do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from .clock import later
from .goodput import goodput, read_goodput
from .job import Phase
from .ledger import DAY_S, KINDS, PRODUCTIVE, QUEUED
from .merge import IDLE_PERCENT
from .record import Record
from .reporting import NOT_TRAINING, PLAIN, Found, Rule, describe_age, is_running
from .training_health import is_held

IDLE = "AcceleratorsIdle"
FRUITLESS = 3  # attempts in a row
# Without a checkpoint: of the time that the job has run, at least, and times the longest pause between two.
AT_RISK_SHARE, AT_RISK_LEAST_S, AT_RISK_PAUSES = 0.25, 1800.0, 2.0
IDLE_S, IDLE_REPORTS = 900.0, 10  # in which no accelerator was busy, before they count as idle


def _find_no_progress(record: Record, _now: datetime) -> Found | None:
    if record.fruitless >= FRUITLESS and record.declares_progress:
        message = (
            f"{record.fruitless} attempts in a row have ended without a step that none had reached before."
            " Suspend the job until you know why they end; its failure and its log say more."
        )
        return "True", "NoNewStep", message
    return ("False", "Advancing", PLAIN) if is_held(record, "NoProgress") else None


def _no_progress_began(record: Record, *_: object) -> datetime | None:
    return record.last_termination.finished_at if record.last_termination is not None else None


def _find_low_goodput(record: Record, _now: datetime) -> Found | None:
    """Of a window that is over: a job that is younger is not judged."""
    thresholds = record.job.hints.thresholds
    below = thresholds.goodput_below
    if below is None:
        return None
    if record.job.phase is Phase.SUSPENDED or record.job.phase.is_final:
        return ("False", NOT_TRAINING, PLAIN) if is_held(record, "LowGoodput") else None
    account = read_goodput(record.account)
    if account is None or account.ledger.until - account.ledger.began < thresholds.goodput_window_s:
        return None
    is_day = thresholds.goodput_window_s == DAY_S
    seconds = account.ledger.day() if is_day else account.ledger.hour()
    share = goodput(seconds)
    if share is None:  # it was queued all the time
        return None
    if share >= below:
        return "False", "AboveThreshold", PLAIN
    message = (
        f"Goodput was {100 * share:.0f}% in the last {'24 hours' if is_day else 'hour'}, less than the"
        f" {100 * below:g}% of the job's annotation goodput-below. {_describe_rest(seconds)}"
    )
    return "True", "BelowThreshold", message


def _describe_rest(seconds: Sequence[float]) -> str:
    """What the most other time was spent on."""
    rest = [(some, kind) for kind, some in enumerate(seconds) if kind not in (QUEUED, PRODUCTIVE)]
    largest = [each for each in sorted(rest, reverse=True)[:3] if each[0] >= 1]
    parts = [f"{KINDS[kind]} {describe_age(timedelta(seconds=some))}" for some, kind in largest]
    return f"The rest: {', '.join(parts)}."


def _find_at_risk(record: Record, now: datetime) -> Found | None:
    """Not there unless the run tells of its checkpoints."""
    if record.checkpoint is None:
        return None
    report = record.report
    is_training = record.job.phase is Phase.RUNNING and record.is_current and is_running(record.job)
    if not is_training or report is None or report.is_final:
        return "False", NOT_TRAINING, PLAIN
    since, after_s = _at_risk_since(record), at_risk_after_s(record)
    risked = now - since
    if risked.total_seconds() <= after_s:
        return "False", "RecentCheckpoint", PLAIN
    age, accelerators = describe_age(risked), sum(count for _, count in record.job.accelerators)
    lost = f"{age} of {accelerators} accelerators" if accelerators else age
    message = (
        f"The last checkpoint is of step {record.checkpoint.step}. If the run ends now, {lost} are lost."
        " Check that checkpoints are saved, and save them more often."
    )
    return "True", "NoRecentCheckpoint", message


def _at_risk_since(record: Record) -> datetime:
    """What was done before is safe, or lost already."""
    assert record.checkpoint is not None  # noqa: S101 - both callers have seen it
    rank0 = record.job.rank0
    started_at = rank0.started_at if rank0 is not None else None
    return max(record.checkpoint.at, started_at) if started_at is not None else record.checkpoint.at


def at_risk_after_s(record: Record) -> float:
    """Seconds without a checkpoint after which a run is at risk."""
    named_s = record.job.hints.thresholds.at_risk_after_s
    if named_s is not None:
        return named_s
    longest_s = record.checkpoint.longest_s if record.checkpoint is not None else 0.0
    account = read_goodput(record.account)
    ran_s = sum(account.ledger.whole) - account.ledger.whole[QUEUED] if account is not None else 0.0
    return max(AT_RISK_LEAST_S, AT_RISK_SHARE * ran_s, AT_RISK_PAUSES * longest_s)


def _at_risk_began(record: Record, status: str, *_: object) -> datetime | None:
    after_s = at_risk_after_s(record)
    if record.checkpoint is None or status != "True" or math.isinf(after_s):
        return None
    return later(_at_risk_since(record), after_s)


def _find_idle(record: Record, _now: datetime) -> Found | None:
    """Not there before it is true for the first time."""
    idle, after_s, report = record.idle, _idle_after_s(record), record.report
    is_training = record.job.phase is Phase.RUNNING and record.is_current and is_running(record.job)
    if not is_training or report is None or report.is_final:
        return ("False", NOT_TRAINING, PLAIN) if is_held(record, IDLE) else None
    if idle is None or idle.reports < IDLE_REPORTS or (idle.until - idle.since).total_seconds() < after_s:
        return ("False", "Busy", PLAIN) if is_held(record, IDLE) else None
    held = sum(count for _, count in record.job.accelerators)
    and_holds = f"; the job holds {held}" if held else ""
    message = (
        f"No reported accelerator was more than {IDLE_PERCENT:g}% busy for"
        f" {describe_age(idle.until - idle.since)}{and_holds}. Check that the program uses them and does not"
        " wait for its data; else request none."
    )
    return "True", "NotUsed", message


def _idle_after_s(record: Record) -> float:
    named_s = record.job.hints.thresholds.idle_after_s
    return IDLE_S if named_s is None else named_s


def _idle_began(record: Record, status: str, *_: object) -> datetime | None:
    return later(record.idle.since, _idle_after_s(record)) if status == "True" and record.idle else None


SPENDING = (
    Rule("NoProgress", _find_no_progress, _no_progress_began),
    Rule("LowGoodput", _find_low_goodput, lambda *_: None),
    Rule("AtRisk", _find_at_risk, _at_risk_began),
    Rule(IDLE, _find_idle, _idle_began),
)
