"""`python -m benchmarks.aggregated`: through a real aggregator, and beside what it replaces.

What it replaces is reading `status.trainerStatus` of the TrainJob itself from kube-apiserver, behind which
stand etcd and a server-side apply. Needs $KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.e2e.kube import find_binaries
from tests.e2e.manifests import SERVICE_NAME

from . import kubernetes, watchers
from .control_plane import BARE_ONE, BARE_SERVICE_NAME, TRAINJOBS, ControlPlane, bare_bodies, control_plane
from .load import Client, Load, compare
from .processes import Server, cpu_s, free_port
from .scene import ALL, ONE, bare, certificates, fetch, serving, until_all_probed

JOBS = 1000
ROUNDS = 5
APPLIES = 300
WATCHERS = 100
SECONDS = 8.0
IDLE_SHARE = 0.1  # of a core
CR = TRAINJOBS.format(kubernetes.namespace(0)) + f"/{kubernetes.job_name(0)}"
ALL_CRS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
CACHED_CRS = (
    f"{ALL_CRS}?resourceVersion=0"  # from its own cache, as informers ask; else etcd would be asked, too
)
_NUMBERS = itertools.count()


async def show(jobs: int = JOBS) -> None:
    binaries, missing = find_binaries()
    if missing:
        print(f"{'kube-apiserver':<22} not measured: {'; '.join(missing)}", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        with control_plane(directory, binaries) as plane:
            token = plane.prepare()
            plane.create_jobs(jobs)
            await _measure(plane, directory, token, jobs)


async def _measure(plane: ControlPlane, directory: Path, token: str, jobs: int) -> None:
    cert, key, ca = certificates(directory, SERVICE_NAME, BARE_SERVICE_NAME)
    tls = ("--cert", str(cert), "--key", str(key))
    port = free_port()
    async with serving(directory, tls, plane.kubeconfig(), port, "--sources=status") as ours:
        await until_all_probed(ours, ca, jobs, token=token)
        one = await fetch(ours, ca, ONE, token=token)
        async with bare(tls, directory, bare_bodies(one)) as ceiling:
            plane.register_ours(port, ca)
            plane.register_bare(ceiling.port, ca)
            plane.wait_available(ONE)
            plane.wait_available(BARE_ONE)
            await _settle(plane.server)
            await _read(plane, ours, ceiling, ca, token, jobs)
            await _write(plane, token)


async def _settle(server: Server, patience_s: float = 60.0) -> None:
    """Until kube-apiserver is idle: what registers with it makes it work out its OpenAPI documents anew."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while asyncio.get_running_loop().time() < deadline:
        before = cpu_s(server.pid)
        await asyncio.sleep(2.0)
        if cpu_s(server.pid) - before < IDLE_SHARE * 2.0:
            return


async def _read(plane: ControlPlane, ours: Server, ceiling: Server, ca: Path, token: str, jobs: int) -> None:
    headers = (("Authorization", f"Bearer {token}"),)
    theirs, mine = Client(ca_file=plane.ca_file, headers=headers), Client(ca_file=ca, headers=headers)
    through = [await _through(theirs, plane.server, (ours, ONE), (ceiling, BARE_ONE)) for _ in range(ROUNDS)]
    for title, most in (("a second", True), ("us CPU, both servers", False)):
        pick = max if most else min
        aggregated, bare_one = (pick(found[place][most] for found in through) for place in (0, 1))
        ratio = aggregated / bare_one if most else bare_one / aggregated
        print(
            f"{'GET, aggregated':<22} ours {aggregated:.0f} {title}   bare {bare_one:.0f}   "
            f"{ratio:.2f} of the ceiling",
            flush=True,
        )
    _tell_beside("GET", *await compare(mine, (ours, ONE)), *await compare(theirs, (plane.server, CR)))
    theirs, mine = replace(theirs, connections=2), replace(mine, connections=2)
    my_mb = len(await fetch(ours, ca, ALL, token=token)) / 1e6
    their_mb = len(await fetch(plane.server, plane.ca_file, CACHED_CRS, token=token)) / 1e6
    _tell_beside(
        f"LIST {jobs}, {my_mb:.1f}/{their_mb:.1f} MB",
        *await compare(mine, (ours, ALL), rounds=2),
        *await compare(theirs, (plane.server, CACHED_CRS), rounds=2),
    )


async def _through(
    client: Client, aggregator: Server, *behind: tuple[Server, str]
) -> list[tuple[float, float]]:
    """For each server behind it: microseconds of CPU a request, of both, and requests a second."""
    found = []
    for server, path in behind:
        before = cpu_s(server.pid)
        load = await client.get_many(aggregator, path, seconds=2.0)
        used_s = load.server_cpu_s + cpu_s(server.pid) - before
        found.append((1e6 * used_s / load.requests, load.per_s))
    return found


async def _write(plane: ControlPlane, token: str) -> None:
    """One accepted update, and what it costs to tell each watcher of it."""
    update_s = await asyncio.to_thread(_apply, plane, APPLIES)
    print(
        f"{'server-side apply':<22} kube-apiserver {1000 * update_s:.2f} ms CPU an update, "
        "and a write to etcd",
        flush=True,
    )
    watching = asyncio.ensure_future(
        watchers.measure(
            plane.server, ALL_CRS, ca_file=plane.ca_file, token=token, watchers=WATCHERS, seconds=SECONDS
        )
    )
    while not watching.done():
        await asyncio.to_thread(_apply, plane, 10)
    seen = await watching
    update_us = 1e6 * update_s / WATCHERS  # of each event
    print(
        f"{'WATCH of TrainJobs':<22} kube-apiserver {seen.cpu_us - update_us:.1f} us CPU an event, "
        f"{WATCHERS} watchers",
        flush=True,
    )


def _apply(plane: ControlPlane, number: int) -> float:
    """CPU seconds of kube-apiserver for each of so many updates."""
    cpu = cpu_s(plane.server.pid)
    for _ in range(number):
        turn, job = divmod(next(_NUMBERS), plane.jobs)
        plane.apply_status(job, percentage=turn % 100)
    return (cpu_s(plane.server.pid) - cpu) / number


def _tell_beside(title: str, ours: Load, theirs: Load) -> None:
    print(
        f"{title:<22} ours {ours.cpu_ms:.3f} ms CPU ({ours.per_cpu_s:.0f} a CPU-second)   the TrainJob "
        f"itself, from kube-apiserver {theirs.cpu_ms:.3f} ms ({theirs.per_cpu_s:.0f})   "
        f"{theirs.cpu_ms / ours.cpu_ms:.0f} times as cheap",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aggregated", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
