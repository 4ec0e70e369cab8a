"""The verdict on one job: its conditions, each with a reason, and a sentence where that needs one.

`kubectl wait --for=condition=…` and automation read these. Those that a TrainJob has as well are there when
it has them, so not before they are true (docs/decisions/0007); the others always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from .document import Progress, Refused
from .estimate import Pace
from .job import Phase, TrainingJob
from .summary import Condition

FRESH_INTERVALS = 3.0  # a report may be missed twice before its numbers count as old
FRESH_AT_LEAST_S = 30.0
STALLED_GAPS = 5.0  # evaluation and checkpoints pause the steps: allow the longest pause seen, several times
STALLED_AT_LEAST_S = 300.0
NOT_RUNNING = "Rank0NotRunning"  # reason: nothing moves, so nothing is current and no end can be told
STALLED = "NoAdvance"  # reason
JUDGED_METRICS = ("loss", "train_loss", "grad_norm", "eval_loss")  # NaN filters hide losses, not grad_norm
# message: the reason says it all, as metav1.Condition allows; such sentences were a tenth of every list
_PLAIN = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything a verdict is made from; the two times are on our clock."""

    job: TrainingJob
    report: Progress | None  # the last one, of whatever attempt
    is_current: bool  # `report` is of the attempt that runs now
    reported_at: datetime | None  # when the last new report came
    moved_at: datetime | None  # when the position last changed
    pace: Pace
    failure: Refused | None  # of the last look, None after a success
    interval_s: float


def judge(evidence: Evidence, *, now: datetime, before: Iterable[Condition] = ()) -> tuple[Condition, ...]:
    """All that apply; `since` of one that did not change is taken over from `before`."""
    previous = iter(before)  # in the order of the rules, as they were made here
    following = next(previous, None)
    made = []
    for type_, rule in _RULES.items():
        old = None
        if following is not None and following.type == type_:
            old, following = following, next(previous, None)
        verdict = rule(evidence, now)
        if verdict is None:
            continue
        status, reason, message = verdict
        if old is not None and old.status == status and old.reason == reason and old.message == message:
            made.append(old)
            continue
        since = old.since if old is not None and old.status == status else now
        made.append(Condition(type=type_, status=status, reason=reason, message=message, since=since))
    return tuple(made)


