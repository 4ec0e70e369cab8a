"""Which of several reports of a job counts, and what it is completed by: observations become a `Record`.

Within an attempt the newest report counts, by the training process's own clock; what only an earlier one
contains stays. A new attempt begins anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from visibility_api.history.job_history import JobHistory
from visibility_api.models.sources import PARTIAL
from visibility_api.reports.document import Point, Progress, Refused
from visibility_api.reports.fields import MAX_METRICS
from visibility_api.reports.marks import Marks

from .clock import MAX_SKEW_S, UNKNOWN_CLOCK, NodeClock, later
from .completion import complete, has_position, without_contradiction
from .estimate import Pace
from .observation import Addition, Observation
from .record import Checkpoint, Idleness, Record
from .watched import NOTHING_WATCHED

Points = Sequence[Point]

FILE, TERMINATION, STATUS, LOGS, PUSH = "exec", "termination", "status", "logs", "push"
OTHER_RANK = "another rank"  # a reporter, beside the sources
EARLIER_ATTEMPT = "earlier"
NO_PROGRESS_IN_LOG = "NoProgressInLog"  # of reports/log_tail.py
UTILIZATION = "_utilization_percentage"  # of MLflow's names, system/gpu_0_utilization_percentage
SYSTEM = "system/"
_USED = re.compile(rf"system/[gt]pu_\w*{UTILIZATION}")  # the system's CPU is none
ACCELERATORS_STAND = timedelta(minutes=12)  # two rounds in which ranks' files are read, and some
IDLE_PERCENT = 5.0  # below which an accelerator does nothing
CLOCK_TOLERANCE = timedelta(seconds=5)  # between a node's clock and that of the kubelet on another
MAX_SKEW = timedelta(seconds=MAX_SKEW_S)
# A push that a replica passes on may be tried for some seconds, and come after the next one. In a replica
# that stood still it waits for longer. A clock that was set back is told by the steps, which go on.
PASSED_ON_WITHIN, STOOD_STILL_WITHIN = timedelta(seconds=10), timedelta(hours=1)
READ_LATE_S = 60.0  # a report may be as old when it is read, also where probes are frequent
# A log is read by guess: it does not contradict a position that another source reported so short a while ago.
POSITION_STANDS = timedelta(minutes=5)
_LEFT_OVER = Refused(
    reason="OutdatedReport",
    message="The progress file is older than the container's start: an earlier run has left it behind. "
    "It counts as soon as the present run writes it.",
)


def counts(record: Record, observation: Observation) -> bool:
    """Whether it concerns the job as it is now. A late outcome of an earlier attempt does not."""
    if observation.source == STATUS:
        return True  # `merge` finds out of which attempt it is
    attempt = observation.attempt
    if observation.is_final_read:  # of the attempt before, unless the present one has reported already
        is_next = record.attempt in ("", EARLIER_ATTEMPT, attempt) or _follows(attempt, record.attempt)
        return is_next and isinstance(observation.outcome, Progress)
    if attempt not in record.attempts:
        return False
    return not (
        observation.is_other_rank
        and _is_same_attempt(record, attempt)
        # Rank 0 has reported. Whose report a status repeats is not known.
        and record.reports.keys() - {OTHER_RANK, STATUS}
    )


def merge(record: Record, observation: Observation, now: datetime, points: Points = ()) -> bool:
    """Take over one that `counts`. Returns whether it brought a report that counts from now on. `points`:
    earlier values that came with it."""
    outcome, attempt, source = observation.outcome, observation.attempt, observation.source
    if source == STATUS:
        is_taken = isinstance(outcome, Progress) and _take_status(record, outcome, now)
        record.read_at[STATUS] = now
        return is_taken
    if observation.is_final_read:
        return isinstance(outcome, Progress) and take(record, outcome, attempt, source, now, points=points)
    if isinstance(outcome, Refused) and _is_rotated_log(record, outcome, attempt):
        observation = replace(observation, outcome=record.reports[LOGS])
        outcome = record.reports[LOGS]
    record.last_observation = observation
    if isinstance(outcome, Refused):
        record.refused = outcome
        record.failures += 1
        return False
    reporter = _reporter(record, observation)
    is_taken = False
    if _is_left_over(record, observation):
        record.last_observation, record.refused = replace(observation, outcome=_LEFT_OVER), _LEFT_OVER
        record.failures += 1
    else:
        record.refused, record.failures = None, 0
        is_taken = take(record, outcome, attempt, source, now, reporter, points)
    # It showed nothing newer until then: it was read at some time after the probe began.
    slow_s = observation.latency_s
    record.read_at[reporter] = now - timedelta(seconds=slow_s) if slow_s is not None and slow_s > 1 else now
    return is_taken


def take(
    record: Record,
    report: Progress,
    attempt: str,
    source: str,
    now: datetime,
    reporter: str = "",
    points: Points = (),
) -> bool:
    """Take this report of this attempt over if it is news. `reporter`: the source if not given. `points`:
    earlier values that came with it."""
    reporter = reporter or source
    held = record.report if _is_same_attempt(record, attempt) else None
    if held is None:
        record.reports, record.clock, record.pace, record.positioned_at = {}, UNKNOWN_CLOCK, Pace(), None
        record.watched = NOTHING_WATCHED
        record.accelerators_of_all = None
    newest = record.reports.get(reporter)
    if newest == report or (reporter == PUSH and _is_overtaken(report, newest)):
        return False
    read = report
    if source == LOGS and held is not None and _is_recent(record.positioned_at, now):
        report = without_contradiction(report, held)
    takes_over = OTHER_RANK in record.reports and reporter not in (OTHER_RANK, STATUS)
    if takes_over:  # rank 0 itself: the clock of the process that reported in its place is another one
        record.reports, record.clock, record.pace = {}, UNKNOWN_CLOCK, Pace()
        record.watched = NOTHING_WATCHED
    elif held is not None and reporter != record.reporter and not _is_news(report, held, source, record):
        return False
    record.reports[reporter] = read
    read_at = record.read_at.get(reporter)  # None: not by this process
    is_next = read_at is not None or held is None
    if read_at is None and held is not None and reporter == record.reporter:
        read_at = record.reported_at
    clock = record.clock
    _date(record, report, source, read_at, now)
    if source != LOGS and reporter != OTHER_RANK and has_position(report):
        record.positioned_at = record.reported_at
    if report.timestamp is None:
        report = replace(report, timestamp=_training_time(now, record, None if takes_over else held))
    report = told = _with_all_accelerators(record, report, now)
    _keep(record, report, points, attempt, now, held=held, before=clock)
    if held is not None and (len(record.reports) > 1 or source in PARTIAL):
        report = complete(report, held)
    pace = record.pace.advance(report, waited_s=_waited_s(record, now), is_next=is_next)
    if report.metrics and (held is None or takes_over or report.metrics != held.metrics):
        thresholds = record.job.hints.thresholds
        before = None if takes_over else held
        record.watched = record.watched.advance(
            report, before, pace.position, thresholds.plateau_metric, thresholds.plateau_better
        )
    if pace != record.pace or held is None:
        record.moved_at = record.reported_at
    record.pace = pace
    _keep_checkpoint(record, report.marks, is_next=held is not None and not takes_over)
    _keep_idleness(record, told, is_next=held is not None and not takes_over)
    record.report, record.attempt = report, attempt
    record.source, record.reporter = source, reporter
    return True


def _is_overtaken(report: Progress, newest: Progress | None) -> bool:
    """Whether the same process wrote `newest` after it. What it says of its end counts all the same."""
    if newest is None or newest.timestamp is None or report.timestamp is None or report.is_final:
        return False
    is_behind = report.step is not None and newest.step is not None and report.step < newest.step
    within = STOOD_STILL_WITHIN if is_behind else PASSED_ON_WITHIN
    return report.timestamp < newest.timestamp <= report.timestamp + within


def _keep_checkpoint(record: Record, marks: Marks, *, is_next: bool) -> None:
    """What an earlier attempt has saved stays. `is_next`: the one before is of the same attempt."""
    before, step, at = record.checkpoint, marks.checkpoint_step, marks.checkpoint_at
    if step is None or at is None:
        return
    at = later(at, -record.clock.ahead_s)
    if record.reported_at is not None:
        at = min(at, record.reported_at)
    if before is not None and before.step == step and abs((before.at - at).total_seconds()) < 1:
        return
    longest_s = before.longest_s if before is not None else 0.0
    if before is not None and is_next:
        longest_s = max(longest_s, (at - before.at).total_seconds())
    record.checkpoint = Checkpoint(step, at, longest_s)


def _with_all_accelerators(record: Record, report: Progress, now: datetime) -> Progress:
    """With what the ranks of all pods have said lately, in place of what rank 0 knows of its own pod."""
    seen = record.accelerators_of_all
    if seen is None or now - seen[0] > ACCELERATORS_STAND:
        return report
    if not any(name.startswith(SYSTEM) for name, _ in report.metrics):
        return report
    metrics = dict(report.metrics) | dict(seen[1])
    return replace(report, metrics=tuple(metrics.items())[:MAX_METRICS])


def _percent(text: str) -> float:
    """NaN for what is no number: then nothing is idle."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _keep_idleness(record: Record, report: Progress, *, is_next: bool) -> None:
    """By the metrics that this very report has of accelerators: a source without them says nothing."""
    used = [_percent(text) for name, text in report.metrics if _USED.fullmatch(name)]
    at = record.reported_at
    if not is_next:
        record.idle = None
    if not used or at is None:
        return
    before = record.idle or Idleness(at, at, 0)
    is_idle = all(0 <= percent < IDLE_PERCENT for percent in used)
    record.idle = replace(before, until=at, reports=before.reports + 1) if is_idle else None


