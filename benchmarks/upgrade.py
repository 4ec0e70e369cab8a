"""`python -m benchmarks.upgrade --from REVISION`: that version is upgraded to this one under load, and back.

Behind a real kube-apiserver ($KUBEBUILDER_ASSETS), with jobs, pushes and clients as in
`benchmarks.restarts`. Two replicas of the former version run. This version's rights are applied before, then
each replica is replaced by one of this version, and later by one of the former again. No request may fail, no
watch may be told to list again, and no document may be older or poorer than before. At last all replicas are
killed, and one of this version begins with the data directory that the former has left, and the reverse.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import uvloop

from tests.e2e.kube import find_binaries
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.manifests import apply_rights

from .control_plane import control_plane
from .fleet import Fleet
from .processes import free_port
from .restarts import COMPONENTS, Manner, Play, Pushers, Readers, Replica, Stage, beside, keep, show_stage
from .witness import QUIET, Witness

ROOT = Path(__file__).parents[1]
JOBS = 300
RELAYED_S = 2.0  # what one replica has shown, every other shows so long after that: cores are busy here
SETTLE_S = 20.0
UP, DOWN, ALONE_NEW, ALONE_OLD = STEPS = "upgrade", "back", "alone, from the former", "alone, from this one"


class Upgrade:
    """The steps; `old` and `new`: how a replica of each version is started."""

    def __init__(
        self, stage: Stage, witness: Witness, readers: Readers, pushers: Pushers, old: Manner, new: Manner
    ) -> None:
        self._stage, self._witness, self._pushers = stage, witness, pushers
        self._readers = readers
        self._old, self._new = old, new
        self.lost: list[str] = []

    async def play(self) -> None:
        self._witness.judged, self._witness.alone = frozenset(STEPS), frozenset({ALONE_NEW, ALONE_OLD})
        self._tell(QUIET)
        await asyncio.sleep(SETTLE_S)
        for step, manner in ((UP, self._new), (DOWN, self._old)):
            self._tell(step)
            for former in list(self._stage.running):
                await self._replace(former, manner)
            await asyncio.sleep(SETTLE_S)
            await self._check()
        for step, manner in ((ALONE_NEW, self._new), (ALONE_OLD, self._old)):
            self._tell(step)
            await self._alone(manner)
            await self._check()
        self._tell("")

    async def _replace(self, former: Replica, manner: Manner) -> None:
        """As a rolling update does."""
        replica = self._stage.replica(manner)
        await replica.start()
        await self._pushers.last_ones()
        await former.end(signal.SIGTERM)

    async def _alone(self, manner: Manner) -> None:
        """Every replica ends, and one of this version begins with the directory of the last."""
        *others, last = list(self._stage.running)
        for each in others:
            await each.end(signal.SIGTERM)
        await self._pushers.last_ones()
        await asyncio.sleep(1.2)
        accepted = dict(self._pushers.accepted)
        await last.end(signal.SIGKILL)
        replica = self._stage.replica(manner)
        shutil.copytree(last.directory / "data", replica.directory / "data")
        await replica.start()
        if "set aside" in replica.log():
            self.lost.append(f"[{self._witness.stage}] the state file was set aside")
        await asyncio.sleep(SETTLE_S)
        await self._check(accepted)

    async def _check(self, accepted: dict[int, int] | None = None) -> None:
        """Every push that was accepted is shown."""
        accepted = dict(self._pushers.accepted) if accepted is None else accepted
        await asyncio.sleep(1)
        for replica in self._stage.running:
            url = f"https://localhost:{replica.port}"
            shown = {
                item["metadata"]["name"]: item["status"].get("steps", {}).get("current", 0)
                for item in (await self._readers.list_of(url))["items"]
            }
            for job in self._stage.fleet.jobs:
                if shown.get(job.name, -1) < (least := accepted.get(job.number, 0)):
                    self.lost.append(
                        f"[{self._witness.stage}] {job.name}: {shown.get(job.name)}, not {least}"
                    )

    def _tell(self, step: str) -> None:
        if self._witness.stage:
            show_stage(self._witness, self._witness.stage)
        self._witness.stage = step
        if step:
            print(f"{step} …", flush=True)


async def show(revision: str, jobs: int) -> bool:
    """Whether nothing was lost."""
    binaries, missing = find_binaries()
    if missing:
        print(f"needs a real kube-apiserver: {'; '.join(missing)}", flush=True)
        return False
    began = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        tree = stack.enter_context(_checkout(revision, directory / "former"))
        plane = stack.enter_context(control_plane(directory, binaries))
        token = await asyncio.to_thread(plane.prepare)
        apply_rights(plane.api, COMPONENTS)
        fleet = Fleet(plane.api, jobs)
        kubelet, kubelet_port = KubeletServer(fleet), free_port()
        await kubelet.start(plane.kubelet_tls(), kubelet_port)
        stack.push_async_callback(kubelet.stop)
        await asyncio.to_thread(fleet.create, kubelet_port)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False, limit=64),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30),
            )
        )
        stage, witness = Stage(directory, plane, fleet, http), Witness(fleet.jobs)
        witness.may_be_stale, witness.relayed_s = True, RELAYED_S
        stage.manner = old = Manner(tree=tree)
        await stack.enter_async_context(stage.balancer.serving())
        readers, pushers = Readers(stage, witness, token), Pushers(stage, fleet.jobs, witness)
        upgrade = Upgrade(stage, witness, readers, pushers, old, Manner())
        play = Play(stage, witness, readers, pushers)
        try:
            await play.begin()
            await beside(pushers.run(), play.all_probed())
            clients = [keep(work, witness) for work in readers.loops()]
            await beside(pushers.run(), *clients, upgrade.play())
        finally:
            for replica in list(stage.running):
                await replica.end(signal.SIGKILL)
    faults: Sequence[str] = [
        *(f"{number} {kind}: {witness.examples[kind][:3]}" for kind, number in witness.faults.items()),
        *(f"{n} requests failed ({step})" for step in (UP, DOWN) if (n := witness.refused[step])),
        *(f"{n} pushes failed ({step})" for step in (UP, DOWN) if (n := pushers.refused[step])),
        *upgrade.lost[:10],
    ]
    if pushers.why:
        print(f"  pushes that were sent again: {dict(pushers.why.most_common(5))}")
    if refused := witness.examples["refused"]:
        print(f"  requests without an answer: {refused[:5]}"[:600])
    for fault in faults:
        print(f"    {fault}"[:400])
    took = f"load {os.getloadavg()[0]:.0f}, {time.perf_counter() - began:.0f} s"
    print(f"{revision} to {_head()} and back, {took}: {'NOT held' if faults else 'held'}", flush=True)
    return not faults


@contextlib.contextmanager
def _checkout(revision: str, directory: Path) -> Iterator[Path]:
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(directory), revision], check=True)
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True)


def _head() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upgrade", description=__doc__)
    parser.add_argument("--from", dest="revision", required=True, metavar="REVISION")
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(show(given.revision, given.jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
