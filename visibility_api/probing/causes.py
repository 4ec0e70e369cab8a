"""The end of the log of a container that failed: the cause of the failure, and what is kept of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cachetools import LRUCache
from msgspec.structs import replace

from visibility_api.causes.reading import MAX_LINES, find_cause
from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ClusterError

from .log_end import LogEnd, LogEnds, place_of

KEPT_LINES = 200


class FailureLogs:
    """Reads them through kube-apiserver. `timeout_s`: of a request; `kept_bytes`: of the last ends together.

    They are kept for `last_lines`: a Job deletes its pods when it fails.
    """

    def __init__(self, client: KubeClient, timeout_s: float, *, kept_bytes: int = 0) -> None:
        self._logs = LogEnds(client, timeout_s=timeout_s)
        self._kept: LRUCache[tuple[JobRef, str], LogEnd] = LRUCache(
            kept_bytes, getsizeof=lambda end: sum(len(line) + 60 for line in end.lines) + 200
        )

    async def explain(self, ref: JobRef, failure: Failure) -> Failure:
        """The failure with its cause; as it is where none is known. Raises ApiError, Unreachable."""
        place = place_of(ref.namespace, failure, None, has_ended=False, previous=None)
        if place is None:
            return failure
        end = await self._logs.read(place, MAX_LINES)
        with suppress(ValueError):  # it is larger than all that may be kept
            self._kept[ref, place.pod_name] = end
        # Hostile lines take up to 50 ms.
        cause = await asyncio.to_thread(find_cause, end.lines)
        if cause is None:
            return failure
        return replace(
            failure,
            cause_class=cause.name,
            cause=harmless(cause.says),
            hint=cause.hint,
            is_cascade=cause.is_cascade,
            rank=cause.rank,
            is_retryable=failure.is_retryable if cause.is_retryable is None else cause.is_retryable,
        )

    async def last_lines(self, document: JobProgress) -> tuple[LogEnd, str | None] | None:
        """The end of the log of what failed, else of rank 0, and the line that says the cause.

        None where there is no pod any more, or its node does not answer.
        """
        job = document.job
        place = place_of(
            job.ref.namespace, document.failure, job.rank0, has_ended=job.phase.is_final, previous=None
        )
        if place is None:
            return None
        try:
            end = await self._logs.read(place, KEPT_LINES)
        except ClusterError:
            # Of a pod that goes on, another run has printed what was kept.
            kept = self._kept.get((job.ref, place.pod_name)) if document.failure is not None else None
            if kept is None:
                return None
            end = kept
        cause = await asyncio.to_thread(find_cause, end.lines) if document.failure is not None else None
        is_cut = end.is_cut or len(end.lines) > KEPT_LINES
        shown = LogEnd(place=end.place, lines=end.lines[-KEPT_LINES:], is_cut=is_cut)
        return shown, None if cause is None else cause.line
