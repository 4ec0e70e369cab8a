"""Which one of several replicas does what only one may do: a Lease of coordination.k8s.io.

The rules are those of `k8s.io/client-go/tools/leaderelection`: who finds a Lease that nobody has renewed for
its whole duration, by its own clock, takes it over. kubernetes_asyncio has such a module; it needs the
generated classes (31 MiB, decision 0017), and starts tasks that nobody owns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote

import msgspec
import structlog

from .client import Query
from .errors import ApiError, ClusterError

log = structlog.get_logger("visibility.lease")

DURATION_S, RENEW_S = 30.0, 8.0
MARGIN_S = 5.0  # who holds it stops so long before others may take over
JITTER = 0.2
LEASES = "/apis/coordination.k8s.io/v1"
_PATCH = {"Content-Type": "application/merge-patch+json"}


class LeaseClient(Protocol):
    """The part of a Kubernetes client that is used here."""

    async def get(self, path: str, *, timeout_s: float) -> bytes: ...

    async def post(self, path: str, body: bytes) -> bytes: ...

    async def patch(self, path: str, body: bytes, *, query: Query, headers: Mapping[str, str]) -> bytes: ...


class _Meta(msgspec.Struct):
    resourceVersion: str = ""


class _Spec(msgspec.Struct):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None


class _Lease(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Lease:
    """`is_held` is true while this process holds it; `run` keeps it so, or waits for it."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        """`identity` must be another one for each process."""
        self._client = client
        self._path = f"{LEASES}/namespaces/{quote(namespace)}/leases"
        self._name = name
        self._identity = identity
        self._clock = clock
        self._held_until = 0.0
        self._seen = ""  # the version that was found last
        self._seen_at = 0.0
        self._fault = ""

    @property
    def is_held(self) -> bool:
        return self._clock() < self._held_until

    async def run(self) -> None:
        """Take or renew it for ever."""
        while True:
            was_held = self.is_held
            try:
                await self.try_once()
                self._fault = ""
            except (ClusterError, msgspec.MsgspecError) as error:
                if (fault := _describe(error)) != self._fault:
                    self._fault = fault
                    log.warning("lease not renewed", name=self._name, error=fault)
            if self.is_held != was_held:
                log.info("lease held" if self.is_held else "lease lost", name=self._name)
            await asyncio.sleep(RENEW_S * random.uniform(1 - JITTER, 1 + JITTER))

    async def try_once(self) -> None:
        """One attempt. Raises ClusterError, MsgspecError."""
        began = self._clock()
        try:
            body = await self._client.get(f"{self._path}/{self._name}", timeout_s=RENEW_S)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._client.post(self._path, self._body({"name": self._name}, is_new=True))
            self._held_until = began + DURATION_S - MARGIN_S
            return
        found = msgspec.json.decode(body, type=_Lease)
        version = found.metadata.resourceVersion
        if version != self._seen:
            self._seen, self._seen_at = version, began
        lasts_s = float(found.spec.leaseDurationSeconds or DURATION_S)
        is_ours = found.spec.holderIdentity == self._identity
        if is_ours or not found.spec.holderIdentity or began - self._seen_at > lasts_s:
            # With its version: 409 when another one was faster.
            change = self._body({"resourceVersion": version}, is_new=not is_ours)
            await self._client.patch(f"{self._path}/{self._name}", change, query=(), headers=_PATCH)
            self._held_until = began + DURATION_S - MARGIN_S
        else:
            self._held_until = 0.0

    def _body(self, meta: Mapping[str, str], *, is_new: bool) -> bytes:
        now = micro_time(datetime.now(UTC))
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION_S),
            "renewTime": now,
            **({"acquireTime": now} if is_new else {}),
        }
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return msgspec.json.encode({**kind, "metadata": meta, "spec": spec})


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ClusterError) else "the Lease cannot be read"


def micro_time(moment: datetime) -> str:
    """A metav1.MicroTime."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
