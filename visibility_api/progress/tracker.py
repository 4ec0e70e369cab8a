"""Brings together what the cluster says of each job and what its training process says, and publishes it.

Plain state, no `await`: every event leaves each job's record whole and its document published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from .completion import complete, tells_position, without_contradiction
from .document import Progress, Refused
from .estimate import Pace
from .job import JobRef, Rank0, TrainingJob
from .observation import Observation
from .record import Record, summarise
from .report import parse_report
from .summary import JobProgress
from .verdict import Evidence, judge

FILE, TERMINATION, STATUS, LOGS = "exec", "termination", "status", "logs"
PARTIAL = (LOGS, "push", STATUS)  # say what is new, or what upstream's form has room for; not all there is
STAND_IN = "another rank"  # in place of a source, where it is told apart
EARLIER_ATTEMPT = "earlier"
CLOCK_TOLERANCE = timedelta(seconds=5)  # between a node's clock and that of the kubelet on another
RELAYED_LATE = timedelta(seconds=60)  # at most; what seems to be later shows a clock that was set back
READ_LATE_S = 60.0  # a report may be as old when it is read, also where looks are frequent
# A log is read by guess: it does not gainsay the position that another source told so short a while ago.
POSITION_STANDS = timedelta(minutes=5)
REFRESH = timedelta(seconds=60)  # times of looks and remaining time are at most this old
_LEFT_OVER = Refused(
    reason="OutdatedReport",
    message="what is read is older than the container's start: an earlier life of it has left it behind",
)


class Tracker:
    """One record a job, by its identity.

    `interval_s` is the default time between two looks; `reads_status`: TrainJob.status is a source, too.
    """

    def __init__(
        self,
        *,
        publish: Callable[[JobProgress], None],
        retract: Callable[[JobRef], None],
        now: Callable[[], datetime],
        interval_s: float,
        reads_status: bool = True,
    ) -> None:
        self._reads_status = reads_status
        self._publish = publish
        self._retract = retract
        self._now = now
        self._interval_s = interval_s
        self._records: dict[JobRef, Record] = {}
        self._reviews: Iterator[JobRef] = iter(())

    def job_changed(self, job: TrainingJob) -> None:
        """The cluster shows this job, new or otherwise than before."""
        now = self._now()
        record = self._records.get(job.ref)
        if record is None:
            record = self._records[job.ref] = Record(job=job)
        record.job = job
        if job.rank0 is not None:
            if record.rank0 is not None and record.rank0.attempt != job.rank0.attempt:
                record.last_look, record.failures = None, 0  # said of a process that is no more
            record.rank0 = job.rank0
            record.last_termination = job.rank0.last_termination or record.last_termination
            record.attempts = (job.rank0.attempt, *(each.attempt for each in job.alternates))
            self._read_termination_message(record, job.rank0, now)
        else:
            record.attempts = record.attempts[:1]
        self._read_status(record, now)
        self._show(record, now)

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted; so is what is known of it."""
        if self._records.pop(ref, None) is not None:
            self._retract(ref)

    def observed(self, observation: Observation) -> bool:
        """One look at a job. A late word of an attempt that has ended changes nothing.

        Whether it brought a report that counts from now on.
        """
        record = self._records.get(observation.ref)
        if record is None:
            return False
        now = self._now()
        if observation.is_last_word:
            return self._take_last_word(record, observation, now)
        if observation.attempt not in record.attempts:
            return False
        voice = _voice(record, observation)
        if observation.is_relayed and _is_overtaken(record, observation, voice):
            return False
        if (
            voice == STAND_IN
            and _is_same_life(record, observation.attempt)
            and record.heard.keys() - {STAND_IN, STATUS}  # whose words a status repeats nobody knows
        ):
            return False  # rank 0 has spoken
        if _is_left_over(record, observation):
            observation = msgspec.structs.replace(observation, outcome=_LEFT_OVER)
        record.last_look = observation
        is_taken = False
        if isinstance(observation.outcome, Progress):
            record.failures = 0
            is_taken = self._take(
                record, observation.outcome, observation.attempt, observation.source, now, voice
            )
        else:
            record.failures += 1
        self._show(record, now)
        return is_taken

    def review(self, share: float) -> None:
        """Judge this share of the jobs anew, in turn: ages grow without anything happening."""
        now = self._now()
        for _ in range(math.ceil(share * len(self._records))):
            ref = next(self._reviews, None)
            if ref is None:
                self._reviews = iter(list(self._records))
                return
            record = self._records.get(ref)
            if record is not None and not record.job.phase.is_final:
                self._show(record, now)

    def _take_last_word(self, record: Record, observation: Observation, now: datetime) -> bool:
        """Of the attempt before, unless the one that runs now has spoken already."""
        attempt = observation.attempt
        is_next = record.attempt in ("", EARLIER_ATTEMPT, attempt) or _follows(attempt, record.attempt)
        if not is_next or not isinstance(observation.outcome, Progress):
            return False
        is_taken = self._take(record, observation.outcome, attempt, observation.source, now)
        self._show(record, now)
        return is_taken

    def _read_termination_message(self, record: Record, rank0: Rank0, now: datetime) -> None:
        """What the container left behind may be newer than what was last read of it (design.md 4)."""
        key = hash((rank0.attempt, rank0.termination_message))
        if not rank0.termination_message or key == record.message_read:
            return
        record.message_read = key
        outcome = parse_report(rank0.termination_message.encode(errors="replace"))
        if isinstance(outcome, Progress):  # anything else is somebody's plain text
            self._take(record, outcome, rank0.attempt, TERMINATION, now)

    def _read_status(self, record: Record, now: datetime) -> None:
        """`TrainJob.status.trainerStatus` survives suspension, resumption and restarts unchanged (1.1)."""
        status, rank0 = record.job.trainer_status, record.job.rank0
        if status is None or status.timestamp is None or not self._reads_status:
            return
        is_earlier = rank0 is not None and (
            rank0.started_at is None
            or status.timestamp < rank0.started_at - CLOCK_TOLERANCE
            or (record.attempt != rank0.attempt and _is_known(status, record.report))
        )
        if not is_earlier:
            self._take(record, status, rank0.attempt if rank0 else record.attempt, STATUS, now)
        elif record.report is None:
            self._take(record, status, EARLIER_ATTEMPT, STATUS, now)

    def _take(
        self,
        record: Record,
        report: Progress,
        attempt: str,
        source: str,
        now: datetime,
        voice: str | None = None,
    ) -> bool:
        """Newest wins within an attempt; a new attempt begins anew. `voice`: the source if not given.

        Whether it was taken.
        """
        voice = voice or source
        held = record.report if _is_same_life(record, attempt) else None
        if held is None:
            record.heard, record.clock_ahead, record.pace, record.positioned_at = {}, None, Pace(), None
        if source == LOGS and held is not None and _is_recent(record.positioned_at, now):
            report = without_contradiction(report, held)
        if record.heard.get(voice) == report:
            return False
        takes_over = STAND_IN in record.heard and voice not in (STAND_IN, STATUS)
        if takes_over:  # rank 0 itself: the clock of whoever spoke in its place is another one
            record.heard, record.clock_ahead, record.pace = {}, None, Pace()
        elif held is not None and voice != record.voice and not _is_news(report, held, source, record):
            return False
        record.heard[voice] = report
        if source != LOGS and voice != STAND_IN and tells_position(report):
            record.positioned_at = now
        if report.timestamp is None:
            said_at = _training_time(now, record, None if takes_over else held)
            report = msgspec.structs.replace(report, timestamp=said_at)
        elif source == STATUS:
            if held is None:  # may have stood there for hours; nothing is new for having been found only now
                now = min(now, report.timestamp)
        elif record.clock_ahead is None or report.timestamp - now > record.clock_ahead:
            record.clock_ahead = report.timestamp - now
        if held is not None and (len(record.heard) > 1 or source in PARTIAL):
            report = complete(report, held)
        pace = record.pace.advance(report, waited_s=self._waited_s(record, now))
        if pace != record.pace or held is None:
            record.moved_at = now
        record.pace = pace
        record.report, record.attempt, record.reported_at = report, attempt, now
        record.source, record.voice = source, voice
        return True

    def _waited_s(self, record: Record, now: datetime) -> float:
        """At most so long ago the report that moved last was written: some time before we read it."""
        if record.moved_at is None:
            return math.inf
        unread_s = max(READ_LATE_S, 2 * (record.job.hints.interval_s or self._interval_s))
        return 2 * max(0.0, (now - record.moved_at).total_seconds()) + unread_s  # twice: looks may be rare

    def _show(self, record: Record, now: datetime) -> None:
        # Our clock may have been set back: ages count from here then, or none would for a while.
        if record.reported_at is not None and record.reported_at > now:
            record.reported_at = now
        if record.moved_at is not None and record.moved_at > now:
            record.moved_at = now
        job, report, look = record.job, record.report, record.last_look
        is_current = report is not None and (
            job.rank0 is None or record.attempt in record.attempts or job.phase.is_final
        )
        interval_s = job.hints.interval_s or self._interval_s
        failure = look.outcome if look is not None and isinstance(look.outcome, Refused) else None
        if is_current and record.source in ("push", STATUS):
            failure = None  # of another source: this one is not asked
        record.conditions = judge(
            Evidence(
                job=job,
                report=report,
                is_current=is_current,
                reported_at=record.reported_at,
                moved_at=record.moved_at,
                pace=record.pace,
                failure=failure,
                interval_s=interval_s,
            ),
            now=now,
            before=record.conditions,
        )
        summary = summarise(record, is_current=is_current, now=now)
        shown = record.shown
        if (
            shown is not None
            and record.shown_at is not None
            and timedelta(0) <= now - record.shown_at < REFRESH
            and summary.updated_at == shown.updated_at  # else there is news, and no need to look for it
            and summary.essence() == shown.essence()
        ):
            return  # or each look at a job that says nothing new would wake every watcher
        record.shown, record.shown_at = summary, now
        self._publish(summary)


