"""Brings together what the cluster shows of each job and what its training process reports, and publishes it.

Plain state, no `await`: every event leaves each job's record whole and its document published.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import structlog
from msgspec.structs import replace

from visibility_api.diagnosis.result import Diagnosis
from visibility_api.history.job_history import JobHistory
from visibility_api.reports.document import Progress
from visibility_api.reports.ranks import NO_RANKS, Ranks
from visibility_api.reports.report import parse_report

from .clock import later
from .conditions import evaluate
from .failure import Failure
from .goodput import account_of, goes_on, read_goodput, reckon_until, settle_before, wasted
from .holding import hold
from .job import JobRef, Rank0, TrainingJob
from .lagging import gather, is_doubtful, rounds_apart
from .memory import encode_state, take_state
from .merge import LOGS, STATUS, TERMINATION, counts, merge, take
from .observation import Addition, Observation, without_points
from .pruning import Groups
from .record import PASSES_IN_S, Look, Record, note_failure, note_reached, summarise
from .saved_account import save_account
from .summary import JobProgress
from .training_health import stalled_after_s, suspicious_s

log = structlog.get_logger("visibility.jobs")

REFRESH = timedelta(seconds=60)  # times of probes and remaining time are at most this old
PASSING = timedelta(seconds=PASSES_IN_S)
_REFRESH_S = REFRESH.total_seconds()
PASSING_AT_ONCE = 32  # jobs whose estimated end has come: one moment may be that of a whole namespace


class Tracker:
    """One record a job, by its identity. `interval_s` is the default time between two probes.

    `publish` is called with each document that differs from the one before, `kept` then with the job and what
    its history has gained; `suspect` with a job that stands still, and for how many seconds, at each
    evaluation. `recall` is called once for each new job: its state and history, as another
    process has left them."""

    def __init__(
        self,
        *,
        publish: Callable[[JobProgress], None],
        retract: Callable[[JobRef], None],
        now: Callable[[], datetime],
        interval_s: float,
        kept: Callable[[JobRef, Sequence[Addition]], None] = lambda _ref, _points: None,
        suspect: Callable[[JobRef, float], None] = lambda _ref, _still_s: None,
        recall: Callable[[JobRef], tuple[bytes | None, JobHistory | None]] = lambda _ref: (None, None),
    ) -> None:
        self._publish = publish
        self._retract = retract
        self._now = now
        self._interval_s = interval_s
        self._kept = kept
        self._recall = recall
        self._suspect = suspect
        self._records: dict[JobRef, Record] = {}
        self._groups = Groups()
        self._reviews: Iterator[JobRef] = iter(())
        self._due = 0.0  # of a job, to be evaluated next
        # Resources and namespaces, None for all, whose objects are not followed at this moment; for
        # `OwnersTerm` to set.
        self.unwatched: frozenset[tuple[str, str | None]] = frozenset()
        self._passing: list[tuple[datetime, JobRef]] = []  # a heap: when an estimated end passes

    def __contains__(self, ref: JobRef) -> bool:
        return ref in self._records

    def __iter__(self) -> Iterator[JobRef]:
        return iter(self._records)

    def adopt(self, document: JobProgress) -> None:
        """Continue with a job that another process has published last; nothing is published for now."""
        record = self._new_record(document.job)
        record.attempts = tuple(
            [each.attempt for each in (document.job.rank0, *document.job.alternates) if each is not None]
        )
        record.conditions = document.conditions
        record.observed = document.observation
        record.shown, record.shown_at = document, self._now()

    def _new_record(self, job: TrainingJob) -> Record:
        record = Record(job=job, interval_s=job.hints.interval_s or self._interval_s)
        state, record.history = self._recall(job.ref)
        if state is not None and not take_state(record, state):
            log.warning("state of a job cannot be read, it begins anew", job=str(job.ref))
        self._records[job.ref] = record
        return record

    def job_changed(self, job: TrainingJob, status: Observation | None = None) -> None:
        """The cluster shows this job, new or otherwise than before; `status`: the report in its status."""
        now = self._now()
        interval_s = job.hints.interval_s or self._interval_s
        record = self._records.get(job.ref)
        if record is None:
            record = self._new_record(job)
        record.accelerators = job.accelerators or record.accelerators
        if job.accelerators != record.accelerators:
            job = replace(job, accelerators=record.accelerators)
        record.job, record.interval_s = job, interval_s
        if job.rank0 is not None:
            record.show_rank0(job.rank0)
            record.last_termination = job.rank0.last_termination or record.last_termination
            record.attempts = (job.rank0.attempt, *(each.attempt for each in job.alternates))
            record.count_attempt(job.rank0, record.attempts[0])
            _read_termination_message(record, job.rank0, now)
        else:
            record.attempts = record.attempts[:1]
        if job.failure is not None:
            note_failure(record, job.failure)
        record.diagnosis = job.diagnosis or record.diagnosis
        if status is not None:
            merge(record, status, now)
        self._show(record, now)

    def failed(self, ref: JobRef, failure: Failure) -> None:
        """A pod of the job, of any replica, shows this failure."""
        record = self._records.get(ref)
        if record is not None:
            note_failure(record, failure)
            self._show(record, self._now())

    def diagnosed(self, ref: JobRef, diagnosis: Diagnosis, *, is_told: bool = True) -> None:
        """The ranks of the job were read. `is_told`: the document has what was found."""
        record = self._records.get(ref)
        if record is not None:
            if is_told:
                record.diagnosis = diagnosis
            if diagnosis.shows or record.look is not None:
                record.look = Look(diagnosis.at, diagnosis.shows, diagnosis.evidence)
            self._show(record, self._now())

    def rounds_apart(self, ref: JobRef) -> int:
        """After how many rounds the files of its ranks are read again; 0: never."""
        record = self._records.get(ref)
        return 0 if record is None else rounds_apart(record, self._now())

    def worked(self, ref: JobRef, ranks: Ranks) -> bool:
        """The files of the job's ranks were read. Returns whether it is to be done again soon."""
        record, now = self._records.get(ref), self._now()
        if record is None or len(ranks.rows) < 2 or not rounds_apart(record, now):
            return False
        record.accelerators_of_all = (now, ranks.accelerators) if ranks.accelerators else None
        _gather(record, replace(ranks, at=later(now, record.clock.ahead_s)))
        self._show(record, now)
        return is_doubtful(record)

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted; so is what is known of it."""
        record = self._records.pop(ref, None)
        if record is not None:
            self._groups.leave(record)
            self._retract(ref)

    def forget(self, ref: JobRef) -> None:
        """Another replica evaluates this job from now on."""
        record = self._records.pop(ref, None)
        if record is not None:
            self._groups.leave(record)

    def compare(self, job: TrainingJob, state: bytes | None, history: JobHistory | None) -> None:
        """A trial that has completed, and that another replica evaluates: those here are compared with it."""
        record = Record(job=job, interval_s=self._interval_s, history=history)
        if state is not None and take_state(record, state):
            self._groups.follow(record)
            self._groups.leave(record)

    def state(self, ref: JobRef) -> bytes | None:
        """What another process must know of the job to continue; None for a job that is not known."""
        record = self._records.get(ref)
        return None if record is None else encode_state(record)

    def history(self, ref: JobRef) -> JobHistory | None:
        """What was reported over time; None for a job of which nothing is."""
        record = self._records.get(ref)
        return None if record is None else record.history

    def source_of(self, ref: JobRef) -> str:
        """The source of the last report of rank 0's present attempt, perhaps read by another process; "" if
        there is none."""
        record = self._records.get(ref)
        if record is None or record.job.rank0 is None or record.attempt != record.job.rank0.attempt:
            return ""
        return record.source

    def lacks_final_report(self, ref: JobRef) -> bool:
        """Whether what a job has left behind may contain more than is known of its present attempt.

        What came by file, port or push is not completed from a log, which is read by guess.
        """
        record = self._records.get(ref)
        if record is None or record.report is None or not record.is_current:
            return record is not None
        return not record.report.is_final and record.source in (LOGS, STATUS)

    def counts(self, observation: Observation) -> bool:
        """Whether a source's outcome concerns a job as it is now."""
        record = self._records.get(observation.ref)
        return record is not None and counts(record, observation)

    def observed(self, observation: Observation) -> bool:
        """A source has brought this. Returns whether it is a report that counts from now on."""
        record = self._records.get(observation.ref)
        if record is None or not counts(record, observation):
            return False
        now = self._now()
        outcome = observation.outcome
        points = outcome.points if isinstance(outcome, Progress) else ()
        settle_before(record, observation, now)
        is_taken = merge(record, without_points(observation), now, points)
        if is_taken and isinstance(outcome, Progress) and outcome.ranks.rows:
            _gather(record, outcome.ranks)
        self._show(record, now)
        return is_taken

    def review(self, share: float) -> None:
        """Evaluate this share of the jobs anew, in turn, and those whose estimated end has come: ages grow
        without anything happening. To be called many times a second, with small shares: of very many jobs a
        second's keeps everybody waiting. Raises what the first job raised that could not be evaluated, after
        all others were."""
        now = self._now()
        due: list[Record] = []
        while self._passing and self._passing[0][0] <= now and len(due) < PASSING_AT_ONCE:
            if (record := self._records.get(heapq.heappop(self._passing)[1])) is not None:
                record.passes_at = None
                due.append(record)
        self._due += share * len(self._records)
        jobs = math.ceil(self._due)
        self._due -= jobs
        for _ in range(jobs):
            ref = next(self._reviews, None)
            if ref is None:
                self._reviews = iter(list(self._records))
                break
            if (record := self._records.get(ref)) is not None and not record.job.phase.is_final:
                due.append(record)
        faults: list[Exception] = []
        for record in due:
            try:
                self._show(record, now)
            except Exception as fault:  # of one job: the others are evaluated all the same
                faults.append(fault)
        if faults:
            raise faults[0]

    def _show(self, record: Record, now: datetime) -> None:
        """Publish the job's document if it differs from the one published last."""
        # Our clock may have been set back: ages count from here then, or none would for a while.
        if record.reported_at is not None and record.reported_at > now:
            record.reported_at = now
            record.earliest_at = min(now, record.earliest_at) if record.earliest_at is not None else None
        if record.moved_at is not None and record.moved_at > now:
            record.moved_at = now
        record.is_current = record.report is not None and (
            record.attempt in record.attempts or record.job.rank0 is None or record.job.phase.is_final
        )
        if record.failed is not None:
            note_reached(record)
        unwatched, ref = self.unwatched, record.job.ref
        record.is_watched = not unwatched or (
            (ref.resource, None) not in unwatched and (ref.resource, ref.namespace) not in unwatched
        )
        if record.job.hints.thresholds.stop_rules or record.trials is not None:
            self._groups.follow(record)
        account = account_of(record, now) if not goes_on(record, now) else None
        record.conditions = evaluate(record, now)
        if (still_s := suspicious_s(record, now)) is not None:
            self._suspect(ref, still_s)
        record.holding = hold(record.holding, record.job, record.last_run(), now)
        goodput = record.account
        if account is not None:
            reckon_until(account, record, now)
            record.wasted_s, goodput = sum(wasted(account).values()), save_account(account)
            if account.is_changed:
                record.account = goodput
        elif record.wasted_s is None:
            record.wasted_s = sum(wasted(read_goodput(goodput)).values())
        summary = summarise(record, now, goodput)
        if summary.completion_at is not None and (summary.remaining_s or 0) <= _REFRESH_S:
            self._watch_end(record, summary.completion_at - PASSING)
        shown = record.shown
        if (
            shown is not None
            and record.shown_at is not None
            and timedelta(0) <= now - record.shown_at < REFRESH
            and (summary.completion_at is None) == (shown.completion_at is None)
            and summary.updated_at == shown.updated_at  # else there is news, and no need to compare further
            and summary.essence() == shown.essence()
        ):
            # Published, each probe of a job that reports nothing new would wake every watcher.
            if record.points:
                self._keep(record)
            return
        record.shown, record.shown_at = summary, now
        record.account = summary.goodput  # the same bytes
        self._publish(summary)
        self._keep(record)

    def _keep(self, record: Record) -> None:
        points, record.points = record.points, []
        self._kept(record.job.ref, points)

    def _watch_end(self, record: Record, passes_at: datetime) -> None:
        """Have the job evaluated anew when its estimated end passes, which is before its next turn."""
        if record.passes_at is None or passes_at < record.passes_at:
            record.passes_at = passes_at
            heapq.heappush(self._passing, (passes_at, record.job.ref))


def _gather(record: Record, ranks: Ranks) -> None:
    if record.report is not None:
        gather(record, ranks, pause_s=stalled_after_s(record, record.report))


def _read_termination_message(record: Record, rank0: Rank0, now: datetime) -> None:
    """What the container left behind may be newer than what was last read of it."""
    if not rank0.termination_message:
        return
    key = hash((rank0.attempt, rank0.termination_message))
    if key == record.message_read:
        return
    record.message_read = key
    outcome = parse_report(rank0.termination_message.encode(errors="replace"))
    if isinstance(outcome, Progress):  # anything else is somebody's plain text
        if outcome.points or outcome.ranks.rows:  # in a hostile one: ours has no room for them
            outcome = replace(outcome, points=(), ranks=NO_RANKS)
        if outcome.timestamp is None and rank0.last_termination is not None:
            outcome = replace(outcome, timestamp=rank0.last_termination.finished_at)
        take(record, outcome, rank0.attempt, TERMINATION, now)
