"""One status for each replica of a job: of jobs that somebody asks for, and of those that fail.

What was seen stays when the pods are gone, for the jobs that were asked for last.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
from cachetools import LRUCache
from msgspec.structs import replace

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import JobRef, Termination, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Progress
from visibility_api.reports.ranks import NO_RANKS, Ranks

from .failures import MAX_QUOTED_CHARACTERS, Replica
from .objects import Pod
from .pod_lists import NOT_LISTED, TIMEOUT_S, PodLists
from .rank0 import container_status, main_container, termination_of, waiting_of

MAX_OF_JOB = 8192  # replicas
MAX_KEPT = 16_384  # of all jobs together; the jobs that were asked for last
FRESH_S = 5.0  # for which a list counts
GONE = "Gone"
ENDED = ("Succeeded", "Failed")
_NUMBERS = re.compile(r"(\d{1,9})")


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What the pod of one replica shows, or has shown last."""

    name: str  # such as node-3
    pod_name: str
    state: str  # the pod's phase, Terminating, or GONE
    node_name: str = ""
    reason: str = ""  # of the state
    restart_count: int = 0
    last_termination: Termination | None = None

    @property
    def place(self) -> tuple[str | int, ...]:
        """For their order: names and numbers in turns."""
        parts = _NUMBERS.split(self.name)
        return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """The last report that a pod other than rank 0's has pushed."""

    at: datetime
    step: int | None
    rank: int | None  # as it says itself


class ReplicaStatuses(msgspec.Struct, frozen=True, gc=False):
    """Of one job."""

    at: datetime | None = None  # when the pods were listed; None: never
    items: tuple[ReplicaStatus, ...] = ()  # by group and index
    ranks: Ranks = NO_RANKS  # the last account that rank 0 gave of all
    pushed: dict[str, Pushed] = {}  # by pod


class _Kept(msgspec.Struct, gc=False):
    statuses: ReplicaStatuses
    listed_at: float


class Replicas:
    """Reads them when they are asked for, and remembers them."""

    def __init__(
        self,
        lists: PodLists,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._lists = lists
        self._clock = clock
        self._now = now
        self._kept: LRUCache[JobRef, _Kept] = LRUCache(
            MAX_KEPT, getsizeof=lambda kept: 1 + len(kept.statuses.items)
        )
        self._pushed: LRUCache[tuple[str, str], Pushed] = LRUCache(MAX_KEPT)  # by the job's uid and pod
        self._ranks: LRUCache[JobRef, Ranks] = LRUCache(MAX_KEPT, getsizeof=lambda ranks: len(ranks.rows))

    def fresh(self, ref: JobRef) -> ReplicaStatuses | None:
        """What was listed within FRESH_S."""
        kept = self._kept.get(ref)
        is_fresh = kept is not None and self._clock() < kept.listed_at + FRESH_S
        return self._shown(ref) if is_fresh else None

    async def read(self, ref: JobRef) -> ReplicaStatuses:
        """As listed now, or what was seen before where that fails.

        Raises ApiError, Unreachable, TooLarge, TimeoutError, UNDECODABLE.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S), aclosing(self._lists.read(ref)) as pods:
                self.note(ref, [status_of(pod, replica) async for pod, replica in pods])
        except NOT_LISTED:
            if ref not in self._kept:
                raise
        return self._shown(ref)

    def _shown(self, ref: JobRef) -> ReplicaStatuses:
        statuses = self._kept[ref].statuses
        found = {each.pod_name: self._pushed.get((ref.uid, each.pod_name)) for each in statuses.items}
        pushed = {name: report for name, report in found.items() if report is not None}
        return replace(statuses, ranks=self._ranks.get(ref, NO_RANKS), pushed=pushed)

    def pushed(self, ref: JobRef, pod_name: str, report: Progress) -> None:
        """Remember what a pod other than rank 0's has pushed, whether or not it counts for the job."""
        at = report.timestamp or self._now()
        self._pushed[ref.uid, pod_name] = Pushed(at=at, step=report.step, rank=report.rank)

    def observed(self, observation: Observation) -> None:
        """Remember what a report that counts says of all ranks."""
        outcome = observation.outcome
        if isinstance(outcome, Progress) and outcome.ranks.rows:
            self._ranks[observation.ref] = outcome.ranks

    def note(self, ref: JobRef, seen: Iterable[ReplicaStatus]) -> None:
        """All pods of the job, as listed now."""
        kept = self._kept.get(ref)
        before = {each.name: each for each in kept.statuses.items} if kept is not None else {}
        found: dict[str, ReplicaStatus] = {}
        for each in seen:
            other = found.get(each.name)
            if other is None or precedes(each, other):
                found[each.name] = each
        gone = {name: _without_pod(each) for name, each in before.items() if name not in found}
        items = sorted((found | gone).values(), key=lambda each: each.place)[:MAX_OF_JOB]
        statuses = ReplicaStatuses(at=self._now(), items=tuple(items))
        self._kept[ref] = _Kept(statuses=statuses, listed_at=self._clock())

    def has_asked_for(self, job: TrainingJob) -> bool:
        """Whether somebody has, lately: its last state is worth a look."""
        return job.ref in self._kept

    def job_gone(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._kept.pop(ref, None)
        self._ranks.pop(ref, None)


def status_of(pod: Pod, replica: Replica) -> ReplicaStatus:
    """What one pod shows."""
    name = main_container(pod)
    status = container_status(name, pod.status.container_statuses or ())
    ended = status.state.terminated or status.last_state.terminated
    state = pod.status.phase or "Pending"
    if state not in ENDED and pod.metadata.deletion_timestamp is not None:
        state = "Terminating"
    reason = pod.status.reason or waiting_of(pod, name).reason
    return ReplicaStatus(
        name=replica.name,
        pod_name=pod.metadata.name,
        state=state,
        node_name=pod.spec.node_name or "",
        reason=harmless(reason[:MAX_QUOTED_CHARACTERS]),
        restart_count=status.restart_count,
        last_termination=termination_of(pod, ended) if ended is not None else None,
    )


def precedes(one: ReplicaStatus, other: ReplicaStatus) -> bool:
    """Of two pods of one replica, that which is not on its way out."""
    order = ("Running", "Pending", "Succeeded", "Failed")
    return _place_in(order, one.state) < _place_in(order, other.state)


def _place_in(order: tuple[str, ...], state: str) -> int:
    return order.index(state) if state in order else len(order)


def _without_pod(status: ReplicaStatus) -> ReplicaStatus:
    return status if status.state in ENDED else replace(status, state=GONE, reason="")