def _keep(
    record: Record,
    report: Progress,
    points: Points,
    attempt: str,
    now: datetime,
    *,
    held: Progress | None,
    before: NodeClock,
) -> None:
    """Add a report to the history, as it was read: what earlier ones complete it by is there already."""
    if points and held is not None and not report.is_final:
        # The latest of each metric, also of those measured long ago. What is measured later is among the
        # points of the next report.
        before_it = set(held.metrics)
        measured = [each for each in report.metrics if each not in before_it]
        report = replace(report, metrics=tuple(measured))
    if record.history is None:
        record.history = JobHistory()
    addition = Addition(
        attempt=attempt,
        report=Progress(
            timestamp=report.timestamp, step=report.step, epoch=report.epoch, metrics=report.metrics
        ),
        points=tuple(points),
        continues=held is not None,
        reported_at=record.reported_at or now,
        ahead_s=record.clock.ahead_s,
        is_clock_set=record.clock.contradicts(before),
    )
    addition.add_to(record.history)
    record.points.append(addition)


def _date(record: Record, report: Progress, source: str, read_at: datetime | None, now: datetime) -> None:
    """When the report was written, by our clock. `read_at`: when its reporter still showed an earlier one."""
    told_at = report.timestamp
    if told_at is not None and read_at is not None and read_at <= told_at <= now and record.clock.is_right:
        record.reported_at = record.earliest_at = (
            told_at  # as nearly all are: it shows nothing new of the clock
        )
        return
    not_before = _latest(read_at, _started_at(record, now))
    if told_at is None:
        record.reported_at, record.earliest_at = now, not_before
        return
    if source != STATUS:  # which may be what was written back of an earlier report
        # A file may have been left behind by an earlier run: it may be older than the container.
        unseen_at = read_at if source == FILE else not_before
        record.clock = record.clock.bounded(told_at, received=now, not_before=unseen_at)
    ahead_s = record.clock.ahead_s
    if not ahead_s and told_at <= now + MAX_SKEW:
        record.reported_at = record.earliest_at = min(told_at, now)
        return
    record.reported_at = min(now, later(told_at, -ahead_s))
    high = record.clock.at_most_s
    record.earliest_at = _latest(not_before, None if high is None else later(told_at, -high))


