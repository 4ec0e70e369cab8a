"""One exec probe: ours against the stock call of kubernetes_asyncio, in turns, over the same TLS."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from kubernetes_asyncio.client import Configuration, CoreV1Api
from kubernetes_asyncio.stream import WsApiClient

from visibility_api.cluster.client import KubeClient
from visibility_api.probe.exec_source import ExecSource
from visibility_api.progress.document import Progress
from visibility_api.progress.job import JobRef, Rank0

from .processes import Server

ROUNDS = 10
CALLS = 60  # of each kind a round

REF = JobRef(resource="trainjobs", namespace="team-00", name="job-00000", uid="t0")
RANK0 = Rank0(
    pod_name="job-00000-node-0-0-abcde",
    pod_uid="p0",
    pod_ip=None,
    host_network=False,
    node_name=None,
    container_name="node",
    progress_path="/tmp/trainjob-progress.json",
    is_running=True,
    is_terminating=False,
    waiting_reason="",
    restart_count=0,
    restart_attempt=0,
    started_at=None,
    last_termination=None,
    termination_message="",
)


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """CPU milliseconds of this process for one probe."""

    ours_ms: float
    stock_ms: float


def configuration(server: Server, ca_file: Path) -> Configuration:
    found = Configuration(host=f"https://localhost:{server.port}")
    found.ssl_ca_cert = str(ca_file)
    return found


async def measure(server: Server, ca_file: Path) -> ProbeCost:
    """The median round of each."""
    async with (
        KubeClient(configuration(server, ca_file)) as client,
        WsApiClient(configuration(server, ca_file)) as stock_client,
    ):
        source, stock = ExecSource(client, timeout_s=30), CoreV1Api(stock_client)

        async def ours() -> None:
            answer = await source.ask(REF, RANK0)
            if not isinstance(answer.outcome, Progress):
                raise RuntimeError(f"the probe brought {answer.outcome}")

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

        await ours()
        await theirs()
        rounds = [(await _cpu_ms(ours), await _cpu_ms(theirs)) for _ in range(ROUNDS)]
    middle = ROUNDS // 2
    return ProbeCost(
        ours_ms=sorted(r[0] for r in rounds)[middle], stock_ms=sorted(r[1] for r in rounds)[middle]
    )


async def _cpu_ms(call: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        await call()
    return 1000 * (time.process_time() - began) / CALLS
