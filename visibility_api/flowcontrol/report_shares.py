"""Shares out the event loop among reports, pushed or probed: budgets of pods, jobs, namespaces, and turns."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from cachetools import LRUCache

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.token_bucket import Bucket

UNIT_MS = 0.02  # in which time is counted
# What each push is charged, refused or not, beside what it takes to read and record it: decryption, headers,
# answer. 64 KiB take a quarter of a millisecond more.
PUSH_MS, MS_PER_BYTE = 0.15, 0.25 / 65_536
SHARE_MS_PER_S = 500.0  # of all reports together, however much their budgets have saved up
TURN_MS = 1.0  # of it, at once; the report that exceeds it is the last
# So much more than others at most a namespace counts as having used: it waits for a turn of each, not for
# seconds while hundreds get some milliseconds a second each.
AHEAD_MS = 0.5
MIN_WAIT_S = 0.001  # until the share is looked at again: what is shorter is no wait for uvloop
# What a push is expected to take to be read and recorded: a usual one, the costliest, and what the costliest
# bodies take besides.
USUAL_MS, MOST_MS, _MOST_MS_PER_BYTE = 0.15, 5.0, 1.0 / 65_536
MAX_BUCKETS = 98_304
HOLD_S, HOLD_SHARE = 3.0, 0.5  # a refusal waits no longer: clients wait 5 s, replicas that pass pushes on 4 s
MAX_HELD = 1000  # refusals that wait; each keeps a body in its connection


class Budget(NamedTuple):
    """A limit for a pod, a job or a namespace."""

    per_s: float  # pushes, or units of UNIT_MS
    burst: float
    refusal: str
    is_time: bool = True  # units; else pushes


def _ms(per_s: float, burst: float, whose: str) -> Budget:
    refusal = f"reports have used up {whose} {per_s:g} ms of CPU time a second; send smaller ones, or fewer"
    return Budget(per_s / UNIT_MS, burst / UNIT_MS, refusal)


# The Kubeflow SDK pushes every 5 s from each process; a node with many accelerators runs 32 or 64 of them.
# After a refusal it tries again at each training step, and the step waits for the response.
PUSHES = Budget(20.0, 64.0, "a pod may push 20 times a second", is_time=False)
# A usual push takes 0.2 ms. 4,096 processes of one job may push every 5 s.
POD = _ms(20.0, 200.0, "this pod's")
JOB = _ms(180.0, 600.0, "this job's")
NAMESPACE = _ms(240.0, 1000.0, "this namespace's")
BUDGETS = (PUSHES, POD, JOB, NAMESPACE)  # of every push
# Reports of all pods of a job that are not rank 0, which are taken while rank 0 does not report. Further ones
# get 200 but are not recorded: the Kubeflow SDK retries a refusal at once.
OTHER_RANKS = Budget(5.0, 10.0, "", is_time=False)
# Refusals of a namespace, of whichever of its pods. Further ones wait.
REFUSALS = Budget(300.0, 300.0, "", is_time=False)


class Shares(NamedTuple):
    """What the pushes of one pod are charged to."""

    budgets: tuple[Bucket, ...]  # one for each of BUDGETS
    other_ranks: Bucket
    refusals: Bucket

    def charge(self, ms: float) -> None:
        """A push took so much of the event loop's time."""
        for budget, bucket in zip(BUDGETS, self.budgets, strict=True):
            if budget.is_time:
                bucket.charge(ms / UNIT_MS)


