"""`--write-back`: a summary of each job's progress in `TrainJob.status.trainerStatus`, for who looks there.

Server-side apply without force: what Kubeflow Trainer's own `trainer-status` has written stays as it is.
docs/write-back.md says what this costs and when to use it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.job import JobRef, TrainingJob
from visibility_api.progress.summary import JobProgress

from .client import Query
from .collections import TRAINER_API
from .errors import ApiError, ClusterError, Unreachable
from .objects import TrainerStatus
from .trainer_status import fingerprint, summarize
from .write_queue import Entry, WriteQueue

log = structlog.get_logger("visibility.write_back")

FIELD_MANAGER = "trainjob-visibility"
INTERVAL_S = 30.0  # between two writes to one job, at least
JITTER = (
    0.1  # intervals are lengthened by up to this share: of two replicas one comes first and spares the other
)
WRITES_PER_S = 20.0  # to all jobs: each is a write to etcd, and some ms of kube-apiserver's CPU
CONCURRENCY = 4
LEFT_ALONE_S = 600.0  # a job that cannot be written: who owns a field seldom gives it up
FORBIDDEN_S = 300.0  # a namespace without the right
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # while kube-apiserver has trouble of its own

RESOURCE = "trainjobs"
MISSING_RIGHT = "patch on trainjobs/status in apiGroup trainer.kubeflow.org"
_QUERY = (("fieldManager", FIELD_MANAGER), ("force", "false"))
_HEADERS = {
    "Content-Type": "application/apply-patch+yaml",  # JSON is YAML
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
}


_NOTHING = fingerprint(TrainerStatus())  # no number at all: not worth a write
_SETTLED = ("Written", "Recreated", "Gone")  # outcomes after which only something new is a reason to write


class Patcher(Protocol):
    """What of a Kubernetes client is needed here."""

    async def patch(self, path: str, body: bytes, *, query: Query, headers: Mapping[str, str]) -> bytes:
        """The body of a 2xx answer. Raises ApiError, Unreachable."""
        ...


class _Meta(msgspec.Struct):
    uid: str = ""


class _Written(msgspec.Struct):
    metadata: _Meta


class WriteBack:
    """Writes what `changed` tells of, as far as `run` is under way. Nothing here ever waits for a write.

    `count` is told of each attempt: Written, Recreated, OwnedByOther, Forbidden, Gone, Invalid, Busy,
    Unreachable or Failed.
    """

    def __init__(
        self,
        client: Patcher,
        *,
        count: Callable[[str], None] = lambda _outcome: None,
        interval_s: float = INTERVAL_S,
        writes_per_s: float = WRITES_PER_S,
    ) -> None:
        self._client = client
        self._count = count
        self._interval_s = interval_s
        self._spacing_s = 1 / writes_per_s
        self._queue = WriteQueue()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._open_at = 0.0  # loop time of the earliest next write
        self._pause_s = FIRST_PAUSE_S
        self._last_refusal = (0, "")

    def __len__(self) -> int:
        """Jobs that wait to be written."""
        return len(self._queue)

    def changed(self, document: JobProgress) -> None:
        """This is published of a job now."""
        if _is_writable(document):
            self._queue.put(document, _now())
            self._wake.set()
        else:
            self._queue.silence(document.job.ref)

    def seen(self, job: TrainingJob) -> None:
        """The cluster shows this job so. What another replica has just written needs no second write."""
        self._queue.note_status(job.ref, job.trainer_status, not_before=self._after_interval())

    def gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._queue.drop(ref)

    async def run(self) -> None:
        """Write for ever; writes under way end with this call."""
        async with asyncio.TaskGroup() as writes:
            while True:
                await self._slots.acquire()
                ref, entry, said = await self._next()
                writes.create_task(self._write(ref, entry, said), name=f"write back {ref}")
                self._open_at = max(self._open_at, _now()) + self._spacing_s

    async def _next(self) -> tuple[JobRef, Entry, JobProgress]:
        """The next job whose status would change, when it is time to write it."""
        while True:
            if (wait_s := self._open_at - _now()) > 0:
                await asyncio.sleep(wait_s)
            elif (turn := self._queue.take(_now())) is None:
                await self._wait_for_turn()
            else:
                ref, entry = turn
                said = entry.document
                assert said is not None  # noqa: S101 - only such entries have a turn
                if self._has_news(ref, entry, said):
                    return ref, entry, said
                self._queue.done(ref, entry, said, not_before=self._after_interval())
                await asyncio.sleep(0)  # there may be thousands of these

    def _has_news(self, ref: JobRef, entry: Entry, said: JobProgress) -> bool:
        try:
            return _has_news(entry, said)
        except Exception as error:  # one job's trouble, whatever it is
            log.error("status not compared", job=str(ref), **describe_fault(error))
            return False

    async def _wait_for_turn(self) -> None:
        due = self._queue.next_due()
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(0.0, due - _now())):
                await self._wake.wait()

    async def _write(self, ref: JobRef, entry: Entry, said: JobProgress) -> None:
        try:
            outcome, wait_s = await self._apply(ref, entry, said)
        except Exception as error:  # one job's trouble, whatever it is
            log.error("status not written", job=str(ref), **describe_fault(error))
            outcome, wait_s = "Failed", LEFT_ALONE_S
        finally:
            self._slots.release()
        self._count(outcome)
        not_before = max(_now() + wait_s, self._after_interval())
        self._queue.done(ref, entry, said, not_before=not_before, again=outcome not in _SETTLED)
        self._wake.set()

    async def _apply(self, ref: JobRef, entry: Entry, said: JobProgress) -> tuple[str, float]:
        """What came of it, and how long the job is left alone after it at least."""
        summary = _summary_of(said)
        try:
            uid = await self._patch(ref, summary)
        except ApiError as error:
            return await self._refused(ref, entry, error)
        except Unreachable:
            self._pause()
            return "Unreachable", 0.0
        self._pause_s = FIRST_PAUSE_S
        self._queue.release(ref.namespace)
        if uid != ref.uid:
            # A job of the same name took its place before we heard of it. On this path kube-apiserver (1.36)
            # takes no uid for a precondition: all that can be done is to take the numbers away again.
            await self._withdraw(ref)
            return "Recreated", LEFT_ALONE_S
        entry.written, entry.may_own = fingerprint(summary), True
        return "Written", 0.0

    async def _refused(self, ref: JobRef, entry: Entry, error: ApiError) -> tuple[str, float]:
        if error.status == 403:
            if self._queue.hold(ref.namespace, until=_now() + FORBIDDEN_S):
                log.warning("status not written", namespace=ref.namespace, missing_right=MISSING_RIGHT)
            return "Forbidden", 0.0
        if error.status == 404:
            return "Gone", LEFT_ALONE_S
        if error.status == 409 and error.message.startswith("Apply failed"):
            # What is left of ours beside the other's numbers would be read as theirs.
            if entry.may_own:
                entry.may_own = not await self._withdraw(ref)
            return "OwnedByOther", LEFT_ALONE_S
        if error.status in (400, 422):
            self._tell(ref, error)
            return "Invalid", LEFT_ALONE_S
        self._pause(error.retry_after_s)
        if error.status in (409, 429, 503, 504) or error.retry_after_s is not None:
            return "Busy", 0.0
        self._tell(ref, error)
        return "Failed", LEFT_ALONE_S

    def _tell(self, ref: JobRef, error: ApiError) -> None:
        """Once as long as it stays the same: a CRD that does not take the field says so of every job."""
        if (error.status, error.reason) != self._last_refusal:
            self._last_refusal = (error.status, error.reason)
            log.warning("status not written", job=str(ref), status=error.status, reason=error.reason)

    async def _withdraw(self, ref: JobRef) -> bool:
        """Take away what is ours alone of the status; whether that worked."""
        with suppress(ClusterError, msgspec.MsgspecError):
            await self._patch(ref, None)
            return True
        return False

    async def _patch(self, ref: JobRef, summary: TrainerStatus | None) -> str:
        """The uid of the job that was written. Raises ClusterError."""
        body = {
            "apiVersion": TRAINER_API.removeprefix("/apis/"),
            "kind": "TrainJob",
            "metadata": {"namespace": ref.namespace, "name": ref.name},
            "status": {} if summary is None else {"trainerStatus": summary},
        }
        path = f"{TRAINER_API}/namespaces/{ref.namespace}/{RESOURCE}/{ref.name}/status"
        answer = await self._client.patch(path, msgspec.json.encode(body), query=_QUERY, headers=_HEADERS)
        return msgspec.json.decode(answer, type=_Written).metadata.uid

    def _after_interval(self) -> float:
        return _now() + self._interval_s * random.uniform(1, 1 + JITTER)

    def _pause(self, at_least_s: float | None = None) -> None:
        """Write to nobody for a while, longer each time."""
        wait_s = min(LONGEST_PAUSE_S, max(self._pause_s, at_least_s or 0.0))
        self._open_at = max(self._open_at, _now() + wait_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)


def _is_writable(document: JobProgress) -> bool:
    """Only what the attempt that runs now, or ran last, has reported; never a status's own words."""
    job, seen, reporting = document.job, document.observation, document.condition("Reporting")
    return (
        job.ref.resource == RESOURCE
        and not job.runs_elsewhere
        and document.updated_at is not None
        and (reporting is not None and reporting.status == "True")
        and (seen is None or seen.source != "status")
    )


def _summary_of(document: JobProgress) -> TrainerStatus:
    assert document.updated_at is not None  # noqa: S101 - by _is_writable
    return summarize(document, document.updated_at)


def _has_news(entry: Entry, said: JobProgress) -> bool:
    """Whether the status would say something else than it does; a time alone is not worth a write."""
    status, shown = entry.status, entry.written
    if status is not None and status.timestamp is not None:
        shown = fingerprint(summarize(status, status.timestamp))
        if shown != entry.written and said.updated_at is not None and status.timestamp > said.updated_at:
            return False  # another replica, or Kubeflow Trainer, knew more
    return fingerprint(_summary_of(said)) not in (shown, _NOTHING)


def _now() -> float:
    return asyncio.get_running_loop().time()