def _follows(attempt: str, earlier: str) -> bool:
    """Whether it is a later life of the same container: of other pods nobody can tell which came first."""
    (pod, restarts, _), (earlier_pod, earlier_restarts, _) = attempt.split("/"), earlier.split("/")
    return pod == earlier_pod and int(restarts) > int(earlier_restarts)


def _is_overtaken(record: Record, observation: Observation, voice: str) -> bool:
    """Whether it came round so late that the same process had said something newer before."""
    said, held = observation.outcome, record.report
    if voice != record.voice or voice == STAND_IN:  # of several pods, with clocks of their own
        return False
    if not isinstance(said, Progress) or said.timestamp is None or held is None or held.timestamp is None:
        return False
    is_earlier = timedelta(0) < held.timestamp - said.timestamp <= RELAYED_LATE
    return is_earlier and _is_same_life(record, observation.attempt)


def _is_left_over(record: Record, observation: Observation) -> bool:
    """Whether a file, which may lie in a volume, tells of an earlier life of the container. Only a process
    that lives changes it, however wrong its clock is."""
    report = observation.outcome
    if observation.source != FILE or not isinstance(report, Progress) or report.timestamp is None:
        return False
    rank0 = record.rank0_of(observation.attempt)
    if rank0 is None or rank0.started_at is None or not (rank0.restart_count or rank0.restart_attempt):
        return False
    if record.left_over is None or record.left_over[0] != observation.attempt:
        if report.timestamp >= rank0.started_at:
            return False
        record.left_over = observation.attempt, report
    return record.left_over[1] == report


