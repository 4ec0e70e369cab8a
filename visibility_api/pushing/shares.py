"""Shares out the event loop's time among those who push: budgets of pods, jobs and namespaces, and turns."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cachetools import LRUCache

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.token_bucket import Bucket

UNIT_MS = 0.02  # what each push is charged at least
# Taken by connection and decryption before a body is parsed: 64 KiB take a quarter of a millisecond.
MS_PER_BYTE = 0.25 / 65_536
TURN_MS = 1.0  # in one turn of the event loop; the push that exceeds it is the last
MAX_BUCKETS = 65_536
HOLD_S = 4.0  # a refusal waits no longer: clients wait 5 s
MAX_HELD = 1000  # refusals that wait; each keeps a body in its connection


class _Budget(NamedTuple):
    ms_per_s: float
    burst_ms: float
    whose: str


# A usual push takes 0.05 ms. Thousands of processes of one job may push every 5 s, as the Kubeflow SDK does.
POD = _Budget(20.0, 200.0, "this pod's")
JOB = _Budget(80.0, 300.0, "this job's")
NAMESPACE = _Budget(120.0, 500.0, "this namespace's")
BUDGETS = (POD, JOB, NAMESPACE)
Buckets = tuple[Bucket, ...]  # one for each of them


class Budgets:
    """Milliseconds of the event loop that pushes may take, bytes included (`MS_PER_BYTE`)."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The budgets that were used last; a new one is full.
        self._buckets: LRUCache[tuple[str, str], Bucket] = LRUCache(MAX_BUCKETS)
        self._held = 0

    def find(self, namespace: str, job_uid: str, pod_uid: str) -> Buckets:
        """What this pod's pushes are charged to."""
        found = []
        for budget, key in zip(BUDGETS, (pod_uid, job_uid, namespace), strict=True):
            bucket = self._buckets.get((budget.whose, key))
            if bucket is None:
                bucket = Bucket(
                    per_s=budget.ms_per_s / UNIT_MS, burst=budget.burst_ms / UNIT_MS, now=self._clock()
                )
                self._buckets[budget.whose, key] = bucket
            found.append(bucket)
        return tuple(found)

    async def enter(self, buckets: Buckets, size: int, *, refusal: str = "") -> None:
        """Charges a push's `size` in bytes.

        Raises TooManyRequests with `refusal`, or when a budget is used up. The refusal of a pod that goes on
        over a budget waits until there is room again: reading what is refused is most of its cost.
        """
        now, units, wait_s = self._clock(), size * MS_PER_BYTE / UNIT_MS, 0.0
        for budget, bucket in zip(BUDGETS, buckets, strict=True):
            has_room = bucket.take(now)
            bucket.charge(units)
            if not has_room:  # it is charged to no one else
                wait_s = bucket.wait_s(now)
                refusal = refusal or (
                    f"pushes have used up {budget.whose} {budget.ms_per_s:g} ms of CPU time a second;"
                    " send smaller reports, or fewer"
                )
                break
        if not refusal:
            return
        if wait_s and self._held < MAX_HELD:
            self._held += 1
            try:
                await asyncio.sleep(min(wait_s, HOLD_S))
            finally:
                self._held -= 1
        raise TooManyRequests(refusal)


def charge(buckets: Buckets, ms: float) -> None:
    for bucket in buckets:
        bucket.charge(ms / UNIT_MS)


class PushTurns:
    """In one turn of the event loop pushes worth `TURN_MS` are parsed. Namespaces take turns."""

    def __init__(self) -> None:
        self._spent_ms = 0.0  # in this turn, and a little in those before
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}  # by namespace, the next to be served first
        self._is_due = False  # the next turn is scheduled

    async def wait(self, namespace: str) -> None:
        """Returns when a push may be parsed: at once when none waits and this turn has time left."""
        if self._spent_ms < TURN_MS and not self._queues:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(namespace, deque()).append(turn)
        self._schedule()
        await turn

    def spend(self, ms: float) -> None:
        self._spent_ms += ms
        if self._spent_ms > TURN_MS / 4:  # not a timer for each small one
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """A new turn: the first push of the namespace that has waited longest, if one waits."""
        self._is_due, self._spent_ms = False, 0.0
        while self._queues:
            namespace = next(iter(self._queues))
            queue = self._queues.pop(namespace)
            turn = queue.popleft()
            if queue:
                self._queues[namespace] = queue
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                break
        if self._queues:
            self._schedule()
