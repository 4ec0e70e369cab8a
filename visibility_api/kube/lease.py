"""Which one of several replicas owns the log of the jobs: a Lease of coordination.k8s.io.

The rules are those of `k8s.io/client-go/tools/leaderelection`: a replica takes over a Lease that was not
renewed for its whole duration, by the replica's own clock. kubernetes_asyncio has such a module. It starts
tasks without an owner, and knows no epochs.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from .client import KubeClient
from .errors import ApiError, ClusterError

log = structlog.get_logger("visibility.lease")

T = TypeVar("T")

# As client-go's defaults (k8s.io/component-base/config/options, AddLeaderElectionFlags).
DURATION_S, RENEW_WITHIN_S, RETRY_S = 15.0, 10.0, 2.0
REQUEST_S = 5.0
MAX_LEASE_BYTES = 4 * 1024 * 1024  # of an answer; a Lease has one KiB
JITTER = 0.2
MAX_EPOCH = 2**33 - 1  # seconds: with 30 bits of count a revision stays below 2^63
LEASES = "/apis/coordination.k8s.io/v1"
_PATCH = {"Content-Type": "application/merge-patch+json"}
_KIND = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


class _Meta(msgspec.Struct):
    resourceVersion: str = ""


class _Spec(msgspec.Struct):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    leaseTransitions: int | None = None
    acquireTime: datetime | None = None


class _Lease(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """In seconds. Each replica takes the duration that the Lease names: that of its holder."""

    duration_s: int = int(DURATION_S)
    renew_within_s: float = RENEW_WITHIN_S
    request_s: float = REQUEST_S  # one that is not answered leaves time for the next
    # For so long what an earlier process of this pod holds is another one's.
    earlier_s: float = 0.0


class Lease:
    """`acquire`, then `hold`; `is_held` says at each moment whether this process may act.

    Its epoch is the second in which it was acquired, and later than that of every holder before.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`identity` names the pod: a process that is started again in it goes on before the Lease ends."""
        self._client = client
        self._path = f"{LEASES}/namespaces/{quote(namespace)}/leases"
        self._name = name
        self._identity = identity
        self._times = times
        self._clock = clock
        self._wall_clock = wall_clock
        self._held_until = -math.inf
        self._epoch = 0
        self._seen = ""  # the version that was found last
        self._seen_at = 0.0
        self._anothers_until = -math.inf
        self._hurry = asyncio.Event()
        self.fault = ""  # why the Lease cannot be read or written now
        self._failing_since = 0.0

    @property
    def failing_s(self) -> float:
        """For how long it could not be read or written; 0 if it could, the last time."""
        return self._clock() - self._failing_since if self.fault else 0.0

    @property
    def is_held(self) -> bool:
        """Whether it was renewed lately. True again only after another `acquire`."""
        return self._clock() < self._held_until

    @property
    def is_anothers(self) -> bool:
        """Whether another process has renewed it lately."""
        return self._clock() < self._anothers_until

    def hurry(self) -> None:
        """Try again at once: the holder has given it up, or may have died."""
        self._hurry.set()

    async def acquire(self, *, may: Callable[[], bool], after: Callable[[], int] = lambda: 0) -> int:
        """Wait until it is held; returns the epoch, which is later than `after()`.

        While `may` returns False, other replicas may acquire it. If an earlier process of this pod holds it,
        it is released.
        """
        while True:
            self._hurry.clear()
            epoch = await self._tried(self.try_acquire(may, after))
            if epoch:
                log.info("lease acquired", name=self._name, epoch=epoch)
                return epoch
            pause_s = RETRY_S * random.uniform(1, 1 + JITTER)
            if 0 < (left_s := self._anothers_until - self._clock()) < pause_s:
                pause_s = left_s  # then it ends
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()

    async def hold(self) -> None:
        """Renew it until that fails for too long, or another process has it."""
        while True:
            await asyncio.sleep(RETRY_S)
            is_ours = await self._tried(self.renew())
            if is_ours is False or not self.is_held:
                break
        self._held_until = -math.inf
        log.warning("lease lost", name=self._name, error=self.fault)

    def stop(self) -> None:
        """This process acts no longer; other processes still wait for the Lease."""
        self._held_until = -math.inf

    async def release(self) -> None:
        """Let others acquire it at once. Nothing happens if another process has it."""
        self.stop()
        await self._tried(self._release())

    async def _tried(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result; None after an error, which is logged when it is another one than before."""
        try:
            async with asyncio.timeout(self._times.request_s):
                found = await work
        except (ClusterError, msgspec.MsgspecError, TimeoutError) as error:
            if (fault := self._describe(error)) != self.fault:
                self._failing_since = self._failing_since if self.fault else self._clock()
                self.fault = fault
                log.warning("lease cannot be read or written", name=self._name, error=fault)
            return None
        self.fault = ""
        return found

    async def try_acquire(self, may: Callable[[], bool], after: Callable[[], int]) -> int:
        """One attempt; the epoch, or 0."""
        began = self._clock()
        found = await self._find()
        if found is None:
            if not may():
                return 0
            epoch = self._next_epoch(None, after())
            await self._client.post(self._path, self._body({"name": self._name}, epoch=epoch, transitions=0))
            self._held(began, epoch)
            return epoch
        version, spec = found.metadata.resourceVersion, found.spec
        if version != self._seen:  # it may have been written since it was asked for
            self._seen, self._seen_at = version, self._clock()
        lasts_s = float(spec.leaseDurationSeconds or DURATION_S)
        is_ours = spec.holderIdentity == self._identity
        if is_ours:  # one that is held still has taken back what was given under it
            lasts_s = 0.0 if self.is_held and self._is_our_epoch(found) else self._times.earlier_s
        until = self._seen_at + lasts_s
        if spec.holderIdentity and self._clock() < until:
            self._anothers_until = until
            return 0
        if not may():
            if is_ours:
                await self._release()
            return 0
        epoch = self._next_epoch(spec.acquireTime, after())
        # With its version: 409 when another one was faster.
        change = self._body(
            {"resourceVersion": version}, epoch=epoch, transitions=(spec.leaseTransitions or 0) + 1
        )
        await self._patch(change)
        self._held(began, epoch)
        return epoch

    async def renew(self) -> bool:
        """Whether it is ours still. Raises while that cannot be found out."""
        began = self._clock()
        found = await self._find()
        if found is None or found.spec.holderIdentity != self._identity or not self._is_our_epoch(found):
            return False
        await self._patch(self._body({"resourceVersion": found.metadata.resourceVersion}))
        if self.is_held:  # else it was stopped, or too late
            self._held_until = began + self._times.renew_within_s
        return True

    async def _release(self) -> None:
        found = await self._find()
        if found is not None and found.spec.holderIdentity == self._identity:
            meta = {"resourceVersion": found.metadata.resourceVersion}
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
            await self._patch(msgspec.json.encode({**_KIND, "metadata": meta, "spec": spec}))
            log.info("lease released", name=self._name)

    async def _find(self) -> _Lease | None:
        try:
            body = await self._client.get(
                f"{self._path}/{self._name}", timeout_s=self._times.request_s, max_bytes=MAX_LEASE_BYTES
            )
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return msgspec.json.decode(body, type=_Lease)

    async def _patch(self, body: bytes) -> None:
        await self._client.patch(f"{self._path}/{self._name}", body, query=(), headers=_PATCH)

    def _held(self, began: float, epoch: int) -> None:
        self._epoch = epoch
        self._held_until = began + self._times.renew_within_s

    def _next_epoch(self, before: datetime | None, known: int) -> int:
        """The present second, or the next after all that were: clocks of replicas differ, and may be set
        back."""
        earlier = max(known, int(before.timestamp()) if before is not None else 0)
        return min(MAX_EPOCH, max(int(self._wall_clock()), earlier + 1))

    def _is_our_epoch(self, found: _Lease) -> bool:
        return found.spec.acquireTime is not None and int(found.spec.acquireTime.timestamp()) == self._epoch

    def _now(self) -> str:
        return micro_time(datetime.fromtimestamp(self._wall_clock(), UTC))

    def _body(self, meta: Mapping[str, str], *, epoch: int | None = None, transitions: int = 0) -> bytes:
        spec: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._times.duration_s,
            "renewTime": self._now(),
        }
        if epoch is not None:
            spec["acquireTime"] = micro_time(datetime.fromtimestamp(epoch, UTC))
            spec["leaseTransitions"] = transitions
        return msgspec.json.encode({**_KIND, "metadata": meta, "spec": spec})

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ClusterError):
            return str(error)
        return (
            f"no response within {self._times.request_s:g}s"
            if isinstance(error, TimeoutError)
            else "the response is not a Lease"
        )


def micro_time(moment: datetime) -> str:
    """A metav1.MicroTime."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
