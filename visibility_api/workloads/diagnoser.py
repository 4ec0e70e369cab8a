"""Has the ranks of a job read when a stall begins, and at a request: once a minute a job at most."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from msgspec.structs import replace

from visibility_api.diagnosis.judging import NOT_READABLE, diagnose
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.errors import ApiError

from .pod_lists import NOT_LISTED, PodLists
from .rank_states import NO_RIGHT, RankStates
from .training_pods import Refusals, find_pods, may_read, progress_path

log = structlog.get_logger("visibility.diagnosis")

WITHIN_S = 60.0  # of one job, all together
APART_S = 60.0  # of one job
JOBS_AT_A_TIME = 4
MAX_WAITING = 10_000  # jobs; others are asked when their documents change next
NO_PODS = "No rank could be read: the job has no pod that trains."


class Diagnoser:
    """Documents go to `changed`, requests to `request`; `run` has the ranks read, namespaces in turn.

    `find` returns the job's document now. `found` is called with each diagnosis, and whether it is told.
    `capture` None: no source may exec.
    """

    def __init__(
        self,
        lists: PodLists,
        capture: RankStates | None,
        *,
        find: Callable[[JobRef], JobProgress | None],
        found: Callable[[JobRef, Diagnosis, bool], None],
        refusals: Refusals | None = None,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._lists = lists
        self._capture = capture
        self._find = find
        self._found = found
        self._clock = clock
        self._refusals = refusals if refusals is not None else Refusals(clock)
        self._queue: FairQueue[JobRef] = FairQueue(at_a_time=JOBS_AT_A_TIME, per_node=JOBS_AT_A_TIME)
        self._read_at: dict[JobRef, float] = {}  # when what was found was told last, by the loop's clock
        self._looked_at: dict[JobRef, float] = {}  # when a suspicion had it read last
        self._reading: set[JobRef] = set()
        self._requested: set[JobRef] = set()
        self._suspected: set[JobRef] = set()
        self._changed = asyncio.Event()

    def changed(self, document: JobProgress) -> None:
        """A job's document was published."""
        ref = document.job.ref
        if is_due(document) and self.wait_s(ref) <= 0 and self._may_begin(ref):
            self._push(ref)

    def suspect(self, ref: JobRef, still_s: float) -> None:
        """The run has stood still for so long. What is found is told only if it is a hang."""
        last = max(self._read_at.get(ref, -math.inf), self._looked_at.get(ref, -math.inf))
        if self._clock() - last >= max(APART_S, still_s / 2) and self._may_begin(ref):
            self._suspected.add(ref)
            self._push(ref)

    def request(self, ref: JobRef) -> float:
        """Read the ranks of this job now. Returns 0, or how long it has to wait: then nothing is done.

        One that waits for its turn, or is being read, is not read twice: what is found answers the request.
        """
        if self._find(ref) is None:
            return 0.0  # another replica has not heard yet that it is gone
        wait_s = self.wait_s(ref)
        if wait_s <= 0 and self._capture is not None:
            self._requested.add(ref)
            self._push(ref)
        return max(0.0, wait_s)

    def wait_s(self, ref: JobRef) -> float:
        """Until it may be read again."""
        last = self._read_at.get(ref)
        return 0.0 if last is None else last + APART_S - self._clock()

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._queue.remove(ref)
        for times in (self._read_at, self._looked_at):
            times.pop(ref, None)
        self._requested.discard(ref)
        self._suspected.discard(ref)

    async def run(self) -> None:
        """Read what is due until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                ref = self._queue.pop()
                if ref is None:
                    await self._changed.wait()
                    continue
                self._reading.add(ref)
                group.create_task(self._read(ref), name="diagnosis")

    def _may_begin(self, ref: JobRef) -> bool:
        """Without a request."""
        has_right = self._capture is not None and ref.namespace not in self._refusals
        return has_right and len(self._queue) < MAX_WAITING

    def _push(self, ref: JobRef) -> None:
        if ref not in self._reading:
            self._queue.push(ref, namespace=ref.namespace, node=None)
            self._changed.set()

    async def _read(self, ref: JobRef) -> None:
        try:
            await self._diagnose(ref)
        except NOT_LISTED as error:
            log.debug("pods not listed for a diagnosis", job=str(ref), error=type(error).__name__)
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("job not diagnosed", job=str(ref), **describe_fault(error))
        finally:
            self._requested.discard(ref)
            self._suspected.discard(ref)
            self._reading.discard(ref)
            self._queue.release(ref)
            self._changed.set()

    async def _diagnose(self, ref: JobRef) -> None:
        document, found = self._find(ref), None
        if document is None or self._capture is None:
            return
        is_wanted = self._is_wanted(document)
        if not (is_wanted or (ref in self._suspected and may_read(document))):
            return
        try:
            async with asyncio.timeout(2 * WITHIN_S):
                found = await self._ask(self._capture, document)
        finally:
            self._end(ref, found, is_wanted=is_wanted)

    def _is_wanted(self, document: JobProgress) -> bool:
        return document.job.ref in self._requested or is_due(document)

    def _end(self, ref: JobRef, found: Diagnosis | None, *, is_wanted: bool) -> None:
        """A request may have come in the meantime, or the stall; or the job is gone."""
        document = self._find(ref)
        if document is None:
            return
        is_wanted = is_wanted or self._is_wanted(document)
        says_more = found is not None and document.stall is not None and not found.is_vague
        is_told = found is not None and (is_wanted or found.is_hang or says_more)
        is_refused = ref.namespace in self._refusals
        times = self._read_at if is_told or (is_wanted and not is_refused) else self._looked_at
        times[ref] = self._clock()
        if found is not None:
            self._found(ref, replace(found, is_requested=ref in self._requested), is_told)

    async def _ask(self, capture: RankStates, document: JobProgress) -> Diagnosis | None:
        """None: there are no pods, or no right to exec there, and nobody has requested it."""
        ref, at = document.job.ref, datetime.now(UTC)
        pods = await find_pods(self._lists, document)
        if not pods:
            is_asked = ref in self._requested
            return Diagnosis(at=at, reason=NOT_READABLE, message=NO_PODS) if is_asked else None
        try:
            found = await capture.diagnose(
                ref.namespace,
                pods,
                progress_path(document),
                within_s=WITHIN_S,
                is_requested=ref in self._requested,
            )
        except ApiError as error:
            if error.status != 403:
                raise
            self._refusals.note(ref.namespace, is_refused=True)
            unread = [replace(pod, unread=NO_RIGHT) for pod in pods]
            return diagnose(unread, at) if ref in self._requested else None
        self._refusals.note(ref.namespace, is_refused=False)
        return found


def is_due(document: JobProgress) -> bool:
    """Whether the job has stalled, and its ranks were not read since."""
    stalled, last = document.stall, document.diagnosis
    is_new = stalled is not None and (last is None or last.at < stalled.since)
    return is_new and may_read(document)
