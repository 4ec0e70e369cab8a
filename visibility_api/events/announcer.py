"""Writes occurrences as Events of events.k8s.io/v1, by one replica, each once.

An Event's name follows from the job, the reason and the minute in which it began. kube-apiserver refuses a
name that is there, so none is written again after a restart or by another replica. The right to create is all
that is needed. Occurrences that no process has witnessed are announced while an Event of that time would
still be there: kube-apiserver keeps Events for an hour by default."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import msgspec
import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.token_bucket import Bucket, Buckets
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kinds import own_objects
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.kube.lease import micro_time
from visibility_api.workloads.kind import WatchedObjects

from .occurrences import Occurrence, occurrences

log = structlog.get_logger("visibility.events")

CONTROLLER = "visibility.trainer.kubeflow.org/visibility-api"
EVENTS = "/apis/events.k8s.io/v1"
UNWITNESSED_FOR = timedelta(minutes=45)  # less than the hour that kube-apiserver keeps Events
MAX_WAITING = 4096  # occurrences; then the oldest are dropped
WAITS_AT_MOST_S = 600.0  # of an occurrence; an older one is dropped, because its Event would look new
EVENTS_PER_S, EVENT_BURST = 5.0, 50.0  # of all jobs; each is a write to etcd
# Of one job, as client-go's own limit (tools/record/events_cache.go): a job that stalls each minute.
PER_JOB_S, PER_JOB_BURST, MAX_JOBS = 1 / 300, 12.0, 4096
POLL_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
DRY_RUN = "?dryRun=All"


_Key = tuple[JobRef, str]  # and the reason
_Queue = OrderedDict[_Key, tuple[Occurrence, float]]  # with when it came


class Announcer:
    """Documents go to `changed`; `run` writes. No caller waits for a write.

    `may_write`: whether this replica still owns the jobs. While it does not, occurrences wait. `count` is
    called with each outcome: Created, Known, Limited, Late, Dropped, Forbidden, Refused or Gone.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        instance: str,
        may_write: Callable[[], bool],
        regarding: Callable[[JobRef], WatchedObjects] = lambda ref: own_objects(ref.resource),
        count: Callable[[str], None] = lambda _outcome: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`instance` names this process. `regarding`: the collection that has a job."""
        self._client = client
        self._instance = instance[:128]
        self._may_write = may_write
        self._regarding = regarding
        self._count = count
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._latest: dict[JobRef, JobProgress] = {}
        self._waiting: OrderedDict[str, _Queue] = OrderedDict()  # by namespace, the next to be served first
        self._wake = asyncio.Event()
        self._bucket: Bucket | None = None  # of all jobs; full when the first is written
        self._of_jobs = Buckets(per_s=PER_JOB_S, burst=PER_JOB_BURST, most=MAX_JOBS)
        self._pause_s = FIRST_PAUSE_S
        self._last_refusal: tuple[str, int] = ("", 0)

    @property
    def waiting(self) -> int:
        """The number of occurrences that wait to be written."""
        return sum(map(len, self._waiting.values()))

    def changed(self, document: JobProgress) -> None:
        """A job's document was published."""
        ref = document.job.ref
        before, self._latest[ref] = self._latest.get(ref), document
        for each in occurrences(before, document):
            if not each.is_witnessed and self._now() - each.since > UNWITNESSED_FOR:
                continue
            queue, key = self._waiting.setdefault(ref.namespace, OrderedDict()), (ref, each.reason)
            if key not in queue and not self._may_wait(ref):
                continue
            queue[key] = (each, self._clock())
            self._wake.set()

    def _may_wait(self, ref: JobRef) -> bool:
        """Whether one more of this job may wait. The oldest of the namespace with most may go for it."""
        if not self._of_jobs.of(ref, self._clock()).take(self._clock()):
            self._count("Limited")
            return False
        if self.waiting >= MAX_WAITING:
            max(self._waiting.values(), key=len).popitem(last=False)
            self._count("Dropped")
        return True

    def gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._latest.pop(ref, None)

    async def run(self) -> None:
        """Write what is waiting until cancelled, while this replica may."""
        while True:
            await self._wake.wait()
            while self.waiting:
                self._drop_late()
                if not self.waiting or not self._may_write():
                    await self._sleep(POLL_S)
                    continue
                await self._await_turn()
                await self._announce_next()
            self._waiting.clear()
            self._wake.clear()

    def _drop_late(self) -> None:
        oldest = self._clock() - WAITS_AT_MOST_S
        for queue in self._waiting.values():
            while queue and next(iter(queue.values()))[1] < oldest:
                queue.popitem(last=False)
                self._count("Late")

    async def _await_turn(self) -> None:
        if self._bucket is None:
            self._bucket = Bucket(per_s=EVENTS_PER_S, burst=EVENT_BURST, now=self._clock())
        while not self._bucket.take(self._clock()):
            await self._sleep(self._bucket.wait_s(self._clock()))

    def _take(self) -> tuple[_Queue, _Key, Occurrence, float]:
        """The oldest of the next namespace that has any."""
        while True:
            namespace, queue = self._waiting.popitem(last=False)
            if queue:
                self._waiting[namespace] = queue
                key, (occurrence, at) = queue.popitem(last=False)
                return queue, key, occurrence, at

    async def _announce_next(self) -> None:
        queue, key, occurrence, at = self._take()
        try:
            outcome = await self._announce(occurrence)
        except ApiError as error:
            outcome = self._refused(occurrence, error)
        except ClusterError:
            outcome = ""
        except Exception as error:  # about one job; the others go on (decision 0005)
            log.error("event not written", job=str(occurrence.ref), **describe_fault(error))
            outcome = "Refused"
        if outcome:
            self._pause_s = FIRST_PAUSE_S
            self._count(outcome)
            return
        if key not in queue:  # not when something newer of the same kind has come meanwhile
            queue[key] = (occurrence, at)
            queue.move_to_end(key, last=False)
        await self._sleep(self._pause_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)

    def _refused(self, occurrence: Occurrence, error: ApiError) -> str:
        """The outcome; "" when it is to be tried again."""
        if error.status in (409, 429) or error.status >= 500 or error.retry_after_s is not None:
            return ""
        if error.status == 404:
            return "Gone"
        if self._last_refusal != (occurrence.ref.namespace, error.status):
            self._last_refusal = (occurrence.ref.namespace, error.status)
            log.warning(
                "event not written", job=str(occurrence.ref), status=error.status, reason=error.reason
            )
        return "Forbidden" if error.status == 403 else "Refused"

    async def _announce(self, occurrence: Occurrence) -> str:
        folder = f"{EVENTS}/namespaces/{quote(occurrence.ref.namespace)}/events"
        if not occurrence.is_witnessed:
            # Who has seen less reads the beginning from another report, up to a minute apart.
            for minutes in (-1, 1):
                beside = replace(occurrence, since=occurrence.since + timedelta(minutes=minutes))
                if not await self._create(folder + DRY_RUN, beside):
                    return "Known"
        return "Created" if await self._create(folder, occurrence) else "Known"

    async def _create(self, path: str, occurrence: Occurrence) -> bool:
        """Whether there was no Event of this name."""
        try:
            await self._client.post(path, msgspec.json.encode(self._event(occurrence)))
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return False
            raise
        return True

    def _event(self, occurrence: Occurrence) -> dict[str, object]:
        ref, objects = occurrence.ref, self._regarding(occurrence.ref)
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": occurrence.event_name, "namespace": ref.namespace},
            "eventTime": micro_time(occurrence.since),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Evaluate",
            "reason": occurrence.reason,
            "type": occurrence.type,
            "note": occurrence.note,
            "regarding": {
                "apiVersion": objects.api_version,
                "kind": objects.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
        }
