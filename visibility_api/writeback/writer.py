"""When each job's summary is written, and what follows from the outcome.

docs/write-back.md says what this costs and when to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.kinds import WITH_TRAINER_STATUS, own_objects
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.reports.document import Progress
from visibility_api.reports.trainer_status import TrainerStatus

from .queue import Entry, WriteQueue
from .status_client import StatusClient
from .trainer_status import fingerprint, summarize

log = structlog.get_logger("visibility.write_back")

INTERVAL_S = 30.0  # the shortest time between two writes to one job
WRITES_PER_S = 20.0  # to all jobs; each is a write to etcd, and some ms of kube-apiserver's CPU
CONCURRENCY = 4
REFUSED_RETRY_S = 600.0  # for one job: another owner of a field seldom gives it up
# For a namespace, one of whose objects cannot be written: etcd refuses one that is too large with 500, and
# its owner chooses its size.
FAILED_RETRY_S = 10.0
FORBIDDEN_RETRY_S = 300.0  # for a namespace in which the right is missing
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # for all jobs, while kube-apiserver fails or is busy

_NOTHING = fingerprint(TrainerStatus())  # of a summary without numbers, which is not written
# Outcomes after which only a new document is a reason to write.
_SETTLED = ("Written", "Recreated", "Gone")


class WriteBack:
    """Writes the documents passed to `changed`, while `run` is running. No caller waits for a write.

    `count` is called with the outcome of each write: Written, Recreated, OwnedByOther, Forbidden, Gone,
    Invalid, Busy, Unreachable or Failed.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        count: Callable[[str], None] = lambda _outcome: None,
        interval_s: float = INTERVAL_S,
        writes_per_s: float = WRITES_PER_S,
    ) -> None:
        self._client = StatusClient(client)
        self._count = count
        self._interval_s = interval_s
        self._spacing_s = 1 / writes_per_s
        self._queue = WriteQueue()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._not_before = 0.0  # loop time of the next write at the earliest
        self._pause_s = FIRST_PAUSE_S
        self._last_refusal = (0, "")

    def __len__(self) -> int:
        """The number of jobs that wait to be written."""
        return len(self._queue)

    def changed(self, document: JobProgress) -> None:
        """A job's document was published."""
        if _is_writable(document):
            self._queue.put(document, _now())
            self._wake.set()
        else:
            self._queue.withhold(document.job.ref)

    def seen(self, ref: JobRef, status: Observation | None) -> None:
        """The job's status has this report now; what was written there before is not written again."""
        report = status.outcome if status is not None and isinstance(status.outcome, Progress) else None
        self._queue.note_status(ref, report, not_before=self._after_interval())

    def gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._queue.drop(ref)

    async def run(self) -> None:
        """Write until cancelled; writes in progress end with this call."""
        async with asyncio.TaskGroup() as writes:
            while True:
                await self._slots.acquire()
                ref, entry, document = await self._next()
                writes.create_task(self._write(ref, entry, document), name=f"write back {ref}")
                self._not_before = max(self._not_before, _now()) + self._spacing_s

    async def _next(self) -> tuple[JobRef, Entry, JobProgress]:
        """The next job whose status would change, when it is time to write it."""
        while True:
            if (wait_s := self._not_before - _now()) > 0:
                await asyncio.sleep(wait_s)
            elif (turn := self._queue.take(_now())) is None:
                await self._wait_for_turn()
            else:
                ref, entry = turn
                document = entry.document
                assert document is not None  # noqa: S101 - only such entries have a turn
                if self._has_changed(ref, entry, document):
                    return ref, entry, document
                self._queue.done(ref, entry, document, not_before=self._after_interval())
                await asyncio.sleep(0)  # there may be thousands of these

    def _has_changed(self, ref: JobRef, entry: Entry, document: JobProgress) -> bool:
        try:
            return _has_changed(entry, document)
        except Exception as error:  # about one job; the others go on (decision 0005)
            log.error("status not compared", job=str(ref), **describe_fault(error))
            return False

    async def _wait_for_turn(self) -> None:
        due = self._queue.next_due()
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(0.0, due - _now())):
                await self._wake.wait()

    async def _write(self, ref: JobRef, entry: Entry, document: JobProgress) -> None:
        try:
            outcome, wait_s = await self._apply(ref, entry, document)
        except Exception as error:  # about one job; the others go on (decision 0005)
            log.error("status not written", job=str(ref), **describe_fault(error))
            outcome, wait_s = "Failed", REFUSED_RETRY_S
        finally:
            self._slots.release()
        self._count(outcome)
        not_before = max(_now() + wait_s, self._after_interval())
        self._queue.done(ref, entry, document, not_before=not_before, again=outcome not in _SETTLED)
        self._wake.set()

    async def _apply(self, ref: JobRef, entry: Entry, document: JobProgress) -> tuple[str, float]:
        """The outcome, and for how long the job is not written again, in seconds."""
        summary = _summary_of(document)
        try:
            uid = await self._client.apply(ref, summary)
        except ApiError as error:
            return await self._refused(ref, entry, error)
        except Unreachable:
            self._pause()
            return "Unreachable", 0.0
        self._pause_s = FIRST_PAUSE_S
        self._queue.release(ref.namespace)
        if uid != ref.uid:
            # A job of the same name has replaced it, and the watch has not shown that yet. kube-apiserver
            # (1.36) accepts no uid as a precondition here. The only remedy is to remove the summary again.
            await self._client.withdraw(ref)
            return "Recreated", REFUSED_RETRY_S
        entry.written, entry.may_own = fingerprint(summary), True
        return "Written", 0.0

    async def _refused(self, ref: JobRef, entry: Entry, error: ApiError) -> tuple[str, float]:
        if error.status == 403:
            if self._queue.hold(ref.namespace, until=_now() + FORBIDDEN_RETRY_S):
                log.warning("status not written", namespace=ref.namespace, missing_right=_right(ref))
            return "Forbidden", 0.0
        if error.status == 404:
            return "Gone", REFUSED_RETRY_S
        if error.status == 409 and error.message.startswith("Apply failed"):
            # Fields of ours that remain would be read as the other owner's.
            if entry.may_own:
                entry.may_own = not await self._client.withdraw(ref)
            return "OwnedByOther", REFUSED_RETRY_S
        if error.status in (400, 422):
            self._log_refusal(ref, error)
            return "Invalid", REFUSED_RETRY_S
        if error.status in (401, 429, 503, 504) or error.retry_after_s is not None:
            self._pause(error.retry_after_s)
        else:  # it may be the fault of that one object
            self._queue.hold(ref.namespace, until=_now() + FAILED_RETRY_S)
        if error.status in (409, 429, 503, 504) or error.retry_after_s is not None:
            return "Busy", 0.0
        self._log_refusal(ref, error)
        return "Failed", REFUSED_RETRY_S

    def _log_refusal(self, ref: JobRef, error: ApiError) -> None:
        """Log it unless the last one was the same: a CRD without the field refuses every job."""
        if (error.status, error.reason) != self._last_refusal:
            self._last_refusal = (error.status, error.reason)
            log.warning("status not written", job=str(ref), status=error.status, reason=error.reason)

    def _after_interval(self) -> float:
        return _now() + self._interval_s

    def _pause(self, at_least_s: float | None = None) -> None:
        """Write nothing for a while, longer each time."""
        wait_s = min(LONGEST_PAUSE_S, max(self._pause_s, at_least_s or 0.0))
        self._not_before = max(self._not_before, _now() + wait_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)