def _started_at(record: Record, now: datetime) -> datetime | None:
    """When the container was started; None if that is not known, or in the future."""
    rank0 = record.job.rank0
    return rank0.started_at if rank0 is not None and rank0.started_at and rank0.started_at <= now else None


def _latest(one: datetime | None, other: datetime | None) -> datetime | None:
    return other if one is None else one if other is None else max(one, other)


def _take_status(record: Record, status: Progress, now: datetime) -> bool:
    """`TrainJob.status.trainerStatus` names no attempt, and survives suspension, resumption and restarts
    unchanged: it is of the present attempt only if it is later than that one's start."""
    rank0 = record.job.rank0
    if status.timestamp is None:
        return False
    is_earlier = rank0 is not None and (
        rank0.started_at is None
        or status.timestamp < rank0.started_at - CLOCK_TOLERANCE
        or (record.attempt != rank0.attempt and _is_known(status, record.report))
    )
    if not is_earlier:
        return take(record, status, rank0.attempt if rank0 else record.attempt, STATUS, now)
    return record.report is None and take(record, status, EARLIER_ATTEMPT, STATUS, now)


def _waited_s(record: Record, now: datetime) -> float:
    """At most so long ago the report that moved last was written: some time before we read it."""
    if record.moved_at is None:
        return math.inf
    unread_s = max(READ_LATE_S, 2 * record.interval_s)
    waited_s = 2 * max(0.0, (now - record.moved_at).total_seconds())  # twice: probes may be rare
    if (started_at := _started_at(record, now)) is not None:  # an earlier run has written what was before
        waited_s = min(waited_s, (now - started_at).total_seconds())
    return waited_s + unread_s


