"""The `logs` source: the end of the rank-0 container's log, through kube-apiserver and the kubelet.

Needs `get` on pods/log and nothing of the image: for containers that may not be exec'd into, or that only
print (docs/logs.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from cachetools import TTLCache

from visibility_api.jobs.job import JobRef, Rank0
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, TooLarge, Unreachable
from visibility_api.reports.document import Outcome, Refused, RetryClass
from visibility_api.reports.log_tail import TailReader

from .readings import Readings

log = structlog.get_logger("visibility.probe")

# `tailLines` counts records, and a CRI ends one after 16 KiB whether the line is over or not: a progress bar
# that is redrawn without a line end fills records. `limitBytes` keeps the beginning of what `tailLines`
# selects, so an answer of that size lacks the newest lines, and fewer are requested (ReadLogs in
# https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/cri-client/pkg/logs/logs.go).
MANY_LINES = 200
FEW_LINES = 7  # of 16 KiB and a time each: within the limit
MAX_ANSWER_BYTES = 128 * 1024
SHORT_ANSWER_BYTES = 4 * 1024  # from few lines: they are short again, so more may be requested
MIN_PART_BYTES = 8 * 1024  # no CRI writes smaller parts of a line
MAX_REMEMBERED = 20_000  # pods
REMEMBERED_S = 7200.0  # after a probe; a log that is read less often is read anew, from its end


@dataclass(slots=True)
class _Memory:
    """Of one pod's container, between probes."""

    attempt: str = ""
    reader: TailReader = field(default_factory=TailReader)
    lines: int = MANY_LINES


class LogsSource:
    """Reads the last lines of the log. `timeout_s` bounds a probe, however many requests it makes."""

    name = "logs"

    def __init__(
        self,
        client: KubeClient,
        *,
        timeout_s: float,
        readings: Readings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._readings = Readings() if readings is None else readings
        # By pod. The source is not notified of pods that have gone: they are just not probed any more.
        self._memories: TTLCache[str, _Memory] = TTLCache(MAX_REMEMBERED, REMEMBERED_S, timer=clock)

    def __len__(self) -> int:
        """Pods whose log is remembered."""
        return len(self._memories)

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome:
        """What the log of the present container run shows."""
        memory = self._memories.pop(rank0.pod_uid, None)  # none stays of a reading that is left half way
        if memory is None or memory.attempt != rank0.attempt:
            memory = _Memory(attempt=rank0.attempt)
        outcome = await self._read(ref, rank0, memory, previous=False)
        self._memories[rank0.pod_uid] = memory  # its time begins anew
        return outcome

    async def final_read(self, ref: JobRef, rank0: Rank0) -> Outcome:
        """What the log of the last container run to end shows. `rank0`: as it is now, after that end.

        The kubelet keeps the log of one run before the one that runs now; of a container that waits to be
        restarted, or is not restarted, it is the log itself.
        """
        return await self._read(ref, rank0, _Memory(), previous=rank0.is_running)

    async def tail(self, ref: JobRef, pod_name: str, container_name: str) -> bytes | Refused:
        """The end of the log of another container of this job, with the kubelet's times; never raises."""
        return await self._tail(ref, pod_name, container_name, _Memory(), previous=False)

    async def _read(self, ref: JobRef, rank0: Rank0, memory: _Memory, *, previous: bool) -> Outcome:
        data = await self._tail(ref, rank0.pod_name, rank0.container_name, memory, previous=previous)
        if isinstance(data, Refused):
            return data
        # A part of a line has no end, so fewer line ends than were requested leave room for parts only.
        is_whole = data.count(b"\n") < memory.lines and len(data) < MIN_PART_BYTES
        steps = memory.reader.steps(data, is_whole=is_whole)
        outcome = await self._readings.read_in_steps(ref, len(data), steps)
        if memory.lines < MANY_LINES and len(data) < SHORT_ANSWER_BYTES:
            memory.lines = MANY_LINES
        return outcome

    async def _tail(
        self, ref: JobRef, pod_name: str, container_name: str, memory: _Memory, *, previous: bool
    ) -> bytes | Refused:
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await self._fetch(ref, pod_name, container_name, memory, previous=previous)
        except TimeoutError:
            return Refused(
                "ProbeTimeout", f"Reading the log took longer than {self._timeout_s:g}s.", RetryClass.SOON
            )
        except ApiError as error:
            return _api_error(error, previous=previous)
        except Unreachable as error:
            # The error names kube-apiserver's address, which a reader of jobs need not know.
            log.debug("log not reached", job=str(ref), error=str(error))
            return Refused(
                "PodUnreachable",
                "The connection through kube-apiserver to the node's kubelet failed; it is tried again.",
                RetryClass.SOON,
            )
        if data is None:
            return Refused(
                "LogLineTooLong",
                f"A line of the log is larger than {MAX_ANSWER_BYTES} bytes. Print shorter lines.",
                RetryClass.RARELY,
            )
        return data

    async def _fetch(
        self, ref: JobRef, pod_name: str, container_name: str, memory: _Memory, *, previous: bool
    ) -> bytes | None:
        """The end of the log, up to its newest byte; None when that does not fit."""
        path = f"/api/v1/namespaces/{ref.namespace}/pods/{pod_name}/log"
        while True:
            query = [
                ("container", container_name),
                ("tailLines", str(memory.lines)),
                ("limitBytes", str(MAX_ANSWER_BYTES)),
                ("timestamps", "true"),
            ]
            if previous:
                query.append(("previous", "true"))
            with suppress(TooLarge):  # a server that ignores limitBytes
                data = await self._client.get(
                    path, query=query, timeout_s=self._timeout_s, max_bytes=MAX_ANSWER_BYTES
                )
                if len(data) < MAX_ANSWER_BYTES:
                    return data
            if memory.lines == 1:
                return None
            memory.lines = FEW_LINES if memory.lines > FEW_LINES else 1


def _api_error(error: ApiError, *, previous: bool) -> Refused:
    if error.status == 403:
        return Refused(
            "LogsForbidden",
            "This server has no right to read the pod's log. Grant get on pods/log in its namespace.",
            RetryClass.FORBIDDEN,
        )
    if error.status == 404:
        return Refused("PodGone", "The pod no longer exists.", RetryClass.SOON)
    if error.status == 400 and previous:
        return Refused(
            "NoEarlierLog", "The log of the previous container run is no longer there.", RetryClass.LATER
        )
    if error.status == 400:
        return Refused("NoLogYet", "The container has not started, so there is no log yet.", RetryClass.LATER)
    return Refused(
        "PodUnreachable",
        f"kube-apiserver answered HTTP status {error.status}; it is tried again.",
        RetryClass.SOON,
    )
