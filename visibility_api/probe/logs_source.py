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

from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.errors import ApiError, TooLarge, Unreachable
from visibility_api.progress.document import Refused
from visibility_api.progress.job import JobRef, Rank0
from visibility_api.progress.log_tail import TailReader

from .source import Answer, Patience

log = structlog.get_logger("visibility.probe")

# `tailLines` counts records, and a CRI ends one after 16 KiB whether the line is over or not: a bar that is
# redrawn without a line end fills records (workloads-and-protocols.md 1.3). `limitBytes` keeps the beginning
# of what `tailLines` selects (X12): an answer of that size lacks the newest, and fewer lines are asked for.
MANY_LINES = 200
FEW_LINES = 7  # of 16 KiB and a time each: within the limit
MAX_ANSWER_BYTES = 128 * 1024
SHORT_ANSWER_BYTES = 4 * 1024  # from few lines: they are short again, so more may be asked for
MIN_PART_BYTES = 8 * 1024  # no CRI writes smaller parts of a line
MAX_REMEMBERED = 20_000  # pods
REMEMBERED_S = 7200.0  # after a look; whoever is asked less often is read anew, from the end of the log


@dataclass(slots=True)
class _Memory:
    """Of one pod's container, between looks."""

    attempt: str = ""
    reader: TailReader = field(default_factory=TailReader)
    lines: int = MANY_LINES


class LogsSource:
    """Reads the last lines of the log. `timeout_s` bounds a look, however many requests it makes."""

    name = "logs"

    def __init__(
        self, client: KubeClient, *, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        # By pod. Nobody tells us of those that have gone: they are the ones that are asked no more.
        self._memories: TTLCache[str, _Memory] = TTLCache(MAX_REMEMBERED, REMEMBERED_S, timer=clock)

    def __len__(self) -> int:
        """Pods whose log is remembered."""
        return len(self._memories)

    async def ask(self, ref: JobRef, rank0: Rank0) -> Answer:
        """What the life that runs now says."""
        memory = self._memories.get(rank0.pod_uid)
        if memory is None or memory.attempt != rank0.attempt:
            memory = _Memory(attempt=rank0.attempt)
        self._memories[rank0.pod_uid] = memory  # its time begins anew
        return await self._look(ref, rank0, memory, previous=False)

    async def last_words(self, ref: JobRef, rank0: Rank0) -> Answer:
        """What the life that ended last has left. `rank0`: as the cluster shows it now, after that end.

        The kubelet keeps the log of one life before the one that runs; of a container that waits to be
        restarted, or is not restarted, it is the log itself.
        """
        return await self._look(ref, rank0, _Memory(), previous=rank0.is_running)

    async def _look(self, ref: JobRef, rank0: Rank0, memory: _Memory, *, previous: bool) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await self._fetch(ref, rank0, memory, previous=previous)
        except TimeoutError:
            return _refused(
                "ProbeTimeout", f"reading the log did not end within {self._timeout_s:g}s", Patience.SOON
            )
        except ApiError as error:
            return _api_error(error, previous=previous)
        except Unreachable as error:
            # The error names kube-apiserver's address: whoever may read a job need not know that.
            log.debug("log not reached", job=str(ref), error=str(error))
            return _refused(
                "PodUnreachable",
                "the connection through kube-apiserver to the node's kubelet broke or came to nothing",
                Patience.SOON,
            )
        if data is None:
            return _refused(
                "LogLineTooLong",
                f"one record of the container's log exceeds {MAX_ANSWER_BYTES} bytes",
                Patience.RARELY,
            )
        # A part of a line has no end, so fewer line ends than were asked for leave room for parts only.
        is_whole = data.count(b"\n") < memory.lines and len(data) < MIN_PART_BYTES
        outcome = memory.reader.read(data, is_whole=is_whole)
        if memory.lines < MANY_LINES and len(data) < SHORT_ANSWER_BYTES:
            memory.lines = MANY_LINES
        return Answer(outcome=outcome, patience=Patience.LATER)

    async def _fetch(self, ref: JobRef, rank0: Rank0, memory: _Memory, *, previous: bool) -> bytes | None:
        """The end of the log, up to its newest byte; None when that does not fit."""
        path = f"/api/v1/namespaces/{ref.namespace}/pods/{rank0.pod_name}/log"
        while True:
            query = [
                ("container", rank0.container_name),
                ("tailLines", str(memory.lines)),
                ("limitBytes", str(MAX_ANSWER_BYTES)),
                ("timestamps", "true"),
            ]
            if previous:
                query.append(("previous", "true"))
            with suppress(TooLarge):  # whoever answers so does not hold to limitBytes
                data = await self._client.get(
                    path, query=query, timeout_s=self._timeout_s, max_bytes=MAX_ANSWER_BYTES
                )
                if len(data) < MAX_ANSWER_BYTES:
                    return data
            if memory.lines == 1:
                return None
            memory.lines = FEW_LINES if memory.lines > FEW_LINES else 1


def _api_error(error: ApiError, *, previous: bool) -> Answer:
    if error.status == 403:
        return _refused(
            "LogsForbidden",
            "this server may not read the pod's log: grant get on pods/log in its namespace",
            Patience.FORBIDDEN,
        )
    if error.status == 404:
        return _refused("PodGone", "the pod is gone", Patience.SOON)
    if error.status == 400 and previous:
        return _refused("NoEarlierLog", "the log of the life before is not there any more", Patience.LATER)
    if error.status == 400:
        return _refused("NoLogYet", "the container has not started, so there is no log yet", Patience.LATER)
    return _refused("PodUnreachable", f"kube-apiserver answered HTTP {error.status}", Patience.SOON)


def _refused(reason: str, message: str, patience: Patience) -> Answer:
    return Answer(outcome=Refused(reason=reason, message=message), patience=patience)
