"""The pods of jobs that run on accelerators, with their nodes: for metrics, which are joined by pod.

They are not watched (`pod_lists`). Those of a job are listed after its metrics were asked for, and again with
its next attempt or after ten minutes: one job at a time, five a second, namespaces in turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec
import structlog
from cachetools import LRUCache

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.fair_queue import FairQueue
from visibility_api.jobs.job import JobRef, Phase, TrainingJob

from .pod_lists import NOT_LISTED, TIMEOUT_S, PodLists
from .replicas import ENDED

log = structlog.get_logger("visibility.server")

BETWEEN_S, IDLE_S = 0.2, 1.0
AGAIN_S, AGAIN_AFTER_FAILURE_S = 600.0, 60.0
MAX_OF_JOB, MAX_KEPT = 1024, 131_072  # pods

Pods = Sequence[tuple[str, str]]  # names, and their nodes


class _Kept(msgspec.Struct):
    attempt: str
    until: float
    pods: Pods = ()


class JobPods:
    """Of all jobs."""

    def __init__(self, lists: PodLists, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lists = lists
        self._clock = clock
        self._kept: LRUCache[JobRef, _Kept] = LRUCache(MAX_KEPT, getsizeof=lambda kept: 1 + len(kept.pods))
        self._queue: FairQueue[JobRef] = FairQueue(at_a_time=1, per_node=1)
        self._wanted: dict[JobRef, str] = {}  # with their attempts

    def of(self, job: TrainingJob) -> Pods:
        """As they were listed last; nothing of one that does not run, or whose pods are not known yet."""
        if job.phase is not Phase.RUNNING or not job.accelerators or job.rank0 is None:
            return ()
        attempt, kept = job.rank0.attempt, self._kept.get(job.ref)
        if kept is None or kept.attempt != attempt or kept.until < self._clock():
            self._wanted[job.ref] = attempt
            self._queue.push(job.ref, namespace=job.ref.namespace, node=None)
        return kept.pods if kept is not None and kept.attempt == attempt else ()

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._kept.pop(ref, None)
        self._wanted.pop(ref, None)
        self._queue.remove(ref)

    async def run(self) -> None:
        """List what is wanted, until cancelled."""
        while True:
            if (ref := self._queue.pop()) is None:
                await asyncio.sleep(IDLE_S)
                continue
            await self._list(ref, self._wanted.pop(ref))
            self._queue.release(ref)
            await asyncio.sleep(BETWEEN_S)

    async def _list(self, ref: JobRef, attempt: str) -> None:
        found, again_s = list[tuple[str, str]](), AGAIN_S
        try:
            async with asyncio.timeout(TIMEOUT_S), aclosing(self._lists.read(ref)) as pods:
                async for pod, _ in pods:
                    if pod.status.phase not in ENDED and len(found) < MAX_OF_JOB:
                        found.append((pod.metadata.name, pod.spec.node_name or ""))
        except NOT_LISTED:
            again_s = AGAIN_AFTER_FAILURE_S
        except Exception as error:  # of one job: docs/decisions/0005
            log.error("pods of a job not listed", job=str(ref), **describe_fault(error))
            again_s = AGAIN_AFTER_FAILURE_S
        self._kept[ref] = _Kept(attempt, self._clock() + again_s, tuple(found))