def describe_age(age: timedelta) -> str:
    """`90s`, `12m`, `5h`, `3d`: enough to judge by."""
    seconds = max(0, int(age.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return f"{seconds // 86400}d"


_Verdict = tuple[str, str, str]  # status, reason, message


def _reporting(evidence: Evidence, _now: datetime) -> _Verdict:
    status, reason, message = _reporting_plainly(evidence)
    # Whoever wrote an annotation that cannot be used looks here.
    return status, reason, "; ".join(filter(None, (message, *evidence.job.hints.faults)))


def _reporting_plainly(evidence: Evidence) -> _Verdict:
    if evidence.is_current:
        return "True", "DocumentRead", _PLAIN
    if evidence.failure is not None:
        return "False", evidence.failure.reason, evidence.failure.message
    rank0, phase = evidence.job.rank0, evidence.job.phase
    if phase.is_final:
        if evidence.report is not None:
            return "True", "DocumentRead", "rank 0 reported its progress"
        return "False", "EndedWithoutReport", "the job ended and no report of it was read"
    if evidence.job.hints.source == "none":
        return "False", "SwitchedOff", "an annotation of the job switches reading its progress off"
    if evidence.job.runs_elsewhere:
        return "False", "NotInStatus", "the job runs in another cluster, and its status tells of no progress"
    if rank0 is None:
        return "False", "NoRank0Pod", "the job has no rank-0 pod yet"
    if not rank0.is_running:
        why = f" ({rank0.waiting_reason})" if rank0.waiting_reason else ""
        return "False", NOT_RUNNING, f"container {rank0.container_name} does not run{why}"
    if (source := evidence.job.hints.source) in ("push", "status"):
        return "Unknown", "NotYetReported", f"an annotation of the job says {source}, so rank 0 is not asked"
    return "Unknown", "NotYetProbed", "rank 0 has not been asked yet"


def _fresh(evidence: Evidence, now: datetime) -> _Verdict:
    report, reported_at = evidence.report, evidence.reported_at
    if report is None or reported_at is None:
        return "False", "NoReport", "there is no report yet"
    if report.is_final and evidence.is_current:
        return "True", "FinalReport", "this is the last word of the run"
    why_old = _why_not_current(evidence, reported_at)
    if why_old is not None:
        return why_old
    age = now - reported_at
    limit_s = max(FRESH_AT_LEAST_S, FRESH_INTERVALS * evidence.interval_s, 2 * evidence.pace.longest_gap_s)
    failure = evidence.failure
    if failure is not None and age.total_seconds() > 2 * evidence.interval_s:
        when = f"last report {describe_age(age)} before the last look, at {_instant(reported_at)}"
        return "False", failure.reason, f"{when}; since then: {failure.message}"
    if age.total_seconds() > limit_s:
        when = f"{describe_age(age)} before the last look, at {_instant(reported_at)}"
        return "False", "NoNewReport", f"nothing new is reported; the last new report came {when}"
    return "True", "RecentReport", _PLAIN


def _why_not_current(evidence: Evidence, reported_at: datetime) -> _Verdict | None:
    """Why the last report is old whatever its age; None when only its age counts."""
    job = evidence.job
    if job.phase.is_final:
        reason, why = "EndedWithoutFinalReport", "the job ended; its last report came"
    elif not evidence.is_current:
        return "False", "AttemptEnded", f"reported at {_instant(reported_at)} by an attempt that has ended"
    elif job.phase is Phase.SUSPENDED:
        reason, why = "Suspended", "the job is suspended; its last report came"
    elif job.hints.source == "none":
        reason, why = "SwitchedOff", "nobody asks rank 0 any more; its last report came"
    # Nobody looks again until a container runs, so nothing would ever take a "True" back.
    elif not _is_running(job):
        reason, why = NOT_RUNNING, "rank 0 does not run now; its last report came"
    else:
        return None
    return "False", reason, f"{why} at {_instant(reported_at)}"


def _is_running(job: TrainingJob) -> bool:
    """Whether there is a process whose next report may be waited for."""
    if job.runs_elsewhere:
        return job.phase is Phase.RUNNING
    return job.rank0 is not None and (job.rank0.is_running or any(a.is_running for a in job.alternates))


def _instant(moment: datetime) -> str:
    """Where nobody looks again an age would be read hours later as if it were of then."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _stalled(evidence: Evidence, now: datetime) -> _Verdict:
    if evidence.job.phase is not Phase.RUNNING or evidence.moved_at is None or not evidence.is_current:
        return "False", "NotJudged", "only a running job with reports is judged"
    if evidence.report is not None and evidence.report.is_final:
        return "False", "Finished", "the run has reported its end"
    if evidence.pace.position is None:
        return "False", "NotJudged", "the reports tell no step, percentage or epoch"
    limit_s = max(STALLED_AT_LEAST_S, STALLED_GAPS * evidence.pace.longest_gap_s)
    still = now - evidence.moved_at
    if still.total_seconds() > limit_s:
        return (
            "True",
            STALLED,
            (
                f"no advance for {describe_age(still)}; the longest pause before was "
                f"{describe_age(timedelta(seconds=evidence.pace.longest_gap_s))}"
            ),
        )
    return "False", "Advancing", _PLAIN


def _diverged(evidence: Evidence, _now: datetime) -> _Verdict:
    for name, value in evidence.report.metrics if evidence.report else ():
        if name in JUDGED_METRICS and not _is_finite(value):
            return "True", "NonFiniteMetric", f"{name} is not a finite number"
    return "False", "Finite", _PLAIN


def _is_finite(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return True  # a word is no number, so no divergence either


def _suspended(evidence: Evidence, _now: datetime) -> _Verdict | None:
    job = evidence.job
    if job.is_queued:
        return "True", "Queued", job.message or "the job waits in its queue"
    if job.is_suspended:
        return "True", job.reason or "Suspended", job.message or "the job is suspended"
    return ("False", "Resumed", _PLAIN) if job.is_suspended is False else None


def _complete(evidence: Evidence, _now: datetime) -> _Verdict | None:
    if evidence.job.phase is Phase.SUCCEEDED:
        return "True", evidence.job.reason or "Complete", evidence.job.message or "the job has completed"
    return None


def _failed(evidence: Evidence, _now: datetime) -> _Verdict | None:
    job = evidence.job
    if job.phase is Phase.FAILED:
        return "True", job.reason or "Failed", job.message or "the job has failed"
    return None


_RULES: dict[str, Callable[[Evidence, datetime], _Verdict | None]] = {
    "Reporting": _reporting,
    "Fresh": _fresh,
    "Stalled": _stalled,
    "Diverged": _diverged,
    "Suspended": _suspended,
    "Complete": _complete,
    "Failed": _failed,
}
