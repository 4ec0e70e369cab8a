"""How many probes two replicas make of the same jobs in a minute: of this checkout, and of another before it.

    KUBEBUILDER_ASSETS=… python -m benchmarks.probes_of_replicas [--before DIRECTORY] [--jobs 300]

Behind a real kube-apiserver; the pods' kubelet is a stand-in, and it counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import uvloop

from localcluster.machinery.node_agent import LogQuery
from tests.e2e.kube import find_binaries
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.manifests import apply_rights, server_flags

from .control_plane import control_plane
from .fleet import Fleet, Output
from .processes import free_port
from .restarts import COMPONENTS, READY_WITHIN_S, Stage

HERE = Path(__file__).parents[1]
INTERVAL_S, SETTLE_S, FOR_S = 15, 40.0, 60.0
REPLICAS = 2


class CountedFleet(Fleet):
    """A fleet that counts what its pods are asked for."""

    asked: Counter[str]

    async def exec(self, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Output:
        self.asked["execs"] += 1
        return await super().exec(namespace, pod, container, argv)

    async def stream_logs(
        self, namespace: str, pod: str, container: str, query: LogQuery
    ) -> AsyncIterator[bytes]:
        self.asked["reads of logs"] += 1
        async for line in super().stream_logs(namespace, pod, container, query):
            yield line


async def count(checkout: Path, stage: Stage, fleet: CountedFleet) -> Counter[str]:
    """What the pods were asked for in FOR_S seconds by REPLICAS servers of this checkout."""
    ports = [free_port() for _ in range(REPLICAS)]
    processes = [await _start(checkout, stage, number, ports) for number in range(REPLICAS)]
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            for port in ports:
                while not await _is_ready(stage, port):  # noqa: ASYNC110 - a process of its own
                    await asyncio.sleep(0.2)
        await asyncio.sleep(SETTLE_S)  # first probes are made in advance of their interval
        fleet.asked.clear()
        await asyncio.sleep(FOR_S)
        return fleet.asked.copy()
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def _start(
    checkout: Path, stage: Stage, number: int, ports: Sequence[int]
) -> asyncio.subprocess.Process:
    directory = stage.directory / f"{checkout.name}-{number}"
    directory.mkdir()
    with (directory / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "visibility_api", "serve", "--kubeconfig", str(stage.kubeconfig)),
            *("--bind-address", "127.0.0.1", "--secure-port", str(ports[number])),
            *("--tls-cert-file", str(stage.cert), "--tls-private-key-file", str(stage.key)),
            *("--data-dir", str(directory / "data"), "--probe-interval", f"{INTERVAL_S}s"),
            *(f"--peers=127.0.0.1:{port}" for port in ports),
            *server_flags(COMPONENTS),
            stdout=log,
            stderr=log,
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": f"{checkout}:{checkout / 'reporter'}"},
        )


async def _is_ready(stage: Stage, port: int) -> bool:
    try:
        async with stage.http.get(f"https://localhost:{port}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def show(checkouts: Sequence[Path], jobs: int) -> int:
    binaries, missing = find_binaries()
    if missing:
        print(f"needs a real kube-apiserver: {'; '.join(missing)}", flush=True)
        return 1
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        plane = stack.enter_context(control_plane(directory, binaries))
        await asyncio.to_thread(plane.prepare)
        apply_rights(plane.api, COMPONENTS)
        fleet = CountedFleet(plane.api, jobs)
        fleet.asked = Counter()
        kubelet, kubelet_port = KubeletServer(fleet), free_port()
        await kubelet.start(plane.kubelet_tls(), kubelet_port)
        try:
            await asyncio.to_thread(fleet.create, kubelet_port)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
                stage = Stage(directory, plane, fleet, http)
                for checkout in checkouts:
                    asked = await count(checkout, stage, fleet)
                    each = ", ".join(f"{number} {what}" for what, number in sorted(asked.items()))
                    which = "after" if checkout == HERE else "before"
                    print(
                        f"{which:<7} {REPLICAS} replicas, {jobs} jobs each {INTERVAL_S} s, "
                        f"in {FOR_S:.0f} s: {each}, together {asked.total()}",
                        flush=True,
                    )
        finally:
            await kubelet.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probes_of_replicas", description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout whose server is measured first")
    parser.add_argument("--jobs", type=int, default=300)
    given = parser.parse_args()
    checkouts = [*([given.before.resolve()] if given.before else []), HERE]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(show(checkouts, given.jobs))


if __name__ == "__main__":
    sys.exit(main())
