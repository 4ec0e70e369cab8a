"""What users and bystanders see on a bad day."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.restarts import Readers, Stage
from benchmarks.witness import Witness

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GROUP = "visibility.trainer.kubeflow.org"
THROUGH, DIRECT = "through kube-apiserver", "from a replica"
STUCK_S = 30.0  # a namespace that takes longer to be deleted


@dataclass
class Reads:
    """Of one kind, on one day."""

    asked: int = 0
    failed: int = 0
    gap_s: float = 0.0  # the longest time without an answer
    why: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    last_at: float = field(default_factory=time.monotonic)

    def count(self, fault: str | None) -> None:
        self.asked += 1
        now = time.monotonic()
        if fault is not None:
            self.failed += 1
            self.why[fault[:160]] += 1
            return
        self.gap_s = max(self.gap_s, now - self.last_at)
        self.last_at = now


@dataclass
class Day:
    """What was seen from its beginning until it was healed."""

    reads: dict[str, Reads] = field(default_factory=lambda: {THROUGH: Reads(), DIRECT: Reads()})
    discovery: Reads = field(default_factory=Reads)
    namespaces: int = 0  # that were made and deleted
    namespace_s: float = 0.0  # the slowest deletion


class Users(Readers):
    """Those of benchmarks.restarts, counted by their way."""

    def __init__(self, stage: Stage, witness: Witness, token: str) -> None:
        super().__init__(stage, witness, token)
        self.day = Day()

    async def json(self, url: str, **headers: str) -> Any:
        reads = self.day.reads[THROUGH if url.startswith(self.front) else DIRECT]
        try:
            found = await super().json(url, **headers)
        except (aiohttp.ClientError, TimeoutError) as error:
            reads.count(_brief(error))
            raise
        reads.count(None)
        return found


class Bystanders:
    """Others of the cluster: kubectl's discovery, and the namespace controller's deletions."""

    def __init__(self, users: Users, stage: Stage, token: str) -> None:
        self._users, self._stage = users, stage
        self._headers = {"Authorization": f"Bearer {token}"}
        self._base = f"https://localhost:{stage.plane.server.port}"

    async def discover(self) -> None:
        day = self._users.day
        try:
            url, headers = f"{self._base}/apis", self._headers | {"Accept": DISCOVERY}
            async with self._stage.http.get(url, headers=headers) as answer:
                answer.raise_for_status()
                groups = (await answer.json())["items"]
            ours = [v for g in groups if g["metadata"]["name"] == GROUP for v in g["versions"]]
            fresh = bool(ours) and all(each["freshness"] == "Current" for each in ours)
            day.discovery.count(None if fresh else "our group is stale, or not there")
        except (aiohttp.ClientError, TimeoutError) as error:
            day.discovery.count(_brief(error))
        await asyncio.sleep(1)

    async def namespaces(self) -> None:
        """Make one and delete it, until it is gone."""
        url = f"{self._base}/api/v1/namespaces"
        name = f"passing-{time.monotonic_ns():x}"
        async with self._stage.http.post(
            url, json={"metadata": {"name": name}}, headers=self._headers
        ) as answer:
            answer.raise_for_status()
        async with self._stage.http.delete(f"{url}/{name}", headers=self._headers) as answer:
            answer.raise_for_status()
        began, day = time.monotonic(), self._users.day
        while True:
            async with self._stage.http.get(f"{url}/{name}", headers=self._headers) as answer:
                if answer.status == 404:
                    break
            day.namespace_s = max(day.namespace_s, time.monotonic() - began)
            await asyncio.sleep(0.1)
        self._users.day.namespaces += 1
        await asyncio.sleep(1)


def _brief(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status}"
    return type(error).__name__
