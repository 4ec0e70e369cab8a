"""The last lines of a container's log, for people: of what failed first, or else of rank 0.

Read when it is asked for, and for the archive. The caller checks that whoever is shown it may
read the pod's log.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace

from visibility_api.errors.text import harmless
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import Rank0
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, TooLarge
from visibility_api.reports.log_records import show_record

MAX_LINES = 500
MAX_BYTES = 64 * 1024  # of one answer of kube-apiserver
MAX_LINE_CHARACTERS = 2000
# What Kubernetes allows. A failure may come from the data directory, and its name becomes part of a path.
_POD_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which log, and of which run of the container."""

    namespace: str
    pod_name: str
    container_name: str  # "": the pod's only one, or the one that it names as its default
    replica: str = ""
    is_previous: bool = False  # the run before the present one
    may_be_other: bool = False  # …or the present one, where there is none before


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """What is at the end of a log, harmless for terminals. Decoding replaces what is not UTF-8."""

    place: Place
    lines: tuple[str, ...]  # the oldest first
    is_cut: bool  # there is more before these than was asked for, or a line was too long


def place_of(
    namespace: str, failure: Failure | None, rank0: Rank0 | None, *, has_ended: bool, previous: bool | None
) -> Place | None:
    """Where to look; None when there is no pod to look at.

    `has_ended`: the job, for good: then the run that failed is the last. Else the container that failed has
    mostly been started again. `previous`: as the client wishes; None: as it is likely.
    """
    if failure is not None and _POD_NAME.fullmatch(failure.pod_name):
        return Place(
            namespace=namespace,
            pod_name=failure.pod_name,
            container_name=failure.container_name,
            replica=failure.replica,
            is_previous=not has_ended if previous is None else previous,
            may_be_other=previous is None,
        )
    if rank0 is None:
        return None
    return Place(
        namespace=namespace,
        pod_name=rank0.pod_name,
        container_name=rank0.container_name,
        is_previous=bool(previous),
    )


class LogEnds:
    """Reads them through kube-apiserver. `timeout_s`: of one request, of which there are three at most."""

    def __init__(self, client: KubeClient, *, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def read(self, place: Place, lines: int) -> LogEnd:
        """At most so many lines. Raises ApiError, Unreachable."""
        try:
            return await self._read(place, place.is_previous, lines)
        except ApiError as error:
            # 400: there is no run before the present one.
            if error.status != 400 or not place.may_be_other:
                raise
        return await self._read(place, not place.is_previous, lines)

    async def _read(self, place: Place, previous: bool, lines: int) -> LogEnd:
        wanted = min(lines, MAX_LINES)
        data, asked = b"", wanted
        # `limitBytes` keeps the beginning of what `tailLines` selects: what fills it lacks the newest lines.
        for asked in dict.fromkeys((wanted, max(1, wanted // 10), 1)):
            with suppress(TooLarge):  # a server that ignores limitBytes
                data = await self._client.get(
                    f"/api/v1/namespaces/{place.namespace}/pods/{place.pod_name}/log",
                    query=_query(place, previous, asked),
                    timeout_s=self._timeout_s,
                    max_bytes=MAX_BYTES,
                )
                if len(data) < MAX_BYTES:
                    break
        lines_read = data.decode(errors="replace").splitlines()[-asked:]
        found = [part for line in lines_read for part in show_record(line)]
        shown = tuple(harmless(line[-MAX_LINE_CHARACTERS:]) for line in found[-wanted:])
        is_cut = (
            asked < wanted
            or len(data) >= MAX_BYTES
            or len(found) > wanted
            or any(len(line) > MAX_LINE_CHARACTERS for line in found)
        )
        return LogEnd(place=replace(place, is_previous=previous), lines=shown, is_cut=is_cut)


def _query(place: Place, previous: bool, lines: int) -> list[tuple[str, str]]:
    query = [("tailLines", str(lines)), ("limitBytes", str(MAX_BYTES))]
    if place.container_name:
        query.append(("container", place.container_name))
    if previous:
        query.append(("previous", "true"))
    return query