def _is_same_life(record: Record, attempt: str) -> bool:
    """Whether what is held may be completed by what is said of `attempt`: pods that may hold rank 0 at the
    same time (MPI) speak for one run."""
    return record.attempt == attempt or {record.attempt, attempt} <= set(record.attempts)


def _voice(record: Record, observation: Observation) -> str:
    """Who speaks, in so far as that matters: one that speaks again needs no later time to be believed."""
    if observation.is_stand_in:
        return STAND_IN
    is_rank0 = not record.attempts or observation.attempt == record.attempts[0]
    return observation.source if is_rank0 else f"{observation.source} of another pod"


def _is_news(report: Progress, held: Progress, source: str, record: Record) -> bool:
    """Of two sources the later written counts, by the training process's clock. Written at the same time,
    it is the same report, of which partial sources have less."""
    if source == STATUS:  # may be what `--write-back` wrote there of an earlier report
        return not _is_known(report, held)
    if report.timestamp is None or held.timestamp is None or record.clock_ahead is None:
        return True
    return report.timestamp > held.timestamp or (report.timestamp == held.timestamp and source not in PARTIAL)


def _is_recent(positioned_at: datetime | None, now: datetime) -> bool:
    # A clock that was set back says nothing: the log is believed, as if long ago.
    return positioned_at is not None and timedelta(0) <= now - positioned_at < POSITION_STANDS


def _is_known(status: Progress, held: Progress | None) -> bool:
    """Whether a status tells of nothing later than what is held."""
    return not (held is None or held.timestamp is None or status.timestamp is None) and (
        status.timestamp <= held.timestamp
    )


def _training_time(now: datetime, record: Record, held: Progress | None) -> datetime:
    """Now, by the training process's clock as far as other reports have shown it."""
    said_at = now + (record.clock_ahead or timedelta())
    return max(said_at, held.timestamp) if held is not None and held.timestamp else said_at
