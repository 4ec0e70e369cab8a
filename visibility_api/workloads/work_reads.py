"""Has the files read in which ranks say how they work, in rounds: which one is slower than the others.

What it costs is bounded by pods a second, whatever there is to read: docs/diagnose.md says what that is.
Namespaces take turns, so a round of one with many jobs takes longer. Two with very large or slow jobs may
delay the others by WITHIN_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from zlib import crc32

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.errors import ApiError
from visibility_api.reports.ranks import Ranks

from .pod_lists import NOT_LISTED, PodLists
from .rank_states import RankStates
from .training_pods import Refusals, find_pods, may_read, progress_path

log = structlog.get_logger("visibility.diagnosis")

ROUND_S = 300.0  # from the beginning of a namespace's round to the next
SOON_S = 100.0  # until a job is read again in which a rank was slow
JOBS_AT_A_TIME = 4
APART_S = 0.25  # between two pods of a job: 16 pods a second in all
WITHIN_S = 600.0  # of one job
MAX_SOON = 1000  # jobs


class WorkReads:
    """`jobs` are all there are; `rounds_apart` says after how many rounds a job is read again: 0 for never.

    `worked` is called with what was read, and returns whether to read it again soon.
    """

    def __init__(
        self,
        lists: PodLists,
        reader: RankStates,
        refusals: Refusals,
        *,
        jobs: Callable[[], Iterable[JobRef]],
        find: Callable[[JobRef], JobProgress | None],
        rounds_apart: Callable[[JobRef], int],
        worked: Callable[[JobRef, Ranks], bool],
    ) -> None:
        self._lists = lists
        self._reader = reader
        self._refusals = refusals
        self._jobs = jobs
        self._find = find
        self._rounds_apart = rounds_apart
        self._worked = worked
        self._queue: FairQueue[JobRef] = FairQueue(at_a_time=JOBS_AT_A_TIME, per_node=JOBS_AT_A_TIME)
        self._reading: set[JobRef] = set()
        self._soon: set[JobRef] = set()

    async def run(self) -> None:
        """Until cancelled."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(JOBS_AT_A_TIME):
                group.create_task(self._work(changed), name="work of ranks")
            for tick in count(1):
                await asyncio.sleep(SOON_S)
                soon, self._soon = self._soon, set()
                if tick % int(ROUND_S / SOON_S) == 0:
                    await self._line_up_round(tick)
                for ref in soon:
                    self._line_up(ref)
                changed.set()

    async def _line_up_round(self, tick: int) -> None:
        """Those whose turn it is; one that waits since an earlier round keeps its place."""
        number = tick // int(ROUND_S / SOON_S)
        async for ref in in_slices(self._jobs()):
            apart = self._rounds_apart(ref)
            if apart and (number + crc32(ref.uid.encode())) % apart == 0:
                self._line_up(ref)

    def _line_up(self, ref: JobRef) -> None:
        if ref.namespace not in self._refusals and ref not in self._reading:
            self._queue.push(ref, namespace=ref.namespace, node=None)

    async def _work(self, changed: asyncio.Event) -> None:
        while True:
            ref = self._queue.pop()
            if ref is None:
                changed.clear()
                await changed.wait()
                continue
            self._reading.add(ref)
            try:
                async with asyncio.timeout(2 * WITHIN_S):
                    await self._read(ref)
            except NOT_LISTED as error:
                log.debug("work of ranks not read", job=str(ref), error=type(error).__name__)
            except Exception as error:  # of one job: docs/decisions/0005
                log.error("work of ranks not read", job=str(ref), **describe_fault(error))
            finally:
                self._reading.remove(ref)
                self._queue.release(ref)
                changed.set()

    async def _read(self, ref: JobRef) -> None:
        document = self._find(ref)
        if document is None or not may_read(document) or not self._rounds_apart(ref):
            return
        if ref.namespace in self._refusals:
            return
        pods = [pod for pod in await find_pods(self._lists, document) if not pod.not_running]
        try:
            found = await self._reader.read_work(
                ref.namespace, pods, progress_path(document), within_s=WITHIN_S, apart_s=APART_S
            )
        except ApiError as error:
            self._refusals.note(ref.namespace, is_refused=error.status == 403)
            raise
        if self._worked(ref, found) and len(self._soon) < MAX_SOON:
            self._soon.add(ref)
