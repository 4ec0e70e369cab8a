"""What every bad day needs: two replicas, jobs, and what a node and a Service do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.control_plane import ControlPlane
from benchmarks.fleet import BEAT_S, Fleet
from benchmarks.processes import free_port
from benchmarks.restarts import PLAIN, Manner, Pushers, Replica, Stage
from benchmarks.scene import ALL
from benchmarks.witness import INTERVAL_S
from tests.e2e.api import write_kubeconfig
from tests.e2e.manifests import ROOT, path_of
from tests.e2e.tcp_proxy import TcpProxy

from .way import Way

SECRET = "visibility-api-certificate"
CONTROLLERS = "kube-controller-manager"
PROBE = "/readyz?exclude=watch-trainjobs&exclude=watch-jobsets&exclude=watch-jobs&exclude=watch-pods"
PROBE_S, FAILURES = 2.0, 3  # of a replica, until the Service forwards to it no longer
CURRENT_S = INTERVAL_S + BEAT_S + 5  # a steady job's report is at most so old
HEALED_S = max(180.0, 3 * INTERVAL_S)  # at most, after the fault has ended


class Ground(Stage):
    """See above. `gates`: the ways to each replica's port, for the other replicas."""

    def __init__(
        self, directory: Path, plane: ControlPlane, fleet: Fleet, http: aiohttp.ClientSession, way: Way
    ) -> None:
        super().__init__(directory, plane, fleet, http)
        self.way = way
        self.kubeconfig = plane.kubeconfig(way.port)
        self.ca = None
        self.gates = {port: TcpProxy(port) for port in self.ports}
        self.peer_host = "127.0.0.1"
        self.complaints: list[str] = []  # of a day about itself
        self.pushers: Pushers  # set at once
        self.headers: dict[str, str] = {}
        self._failures: dict[int, int] = {}

    def certificate_flags(self) -> Sequence[str]:
        return (f"--certificate-secret={SECRET}",)

    def peers(self, port: int) -> Sequence[str]:
        return [f"{self.peer_host}:{gate.port}" for to, gate in self.gates.items() if to != port]

    def keep_certificates(self) -> None:
        """The replicas make their own, as deploy/base has it."""
        for thing in yaml.safe_load_all((ROOT / "deploy/base/certificate.yaml").read_text()):
            self.plane.api.apply(path_of(thing), thing)

    @property
    def front(self) -> str:
        return f"https://localhost:{self.plane.server.port}"

    def owner_and_follower(self) -> tuple[Replica, Replica]:
        holder = self.owner()
        one, other = self.running
        return (one, other) if holder.endswith(f"_{one.port}") else (other, one)

    async def replace(self, old: Replica, manner: Manner = PLAIN) -> Replica:
        """As a rolling update does."""
        new = self.replica(manner)
        await new.start()
        await old.end(signal.SIGTERM)
        return new

    async def kubelet(self) -> None:
        """Probe readiness, as the Deployment says, and let the Service forward to who is ready."""
        while True:
            for replica in list(self.running):
                is_ready = await self._answers(f"https://localhost:{replica.port}{PROBE}")
                failures = 0 if is_ready else self._failures.get(replica.port, 0) + 1
                self._failures[replica.port] = failures
                ports = self.balancer.ready
                if is_ready and replica in self.running and replica.port not in ports:
                    ports.append(replica.port)
                elif failures >= FAILURES and replica.port in ports:
                    ports.remove(replica.port)
            await asyncio.sleep(PROBE_S)

    async def healed(self) -> float:
        """How long it takes until all is as before: infinite if it takes too long."""
        began = time.monotonic()
        while time.monotonic() - began < HEALED_S:
            took_s = time.monotonic() - began
            if not await self.why_ill():
                return took_s
            await asyncio.sleep(0.5)
        return float("inf")

    async def why_ill(self) -> str:
        try:
            for replica in self.running:
                if replica.port not in self.balancer.ready or not await replica.is_ready():
                    return f"{replica.name} is not ready"
                if late := self.late(await self.listed(f"https://localhost:{replica.port}")):
                    return f"{replica.name} shows an old report of {len(late)} jobs, such as {late[0]}"
            await self.listed(self.front)
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)
        return "" if len(self.running) == 2 else "a replica is missing"

    async def listed(self, base: str) -> list[Any]:
        async with self.http.get(f"{base}{ALL}", headers=self.headers) as answer:
            answer.raise_for_status()
            found: list[Any] = (await answer.json())["items"]
            return found

    def late(self, items: Iterable[Any]) -> list[str]:
        """Steady jobs whose present report is not shown."""
        shown = {
            item["metadata"]["name"]: item["status"].get("steps", {}).get("current", 0) for item in items
        }
        due_at = datetime.now(UTC) - timedelta(seconds=CURRENT_S)
        steady = [job for job in self.fleet.jobs if job.is_steady and job.quiet_from is None]
        return [job.name for job in steady if shown.get(job.name, 0) < job.last_step(due_at)]

    async def forgotten(self, accepted: dict[int, int]) -> list[str]:
        """Pushes that were accepted, and that a replica does not show; jobs that it does not have."""
        found = []
        for replica in self.running:
            items = await self.listed(f"https://localhost:{replica.port}")
            shown = {i["metadata"]["name"]: i["status"].get("steps", {}).get("current", 0) for i in items}
            for job in self.fleet.jobs:
                least = accepted.get(job.number, 0)
                if shown.get(job.name, -1) < least:
                    found.append(f"{replica.name}: {job.name} has step {shown.get(job.name)}, not {least}")
        return found

    async def notes_clock(self, replica: Replica) -> bool:
        """Whether /readyz?verbose says that the clock of this replica is wrong."""
        url = f"https://localhost:{replica.port}/readyz?verbose"
        async with self.http.get(url, headers=self.headers) as answer:
            return "kube-apiserver's, so ages are wrong" in await answer.text()

    async def _answers(self, url: str) -> bool:
        try:
            async with self.http.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    @contextlib.asynccontextmanager
    async def open_gates(self) -> AsyncIterator[None]:
        for gate in self.gates.values():
            await gate.start()
        try:
            yield
        finally:
            for gate in self.gates.values():
                await gate.stop()


@contextlib.asynccontextmanager
async def namespace_controller(plane: ControlPlane, directory: Path) -> AsyncIterator[bool]:
    """The real one; False if there is no kube-controller-manager in $KUBEBUILDER_ASSETS."""
    binary = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / CONTROLLERS
    if not os.access(binary, os.X_OK):
        yield False
        return
    url = f"https://127.0.0.1:{plane.server.port}"
    kubeconfig = write_kubeconfig(
        directory / "controllers.kubeconfig", url=url, ca_file=plane.ca_file, cert=plane.admin_pair
    )
    with (directory / "controllers.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(binary), f"--kubeconfig={kubeconfig}", "--controllers=namespace-controller"),
            *("--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"),
            *("--concurrent-namespace-syncs=4", "--v=1"),
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield True
    finally:
        process.kill()
        await process.wait()