class Budgets:
    """How often pods may push, and what it may cost: bytes are charged as `MS_PER_BYTE`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The budgets that were used last; a new one is full.
        self._buckets: LRUCache[tuple[Budget, str], Bucket] = LRUCache(MAX_BUCKETS)
        self._held = 0

    def find(self, namespace: str, job_uid: str, pod_uid: str) -> Shares:
        """What this pod's pushes are charged to."""
        owners = zip(BUDGETS, (pod_uid, pod_uid, job_uid, namespace), strict=True)
        return Shares(
            tuple(self._bucket(budget, owner) for budget, owner in owners),
            self._bucket(OTHER_RANKS, job_uid),
            self.refusals(namespace),
        )

    async def wait(self, namespace: str) -> None:
        """Until this namespace's budget of time has room."""
        budget, now = self._bucket(NAMESPACE, namespace), self._clock()
        if not budget.take(now):
            await asyncio.sleep(budget.wait_s(now))

    def charge_probed(self, namespace: str, job_uid: str, ms: float) -> None:
        """A report that a probe has read took so much of the event loop's time."""
        for budget, owner in ((JOB, job_uid), (NAMESPACE, namespace)):
            self._bucket(budget, owner).charge(ms / UNIT_MS)

    def refusals(self, namespace: str) -> Bucket:
        """What refusals of this namespace are charged to."""
        return self._bucket(REFUSALS, namespace)

    def _bucket(self, budget: Budget, owner: str) -> Bucket:
        bucket = self._buckets.get((budget, owner))
        if bucket is None:
            bucket = Bucket(per_s=budget.per_s, burst=budget.burst, now=self._clock())
            self._buckets[budget, owner] = bucket
        return bucket

    async def enter(self, shares: Shares, size: int) -> None:
        """Charges a push's `size` in bytes. Raises TooManyRequests when a budget is used up.

        A pod that goes on over a budget of time is refused when there is room again, and after those before
        it in the namespace. Reading what is refused is most of its cost.
        """
        now, units = self._clock(), (PUSH_MS + size * MS_PER_BYTE) / UNIT_MS
        wait_s, refusal = 0.0, ""
        for budget, bucket in zip(BUDGETS, shares.budgets, strict=True):
            has_room = bucket.take(now)
            if budget.is_time:
                bucket.charge(units)
            if not has_room:
                refusal = refusal or budget.refusal
                if budget.is_time:  # it is charged to no one else
                    wait_s = bucket.wait_s(now)
                    break
        if not refusal:
            return
        if wait_s:
            await self.hold_refusal(shares.refusals, wait_s)
        raise TooManyRequests(refusal)

    async def hold_refusal(self, refusals: Bucket, wait_s: float = 0.0) -> None:
        """Wait so long, and until the refusal is due: those of a namespace are answered at a rate."""
        now = self._clock()
        if not refusals.take(now):
            refusals.charge(1.0)
        wait_s = max(wait_s, refusals.wait_s(now))
        if wait_s and self._held < MAX_HELD:
            self._held += 1
            try:
                if wait_s > HOLD_S:  # a crowd that came at one moment is not answered at one moment
                    wait_s = HOLD_S * random.uniform(HOLD_SHARE, 1)
                await asyncio.sleep(wait_s)
            finally:
                self._held -= 1


def expected_ms(size_bytes: int, least_ms: float) -> float:
    """What it takes to read and record a body of this size, beside `least_ms`."""
    return least_ms + size_bytes * _MOST_MS_PER_BYTE


class LoopTurns:
    """All reports together have a share of the event loop's time, and may use `TURN_MS` of it at once: what
    others ask for passes through a dozen turns, and each would wait for one report.

    Of the namespaces that wait, the one goes first that will have used least with its next report. One that
    comes again counts as having used as much as the one that was served last.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -math.inf  # when the share has paid for what was used
        # By namespace: who waits, and how long its report is expected to take.
        self._queues: dict[str, deque[tuple[asyncio.Future[None], float]]] = {}
        self._order: list[tuple[float, int, str]] = []  # a heap of them, by what each will have used, in ms
        self._number = count()
        self._used: LRUCache[str, float] = LRUCache(MAX_BUCKETS)
        self._least = 0.0  # that one counts as having used
        self._due: asyncio.Handle | None = None  # while one waits

    async def wait(self, namespace: str, size_bytes: int) -> None:
        """Returns when a report may be parsed: at once when none waits and the share has time left."""
        left_ms = self._left_ms()
        if not self._queues and left_ms > 0:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        takes_ms = expected_ms(size_bytes, USUAL_MS)
        if namespace not in self._queues:
            self._queues[namespace] = deque()
            self._line_up(namespace, self._used_by(namespace) + takes_ms)
        self._queues[namespace].append((turn, takes_ms))
        if self._due is None:
            self._schedule(left_ms)
        await turn

    def spend(self, namespace: str, ms: float) -> None:
        """A report of this namespace took so much of the event loop's time."""
        self._until = max(self._until, self._clock()) + ms / SHARE_MS_PER_S
        self._used[namespace] = min(self._used_by(namespace) + ms, self._least + AHEAD_MS)

    def _used_by(self, namespace: str) -> float:
        return max(self._least, self._used.get(namespace, 0.0))

    def _left_ms(self) -> float:
        return min(TURN_MS, (self._clock() - self._until) * SHARE_MS_PER_S + TURN_MS)

    def _line_up(self, namespace: str, will_have_used: float) -> None:
        heapq.heappush(self._order, (will_have_used, next(self._number), namespace))

    def _schedule(self, left_ms: float) -> None:
        wait_s = max(MIN_WAIT_S, -left_ms / SHARE_MS_PER_S)
        self._due = asyncio.get_running_loop().call_later(wait_s, self._begin)

    def _begin(self) -> None:
        """Those that come next, as many as fit."""
        self._due, left_ms = None, self._left_ms()
        while self._order and left_ms > 0:
            will_have_used, _, namespace = heapq.heappop(self._order)
            queue = self._queues[namespace]
            turn, takes_ms = queue[0]
            if (by_now := self._used.get(namespace, 0.0) + takes_ms) > will_have_used:
                self._line_up(namespace, by_now)  # its last report took longer than expected
                continue
            queue.popleft()
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                self._least = max(self._least, will_have_used - takes_ms)
                left_ms -= takes_ms
            if queue:
                self._line_up(namespace, will_have_used + queue[0][1])
            else:
                del self._queues[namespace]
        if self._order:
            self._schedule(left_ms)
