"""The condition Straggling: which ranks work far slower than the others. Absent until they were compared.

What is compared comes with rank 0's report, or else from each rank's own file, which the server reads now and
then. Rule and beginning as in `reporting`.
"""

from __future__ import annotations

import math
from datetime import datetime

from visibility_api.reports.ranks import Ranks

from .clock import later
from .evidence import is_stalled
from .job import Phase
from .record import FRESH_INTERVALS, Record
from .reporting import NOT_TRAINING, PLAIN, Found, Rule
from .straggling import REPORTS, Slow

_SLOWEST = {  # of RankRow.slowest: what it is, and what to do
    "DataLoading": ("waiting for data", "Check its volume, its network and its loader's workers."),
    "Productive": ("computing", "Check its node: cores, clocks, and what else runs there."),
    "CheckpointSave": ("saving checkpoints", "Check the volume that it saves to."),
}
_ANY = ("", "Check its node, its accelerator and its data.")
YOUNG_S = 3600.0  # a run, whose ranks may turn out to write files
OLD_S = 1800.0  # a comparison: rounds are five minutes apart, and late where there are many pods
SELDOM = 12  # rounds apart, of one whose ranks have written none


def gather(record: Record, ranks: Ranks, *, pause_s: float) -> None:
    """Take over what is said of all ranks. `pause_s`: for so long a healthy run may stand still."""
    report, named = record.report, record.job.hints.thresholds.straggling_above
    if report is None or report.timestamp is None or named == math.inf:
        return
    record.gathered = record.gathered.advance(
        ranks, ranks.at or report.timestamp, attempt=record.attempt, factor=named, pause_s=pause_s
    )


def rounds_apart(record: Record, now: datetime) -> int:
    """After how many rounds the files of its ranks are read again; 0: never."""
    report, gathered, is_known = record.report, record.gathered, False
    if report is None or report.is_final or not record.is_current or record.job.phase is not Phase.RUNNING:
        return 0
    if record.job.hints.thresholds.straggling_above == math.inf or is_stalled(record):
        return 0
    if gathered.attempt == record.attempt and gathered.reports:
        if not gathered.is_median:
            return 0  # rank 0 says it
        is_known = True
    began_at = report.started_at or (record.rank0.started_at if record.rank0 is not None else None)
    is_young = began_at is not None and (now - began_at).total_seconds() <= YOUNG_S
    return 1 if is_known or is_young else SELDOM


def is_doubtful(record: Record) -> bool:
    """Whether a rank was slow, and it takes another reading to say that it lags."""
    return any(not each.lags for each in record.gathered.slow)


def _is_old(record: Record, at: datetime, now: datetime) -> bool:
    age_s = (now - later(at, -record.clock.ahead_s)).total_seconds()
    return age_s > max(OLD_S, FRESH_INTERVALS * record.interval_s)


def _find_straggling(record: Record, now: datetime) -> Found | None:
    """Not there unless rank 0 reports of the others, in this attempt."""
    gathered, report = record.gathered, record.report
    if not gathered.reports or gathered.attempt != record.attempt or report is None:
        return None
    if record.job.hints.thresholds.straggling_above == math.inf:
        return None
    if not record.is_current or record.job.phase is not Phase.RUNNING or report.is_final:
        return "False", NOT_TRAINING, PLAIN
    if gathered.at is not None and _is_old(record, gathered.at, now):
        return "Unknown", "NotJudged", "The ranks were not compared for half an hour or longer."
    lagging = gathered.lagging
    if lagging:
        return "True", "SlowReplica", _describe_slow(lagging)
    if gathered.reports < REPORTS:
        return "Unknown", "NotJudged", "The ranks were compared too few times yet."
    return "False", "NoSlowReplica", PLAIN


def _describe_slow(lagging: tuple[Slow, ...]) -> str:
    worst, *others = lagging
    where = ", ".join(filter(None, (worst.name, f"node {worst.node}" if worst.node else "")))
    name = f"Rank {worst.rank} ({where})" if where else f"Rank {worst.rank}"
    also, nodes = "", {each.node for each in lagging}
    if others:
        also = f" Also slow: rank {', '.join(str(each.rank) for each in others)}"
        also += f", all on node {worst.node}." if len(nodes) == 1 and worst.node else "."
    if worst.is_median:
        return f"{name} {_describe_work(worst)}{also} {_SLOWEST.get(worst.slowest, _ANY)[1]}"
    if worst.step_s < math.inf:
        takes = f"takes {worst.step_s:.3g} s for a step, {worst.step_s / worst.usual_s:.2g} times as long as"
    else:
        takes = "does not advance, in contrast to"
    median = f"the median of the {worst.others} others ({worst.usual_s:.3g} s)"
    if worst.others == 1:
        median = f"the other one ({worst.usual_s:.3g} s)"
    return f"{name} {takes} {median}.{also} {_ANY[1]}"


def _describe_work(worst: Slow) -> str:
    """By NVIDIA's scores."""
    best = "the other one" if worst.others == 1 else f"the fastest of {worst.others} others"
    says = f"works {worst.step_s:.3g} s for a step, {best} {worst.usual_s:.3g} s"
    says += f" (relative score {worst.usual_s / worst.step_s:.2f})."
    if worst.best_s is not None:
        own = min(1.0, worst.best_s / worst.step_s)
        says += f" At its best it worked {worst.best_s:.3g} s (individual score {own:.2f})."
    what = _SLOWEST.get(worst.slowest, _ANY)[0]
    return f"{says} Most of it is {what}." if what else says


def _straggling_began(record: Record, status: str, *_: object) -> datetime | None:
    lagging = record.gathered.lagging
    if status != "True" or not lagging or record.reported_at is None:
        return None
    began = min(each.since for each in lagging)
    return min(record.reported_at, later(began, -record.clock.ahead_s))


STRAGGLING = Rule("Straggling", _find_straggling, _straggling_began)