def _right(ref: JobRef) -> str:
    objects = own_objects(ref.resource)
    return f"patch on {objects.plural}/status in apiGroup {objects.api.split('/')[2]}"


def _is_writable(document: JobProgress) -> bool:
    """Whether it has a report of the current or last attempt that does not come from a status itself."""
    job, seen, reporting = document.job, document.observation, document.condition("Reporting")
    return (
        job.ref.resource in WITH_TRAINER_STATUS
        and not job.runs_elsewhere
        and document.updated_at is not None
        and (reporting is not None and reporting.status == "True")
        and (seen is None or seen.source != "status")
    )


def _summary_of(document: JobProgress) -> TrainerStatus:
    assert document.updated_at is not None  # noqa: S101 - by _is_writable
    return summarize(document, document.updated_at)


def _has_changed(entry: Entry, document: JobProgress) -> bool:
    """Whether the status would differ from what it is; a newer time alone is not written."""
    status, shown = entry.status, entry.written
    if status is not None and status.timestamp is not None:
        shown = fingerprint(summarize(status, status.timestamp))
        is_foreign = shown != entry.written  # written by an earlier process or by Kubeflow Trainer
        if is_foreign and document.updated_at is not None and status.timestamp > document.updated_at:
            return False
    return fingerprint(_summary_of(document)) not in (shown, _NOTHING)


def _now() -> float:
    return asyncio.get_running_loop().time()