def _follows(attempt: str, earlier: str) -> bool:
    """Whether it is a later run of the same container: of other pods it is not known which came first."""
    (pod, restarts, _), (earlier_pod, earlier_restarts, _) = attempt.split("/"), earlier.split("/")
    return pod == earlier_pod and int(restarts) > int(earlier_restarts)


def _is_rotated_log(record: Record, refused: Refused, attempt: str) -> bool:
    """Whether the log has shown the report before and its end shows it no more, as after a rotation: for a
    process that has followed the log that is nothing new, so it is for one that was just started."""
    return refused.reason == NO_PROGRESS_IN_LOG and LOGS in record.reports and record.attempt == attempt


def _is_left_over(record: Record, observation: Observation) -> bool:
    """Whether a file, which may lie in a volume, is of an earlier attempt. Only a process that runs changes
    it, however wrong its clock is."""
    report = observation.outcome
    if observation.source != FILE or not isinstance(report, Progress) or report.timestamp is None:
        return False
    rank0 = record.rank0_of(observation.attempt)
    if rank0 is None or rank0.started_at is None:
        return False
    # Of a first run a clock that is behind is likelier than a file of another job. A file that says of a run
    # that goes on that it has ended is another's.
    has_ended = report.is_final and rank0.is_running and report.timestamp < rank0.started_at - CLOCK_TOLERANCE
    if not (rank0.restart_count or rank0.restart_attempt or record.begun > 1 or has_ended):
        return record.left_over == (observation.attempt, report)
    if record.left_over is None or record.left_over[0] != observation.attempt:
        if report.timestamp >= rank0.started_at:
            return False
        record.left_over = observation.attempt, report
    return record.left_over[1] == report


def _is_same_attempt(record: Record, attempt: str) -> bool:
    """Whether the report that is held may be completed by one of `attempt`: pods that may hold rank 0 at the
    same time (MPI) report of one run."""
    return record.attempt == attempt or {record.attempt, attempt} <= set(record.attempts)


def _reporter(record: Record, observation: Observation) -> str:
    """Who reports, as far as that matters: the same reporter needs no later time to be believed."""
    if observation.is_other_rank:
        return OTHER_RANK
    is_rank0 = not record.attempts or observation.attempt == record.attempts[0]
    return observation.source if is_rank0 else f"{observation.source} of another pod"


def _is_news(report: Progress, held: Progress, source: str, record: Record) -> bool:
    """Of two sources the later written counts, by the training process's clock. Written at the same time,
    it is the same report, of which partial sources have less."""
    if source == STATUS:  # may be what `--write-back` wrote there of an earlier report
        return not _is_known(report, held)
    if report.timestamp is None or held.timestamp is None or not record.clock.is_known:
        return True
    return report.timestamp > held.timestamp or (report.timestamp == held.timestamp and source not in PARTIAL)


def _is_recent(positioned_at: datetime | None, now: datetime) -> bool:
    # A clock that was set back shows nothing: the log is believed, as if long ago.
    return positioned_at is not None and timedelta(0) <= now - positioned_at < POSITION_STANDS


def _is_known(status: Progress, held: Progress | None) -> bool:
    """Whether a status reports nothing later than what is held."""
    return not (held is None or held.timestamp is None or status.timestamp is None) and (
        status.timestamp <= held.timestamp
    )


def _training_time(now: datetime, record: Record, held: Progress | None) -> datetime:
    """Now, by the training process's clock as far as other reports have shown it."""
    moment = later(now, record.clock.likely_ahead_s)
    return max(moment, held.timestamp) if held is not None and held.timestamp else moment
