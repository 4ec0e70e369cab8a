"""GET of `progress` with `?replicas=all`: the document with a status for each replica, in pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from visibility_api.errors.status import BadRequest, ObjectNotFound
from visibility_api.jobs.failure import Failure
from visibility_api.jobs.job import JobRef, Rank0
from visibility_api.jobs.summary import JobProgress
from visibility_api.models import v1alpha1
from visibility_api.models.served import Resource
from visibility_api.models.wire import struct_of
from visibility_api.reports.ranks import RankRow
from visibility_api.store.memory import MemoryStore
from visibility_api.workloads.replicas import GONE, ReplicaStatus, ReplicaStatuses

from .message import Handler, ResourceRequest, ResourceResponse
from .negotiation import JSON, Target, negotiate_request
from .rendering import render
from .v1alpha1 import Codec, shown_termination, shown_time, status_of

PARAMETER = "replicas"
MOST, MOST_AS_YAML = 1000, 64  # in one response: as YAML each takes a tenth of a millisecond

Read = Callable[[JobRef, str], Awaitable[ReplicaStatuses]]
_ReplicaStatus = struct_of(v1alpha1.ReplicaStatus)
# Groups whose only pod is rank 0, and which workers with further ranks stand beside.
_MASTERS = ("master", "chief")


class ProgressWithReplicas:
    """The handler of `progress`; `plain` answers requests without the parameter. `read` takes the job and the
    client whose turn it is."""

    def __init__(self, resource: Resource, store: MemoryStore, read: Read, plain: Handler) -> None:
        self._plural = resource.plural
        self._codec = Codec(resource)
        self._store = store
        self._read = read
        self._plain = plain

    def get(self, request: ResourceRequest) -> Awaitable[Any]:
        """Raises BadRequest, NotAcceptable, ObjectNotFound, TooManyRequests, Unavailable."""
        wanted = request.parameter(PARAMETER) if request.query else None
        return self._plain(request) if wanted is None else self._get(request, wanted)

    async def _get(self, request: ResourceRequest, wanted: str) -> ResourceResponse:
        if wanted != "all":
            raise BadRequest("replicas must be 'all'")
        representation = negotiate_request(request, Target.PLAIN)
        most = MOST if representation.media_type == JSON else MOST_AS_YAML
        limit = _limit(request.parameter("limit"), most)
        attributes = request.attributes
        entry = self._store.get(self._plural, attributes.namespace, attributes.name)
        if entry is None:
            raise ObjectNotFound(self._plural, attributes.name)
        found = await self._read(entry.document.job.ref, request.client)
        shown, after = _page(_known(entry.document, found.items), limit, request.parameter("continue") or "")
        status = status_of(
            entry.document,
            replica_statuses=_shown(entry.document, shown, found),
            replica_statuses_time=shown_time(found.at),
            replica_statuses_continue=after,
        )
        body = b'%s%s,"status":%s}' % (
            self._codec.head,
            self._codec.metadata(entry),
            msgspec.json.encode(status),
        )
        return ResourceResponse(content_type=representation.media_type, body=render(body, representation))


def _limit(text: str | None, most: int) -> int:
    if text is None:
        return most
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0):
        raise BadRequest("limit must be a number above 0")
    return min(int(text), most)


def _page(
    items: Sequence[ReplicaStatus], limit: int, after: str
) -> tuple[Sequence[ReplicaStatus], str | None]:
    """Those after the replica of that name, and the name of the last one if more follow."""
    if after:
        place = ReplicaStatus(name=after, pod_name="", state="").place
        items = items[bisect_right(items, place, key=lambda each: each.place) :]
    return items[:limit], items[limit - 1].name if len(items) > limit else None


def _known(document: JobProgress, items: Sequence[ReplicaStatus]) -> Sequence[ReplicaStatus]:
    """With what the document itself knows of a replica that was never listed: rank 0, and what failed."""
    pods = {each.pod_name for each in items}
    names = {each.name for each in items}
    rank0, failure = document.job.rank0, document.failure
    more = []
    if rank0 is not None and rank0.pod_name not in pods:
        more.append(_of_rank0(rank0, document))
        pods.add(rank0.pod_name)
    if failure is not None and failure.replica and not {failure.replica, failure.pod_name} & (names | pods):
        more.append(_of_failure(failure))
    return sorted([*items, *more], key=lambda each: each.place) if more else items


def _of_rank0(rank0: Rank0, document: JobProgress) -> ReplicaStatus:
    state = "Running" if rank0.is_running else document.phase.value if document.phase.is_final else GONE
    return ReplicaStatus(
        name=rank0.pod_name,
        pod_name=rank0.pod_name,
        state=state,
        node_name=rank0.node_name or "",
        restart_count=rank0.restart_count,
        last_termination=rank0.last_termination,
    )


def _of_failure(failure: Failure) -> ReplicaStatus:
    return ReplicaStatus(
        name=failure.replica,
        pod_name=failure.pod_name,
        state="Failed",
        node_name=failure.node_name,
        reason=failure.reason,
    )


def _rank(name: str, rank0: str) -> int | None:
    """Of the replica of this name, by that of the one that has rank 0."""
    (first, _, zero), (group, _, index) = rank0.rpartition("-"), name.rpartition("-")
    if not first or not (index.isascii() and index.isdecimal()):
        return None
    if first == "leader":  # each has workers and ranks of its own
        return 0 if name == rank0 else int(index) if group == f"worker-{zero}" else None
    if group == first:
        return int(index)
    return int(index) + 1 if first in _MASTERS and group == "worker" else None


def _shown(document: JobProgress, items: Sequence[ReplicaStatus], found: ReplicaStatuses) -> Any:  # noqa: ANN401
    """Each with its rank, and what it or rank 0 reports of it."""
    rank0, ranks = document.job.rank0, found.ranks
    first = next(
        (
            each.name
            for each in (*found.items, *items)
            if rank0 is not None and each.pod_name == rank0.pod_name
        ),
        "",
    )
    by_name = {row.name: row for row in sorted(ranks.rows, key=_speed) if row.name}
    by_rank = {} if by_name else {row.rank: row for row in ranks.rows}
    shown = []
    for each in items:
        rank, pushed = _rank(each.name, first), found.pushed.get(each.pod_name)
        # A host's name is the pod's, mostly without the random characters at its end.
        row = by_name.get(each.pod_name) or by_name.get(each.pod_name.rpartition("-")[0])
        row = row or by_rank.get(-1 if rank is None else rank)
        at, step = (shown_time(ranks.at), row.step) if row is not None else (None, None)
        if pushed is not None and (row is None or ranks.at is None or pushed.at > ranks.at):
            at, step = shown_time(pushed.at), pushed.step
        if rank0 is not None and each.pod_name == rank0.pod_name:
            at, step = shown_time(document.updated_at), document.step
        status = _ReplicaStatus(
            name=each.name,
            rank=pushed.rank if rank is None and pushed is not None else rank,
            pod_name=each.pod_name or None,
            node_name=each.node_name or None,
            state=cast("Any", each.state),
            reason=each.reason or None,
            restart_count=each.restart_count,
            last_termination=shown_termination(each.last_termination),
            last_report_time=at,
            step=step,
            step_seconds=row.step_s if row is not None else None,
        )
        shown.append(status)
    return tuple(shown)


def _speed(row: RankRow) -> tuple[float, int]:
    """The slowest last."""
    return row.step_s or 0.0, -(row.step or 0)
