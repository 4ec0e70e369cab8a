"""The cause of a failure, by the end of the log of the container that failed."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from visibility_api.causes.reading import MAX_LINES, find_cause
from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient

from .log_end import LogEnds, place_of


class FailureLogs:
    """Reads them through kube-apiserver, and keeps nothing of them. `timeout_s`: of one request."""

    def __init__(self, client: KubeClient, timeout_s: float) -> None:
        self._logs = LogEnds(client, timeout_s=timeout_s)

    async def explain(self, ref: JobRef, failure: Failure) -> Failure:
        """The failure with its cause; as it is where none is known. Raises ApiError, Unreachable."""
        place = place_of(ref.namespace, failure, None, has_ended=False, previous=None)
        if place is None:
            return failure
        end = await self._logs.read(place, MAX_LINES)
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
