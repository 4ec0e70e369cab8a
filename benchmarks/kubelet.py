"""`python -m benchmarks.kubelet`: the kubelet of all nodes, for `benchmarks.attack`.

Pods of one namespace report at once, with the moment as their step. Of the others a file says how: `quick` as
these, `slow` after 1.7 s, `long` with megabytes that are no report.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from localcluster.machinery.node_agent import LogQuery
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.pki import KeyPair, server_context

from .fleet import Output

SLOW_S = 1.7  # the default timeout of a probe is 5 s
LONG_BYTES = 4 * 1024 * 1024
_EPOCH = 1_790_000_000.0  # steps are milliseconds since then


def step_now() -> int:
    return int((time.time() - _EPOCH) * 1000)


def moment(step: int) -> float:
    """When the report with this step was written, as seconds since 1970."""
    return _EPOCH + step / 1000


def document() -> bytes:
    return json.dumps(
        {
            "step": step_now(),
            "totalSteps": 10**12,
            "timestamp": datetime.now(UTC).isoformat(),
            "metrics": {"loss": 0.25},
        }
    ).encode()


class Agent:
    """What runs in all pods."""

    def __init__(self, quick_namespace: str, manner: Path) -> None:
        self._quick, self._manner = quick_namespace, manner

    async def _manner_of(self, namespace: str) -> str:
        manner = "quick" if namespace == self._quick else self._manner.read_text()
        if manner == "slow":
            await asyncio.sleep(SLOW_S)
        return manner

    async def exec(
        self,
        namespace: str,
        pod: str,  # noqa: ARG002 - a NodeAgent takes it
        container: str,  # noqa: ARG002 - a NodeAgent takes it
        argv: Sequence[str],  # noqa: ARG002 - a NodeAgent takes it
    ) -> Output:
        if await self._manner_of(namespace) == "long":
            return Output(b'{"timestamp": ' + b"[" * LONG_BYTES)
        return Output(document())

    async def stream_logs(
        self,
        namespace: str,
        pod: str,  # noqa: ARG002 - a NodeAgent takes it
        container: str,  # noqa: ARG002 - a NodeAgent takes it
        query: LogQuery,
    ) -> AsyncIterator[bytes]:
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} ".encode()
        if await self._manner_of(namespace) == "long":
            line = at + b'{"step": ' + b"[" * 60_000 + b"\n"
            yield (line * (LONG_BYTES // len(line)))[: query.limit_bytes or LONG_BYTES]
        else:
            yield at + document() + b"\n"


async def serve(port: int, pair: KeyPair, clients: Path, agent: Agent) -> None:
    server = KubeletServer(agent)
    await server.start(server_context(pair, clients=clients), port)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubelet", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--clients", type=Path, required=True, help="CA of kube-apiserver's certificate")
    parser.add_argument("--quick", required=True, metavar="NAMESPACE")
    parser.add_argument("--manner", type=Path, required=True, help="file that says how the others report")
    given = parser.parse_args()
    agent = Agent(given.quick, given.manner)
    uvloop.run(serve(given.port, KeyPair(given.cert, given.key), given.clients, agent))


if __name__ == "__main__":
    main()
