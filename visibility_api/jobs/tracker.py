"""Brings together what the cluster shows of each job and what its training process reports, and publishes it.

Plain state, no `await`: every event leaves each job's record whole and its document published.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from visibility_api.history.job_history import JobHistory
from visibility_api.reports.document import Progress
from visibility_api.reports.ranks import NO_RANKS
from visibility_api.reports.report import parse_report

from .conditions import evaluate, gather
from .failure import Failure
from .job import JobRef, Rank0, TrainingJob
from .memory import Memory, recall, recall_past, remember, remember_encoded
from .merge import LOGS, STATUS, TERMINATION, counts, merge, take
from .observation import Observation, without_points
from .record import PASSES_IN_S, Record, hold, note_failure, note_reached, summarise
from .summary import JobProgress

REFRESH = timedelta(seconds=60)  # times of probes and remaining time are at most this old
PASSING = timedelta(seconds=PASSES_IN_S)
_REFRESH_S = REFRESH.total_seconds()


class Tracker:
    """One record a job, by its identity. `interval_s` is the default time between two probes.

    `recall` and `recall_history` are asked once for each job that is new to this process: what earlier ones
    remembered of it, and kept of its past.
    """

    def __init__(
        self,
        *,
        publish: Callable[[JobProgress], None],
        retract: Callable[[JobRef], None],
        now: Callable[[], datetime],
        interval_s: float,
        recall: Callable[[JobRef], Memory | None] = lambda _ref: None,
        recall_history: Callable[[JobRef], Iterable[JobHistory]] = lambda _ref: (),
    ) -> None:
        self._publish = publish
        self._retract = retract
        self._now = now
        self._interval_s = interval_s
        self._recall = recall
        self._recall_history = recall_history
        self._records: dict[JobRef, Record] = {}
        self._reviews: Iterator[JobRef] = iter(())
        self._passing: list[tuple[datetime, JobRef]] = []  # a heap: when an estimated end passes

    def __contains__(self, ref: JobRef) -> bool:
        return ref in self._records

    def __iter__(self) -> Iterator[JobRef]:
        return iter(self._records)

    def job_changed(self, job: TrainingJob, status: Observation | None = None) -> None:
        """The cluster shows this job, new or otherwise than before; `status`: the report in its status."""
        now = self._now()
        interval_s = job.hints.interval_s or self._interval_s
        record = self._records.get(job.ref)
        if record is None:
            record = self._records[job.ref] = Record(job=job, interval_s=interval_s)
            if (memory := self._recall(job.ref)) is not None:
                recall(record, memory, now)
            for history in self._recall_history(job.ref):
                self.history_recalled(job.ref, history)
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
        if status is not None:
            merge(record, status, now)
        self._show(record, now)

    def failed(self, ref: JobRef, failure: Failure) -> None:
        """A pod of the job, of any replica, shows this failure."""
        record = self._records.get(ref)
        if record is not None:
            note_failure(record, failure)
            self._show(record, self._now())

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted; so is what is known of it."""
        if self._records.pop(ref, None) is not None:
            self._retract(ref)

    def remembered(self, ref: JobRef) -> Memory | None:
        """What another process must know of the job to judge it alike; None for a job that is not known."""
        record = self._records.get(ref)
        return None if record is None else remember(record)

    def remembered_encoded(self, ref: JobRef) -> bytes | None:
        """The same as MessagePack, for where it is stored and passed on."""
        record = self._records.get(ref)
        return None if record is None else remember_encoded(record)

    def recalled(self, ref: JobRef, memory: Memory) -> None:
        """Another process remembers this of a job, which may be known here already."""
        record = self._records.get(ref)
        if record is not None:
            now = self._now()
            recall(record, memory, now)
            self._show(record, now)

    def past_recalled(self, ref: JobRef, memory: Memory) -> None:
        """Another process remembers this of a job whose report is not newer: it may have seen pods that this
        one has not."""
        record = self._records.get(ref)
        if record is not None and recall_past(record, memory, now := self._now()):
            self._show(record, now)

    def history(self, ref: JobRef) -> JobHistory | None:
        """What was reported over time; None for a job of which nothing is."""
        record = self._records.get(ref)
        return None if record is None else record.history

    def history_recalled(self, ref: JobRef, history: JobHistory) -> None:
        """Another process has kept this of the past of a job."""
        record = self._records.get(ref)
        if record is not None and (record.history is None or record.history.rows < history.rows):
            record.history = history

    def source_of(self, ref: JobRef) -> str:
        """The source of the last report of rank 0's present attempt, perhaps read by another process; "" if
        there is none."""
        record = self._records.get(ref)
        if record is None or record.job.rank0 is None or record.attempt != record.job.rank0.attempt:
            return ""
        return record.source

    def can_be_probed(self, ref: JobRef) -> bool:
        """Whether rank 0 runs, as far as this process sees: its next report can be read."""
        record = self._records.get(ref)
        rank0 = record.job.rank0 if record is not None else None
        return rank0 is not None and rank0.is_running

    def lacks_final_report(self, ref: JobRef) -> bool:
        """Whether what a job has left behind may contain more than is known of its present attempt.

        What came by file, port or push is not completed from a log, which is read by guess.
        """
        record = self._records.get(ref)
        if record is None or record.report is None or not record.is_current:
            return record is not None
        return not record.report.is_final and record.source in (LOGS, STATUS)

    def observed(self, observation: Observation) -> bool:
        """A source has brought this. Returns whether it is a report that counts from now on."""
        record = self._records.get(observation.ref)
        if record is None or not counts(record, observation):
            return False
        now = self._now()
        outcome = observation.outcome
        points = outcome.points if isinstance(outcome, Progress) else ()
        is_taken = merge(record, without_points(observation), now, points)
        if is_taken and isinstance(outcome, Progress) and outcome.ranks.rows:
            gather(record, outcome.ranks)
        self._show(record, now)
        return is_taken

    def review(self, share: float) -> None:
        """Evaluate this share of the jobs anew, in turn, and those whose estimated end has come: ages grow
        without anything happening. To be called once a second. Raises what the first job raised that could
        not be evaluated, after all others were."""
        now = self._now()
        due = []
        while self._passing and self._passing[0][0] <= now:
            if (record := self._records.get(heapq.heappop(self._passing)[1])) is not None:
                record.passes_at = None
                due.append(record)
        for _ in range(math.ceil(share * len(self._records))):
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
        record.conditions = evaluate(record, now)
        hold(record, now)
        summary = summarise(record, now)
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
            return  # or each probe of a job that reports nothing new would wake every watcher
        record.shown, record.shown_at = summary, now
        self._publish(summary)

    def _watch_end(self, record: Record, passes_at: datetime) -> None:
        """Have the job evaluated anew when its estimated end passes, which is before its next turn."""
        if record.passes_at is None or passes_at < record.passes_at:
            record.passes_at = passes_at
            heapq.heappush(self._passing, (passes_at, record.job.ref))


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
