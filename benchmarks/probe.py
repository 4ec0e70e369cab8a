"""One exec probe: ours and the stock call of kubernetes_asyncio, in turns.

`python -m benchmarks.probe` measures it alone; with KUBEBUILDER_ASSETS, through a real kube-apiserver, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop
from kubernetes_asyncio.client import Configuration, CoreV1Api
from kubernetes_asyncio.stream import WsApiClient

from tests.jobs import rank0
from visibility_api.jobs.job import JobRef
from visibility_api.kube.client import KubeClient
from visibility_api.probing.exec_source import ExecSource
from visibility_api.reports.document import Progress

from . import kubernetes
from .processes import Server, free_port, process
from .scene import certificates

Call = Callable[[], Awaitable[None]]

ROUNDS = 16
AT_ONCE = 16  # 333 probes a second have as many in flight, a runtime taking 50 ms and more for one
CALLS = 4  # of each kind a round, for each of those: the first of them find the caches of the other kind

REF = JobRef(resource="trainjobs", namespace="team-00", name="job-00000", uid="t0")
RANK0 = rank0(pod_name="job-00000-node-0-0-abcde", pod_uid="p0", pod_ip=None, node_name=None, started_at=None)


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """CPU milliseconds of this process for one probe."""

    ours_ms: float
    stock_ms: float

    def show(self, server: str) -> None:
        print(
            f"exec probe   ours {self.ours_ms:6.2f} ms CPU   stock kubernetes_asyncio {self.stock_ms:6.2f} ms"
            f"   ratio {self.ours_ms / self.stock_ms:.2f}   ({server})",
            flush=True,
        )


def configuration(url: str, ca_file: str, token: str) -> Configuration:
    found = Configuration(host=url)
    found.ssl_ca_cert = ca_file
    found.api_key["BearerToken"] = f"Bearer {token}"
    return found


async def measure(server: Server, ca_file: Path) -> ProbeCost:
    """Against benchmarks/kubernetes.py."""
    url = f"https://127.0.0.1:{server.port}"  # in a cluster, too, it is an address
    return await compare(configuration(url, str(ca_file), kubernetes.TOKEN))


async def compare(to: Configuration) -> ProbeCost:
    """The median round of each. They take turns, for others use the same cores, and turns in going first."""
    async with KubeClient(to) as client, WsApiClient(to) as stock_client:
        source = ExecSource(client, timeout_s=30)
        stock = CoreV1Api(stock_client)

        async def ours() -> None:
            outcome = await source.probe(REF, RANK0)
            if not isinstance(outcome, Progress):
                raise RuntimeError(f"the probe brought {outcome}")

        async def theirs() -> None:
            said = await stock.connect_get_namespaced_pod_exec(
                RANK0.pod_name,
                REF.namespace,
                command=["cat", "--", RANK0.progress_path],
                container="node",
                stdout=True,
                stderr=True,
                stdin=False,
                tty=False,
            )
            if "timestamp" not in said:
                raise RuntimeError("the stock call brought no document")

        calls: list[Call] = [ours, theirs]
        rounds: dict[Call, list[float]] = {call: [] for call in calls}
        for call in calls:
            await call()
        for number in range(ROUNDS):
            for call in calls if number % 2 else calls[::-1]:
                rounds[call].append(await _cpu_ms(call))
    return ProbeCost(ours_ms=median(rounds[ours]), stock_ms=median(rounds[theirs]))


async def _cpu_ms(call: Call) -> float:
    async def in_a_row() -> None:
        for _ in range(CALLS):
            await call()

    began = time.process_time()
    await asyncio.gather(*(in_a_row() for _ in range(AT_ONCE)))
    return 1000 * (time.process_time() - began) / (CALLS * AT_ONCE)


async def run() -> None:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        port = free_port()
        async with process(
            "benchmarks.kubernetes", "--port", str(port), "--jobs", "10",
            "--cert", str(cert), "--key", str(key),
            port=port, log=directory / "kubernetes.log",
        ) as server:  # fmt: skip
            (await measure(server, ca)).show("stand-in")
        if "KUBEBUILDER_ASSETS" in os.environ:
            port, log = free_port(), directory / "kube-apiserver.log"
            said = directory / "real"
            async with process(
                "benchmarks.kube_apiserver", "--pod", RANK0.pod_name, "--namespace", REF.namespace,
                "--directory", str(said), "--ready-port", str(port), port=port, log=log,
            ):  # fmt: skip
                found = json.loads((said / "access.json").read_text())
                (await compare(configuration(**found))).show("kube-apiserver")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
