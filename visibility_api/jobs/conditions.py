"""The conditions of one job, each with a reason, and a message where the reason alone does not say it.

`kubectl wait --for=condition=…` and automation read these. Those that a TrainJob has as well are there when
it has them, so not before they are true (docs/decisions/0007).
"""

from __future__ import annotations

import operator
from datetime import datetime

from visibility_api.errors.text import harmless

from .job import Phase
from .pruning import PRUNING
from .record import Record
from .reporting import NO_REPORT, NOT_TRAINING, PLAIN, REPORTING, Found, Rule
from .spending import SPENDING
from .summary import Condition
from .training_health import TRAINING


def evaluate(record: Record, now: datetime) -> tuple[Condition, ...]:
    """All that apply; those of the record, the same tuple, where none has changed. One whose status did not
    change keeps the `since` that the record has of it."""
    held = {each.type: each for each in record.conditions}
    made = tuple(
        [
            _condition(rule, held.get(rule.type), found, record, now)
            for rule in _RULES
            if (found := rule.find(record, now)) is not None
        ]
    )
    is_same = len(made) == len(record.conditions) and all(map(operator.is_, made, record.conditions))
    return record.conditions if is_same else made


def _condition(rule: Rule, old: Condition | None, found: Found, record: Record, now: datetime) -> Condition:
    status, reason, message = found
    is_fixed = not rule.is_jobs_own and reason != NOT_TRAINING
    if old is not None and is_fixed and found == (old.status, old.reason, old.message):
        return old  # as nearly always
    if old is None or old.reason != reason or old.message != message:
        # Controllers' own words, names and annotations are among them.
        reason, message = harmless(reason), harmless(message)
    since = old.since if old is not None and old.status == status else None
    if since is None or rule.is_jobs_own or (old is not None and _begins_anew(old.reason, reason)):
        began = rule.began(record, status, reason, now)
        if began is not None and (began <= now or rule.is_jobs_own):
            since = began
    if old is not None and (old.status, old.reason, old.message, old.since) == (
        status,
        reason,
        message,
        since,
    ):
        return old
    return Condition(type=rule.type, status=status, reason=reason, message=message, since=since or now)


def _begins_anew(before: str, reason: str) -> bool:
    """Whether the time is worked out anew although the status may be the same. A process that has not seen
    what was before would name another one: the first report, or the run of a job that has ended."""
    return reason == NOT_TRAINING or (before == NO_REPORT and reason != NO_REPORT)


def _find_suspended(record: Record, _now: datetime) -> Found | None:
    job = record.job
    if job.is_queued:
        return "True", "Queued", job.message or "The job waits in its queue."
    if job.is_suspended:
        return "True", job.reason or "Suspended", job.message or "The job is suspended."
    return ("False", "Resumed", PLAIN) if job.is_suspended is False else None


def _suspension_changed_at(record: Record, *_: object) -> datetime | None:
    return record.job.suspension_changed_at


def _find_complete(record: Record, _now: datetime) -> Found | None:
    job = record.job
    if job.phase is Phase.SUCCEEDED:
        return "True", job.reason or "Complete", job.message or "The job has completed."
    return None


def _find_failed(record: Record, _now: datetime) -> Found | None:
    job = record.job
    if job.phase is Phase.FAILED:
        return "True", job.reason or "Failed", job.message or "The job has failed."
    return None


def _ended_at(record: Record, *_: object) -> datetime | None:
    return record.job.ended_at


# In the order in which a document shows them.
_RULES = (
    *REPORTING,
    *TRAINING,
    *SPENDING,
    *PRUNING,
    Rule("Suspended", _find_suspended, _suspension_changed_at, is_jobs_own=True),
    Rule("Complete", _find_complete, _ended_at, is_jobs_own=True),
    Rule("Failed", _find_failed, _ended_at, is_jobs_own=True),
)
