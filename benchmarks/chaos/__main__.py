"""`python -m benchmarks.chaos`: what users see on bad days, what is lost, and how long it takes to heal.

Behind a real kube-apiserver ($KUBEBUILDER_ASSETS), with two replicas and 300 jobs, of which a third each
report by file, log and push. Clients list, get, watch and print tables all the time, through the aggregator
and from each replica. Others discover the cluster's APIs, and make and delete namespaces, with the real
namespace controller where kube-controller-manager is there too. Exits with 1 if something was lost, if others
were hurt although a replica lived, or if it did not heal within three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.control_plane import control_plane
from benchmarks.fleet import MANNERS, Fleet
from benchmarks.processes import free_port
from benchmarks.restarts import COMPONENTS, Play, Pushers, beside, keep
from benchmarks.witness import QUIET, Witness
from tests.e2e.kube import find_binaries
from tests.e2e.kubelet_server import KubeletServer
from tests.e2e.manifests import apply_rights

from .days import DAYS
from .ground import Ground, namespace_controller
from .seen import DIRECT, STUCK_S, THROUGH, Bystanders, Day, Users
from .way import Way

JOBS = 300
AFTER_S = 5.0  # seen of each day when it is healed
CALM_S = 10.0  # before the first day, and between two


class Calendar:
    """The days, one after the other."""

    def __init__(self, at: Ground, witness: Witness, users: Users, *, has_controllers: bool) -> None:
        self._at, self._witness, self._users = at, witness, users
        self._has_controllers = has_controllers
        self.bad: list[str] = []

    async def live(self, names: Sequence[str]) -> None:
        self._witness.judged = frozenset(DAYS)
        self._witness.stage = QUIET
        await asyncio.sleep(CALM_S)
        for name in names or DAYS:
            await self._live(name)

    async def _live(self, name: str) -> None:
        day, at = DAYS[name], self._at
        if day.prepare is not None:
            await day.prepare(at)
        before = Counter(self._witness.faults)
        self._users.day = seen = Day()
        self._witness.stage, self._witness.relayed_s = name, day.behind_s
        print(f"{name} …", flush=True)
        done = await day.make(at)
        print(f"  {done}", flush=True)
        meanwhile = Counter(self._witness.faults) - before
        healed_s = await at.healed()
        ill = await at.why_ill() if healed_s == float("inf") else ""
        accepted = dict(at.pushers.accepted)
        await asyncio.sleep(AFTER_S)
        forgotten = await at.forgotten(accepted)
        lost = dict(Counter(self._witness.faults) - before) | (
            {"accepted pushes": len(forgotten)} if forgotten else {}
        )
        for kind in day.meanwhile & lost.keys():
            print(f"  {kind}: {meanwhile[kind]} meanwhile")
            if (left := lost.pop(kind) - meanwhile[kind]) > 0:
                lost[kind] = left
        if day.may_relist and (number := lost.pop("relist", 0)):
            print(f"  {number} watches listed again")
        faults = list(_faults(name, seen, lost, healed_s, ill, has_controllers=self._has_controllers))
        faults += at.complaints
        at.complaints = []
        self._show(name, seen, lost, healed_s, faults)
        for each in (*forgotten[:3], *(x for kind in lost for x in self._witness.examples[kind][-3:])):
            print(f"    {each}"[:240], flush=True)
        if faults:
            self.bad.append(name)
        self._witness.stage = QUIET
        await asyncio.sleep(CALM_S)

    def _show(
        self, name: str, seen: Day, lost: dict[str, int], healed_s: float, faults: Sequence[str]
    ) -> None:
        behind_s = self._witness.behind_s.get(name, 0.0)
        print(f"  watches resumed: {self._witness.resumed[name]}; replicas {behind_s:.1f} s apart at most")
        for way, reads in seen.reads.items():
            why = ", ".join(f"{n} {text}" for text, n in Counter(reads.why).most_common(3))
            print(
                f"  reads {way}: {reads.failed} of {reads.asked} failed{f' ({why})' if why else ''},"
                f" {reads.gap_s:.1f} s without an answer"
            )
        found = seen.discovery
        why = ", ".join(f"{n} {text}" for text, n in Counter(found.why).most_common(3))
        deleted = (
            f"{seen.namespaces} namespaces deleted, the slowest in {seen.namespace_s:.1f} s"
            if self._has_controllers
            else "namespaces: NOT TRIED"
        )
        print(
            f"  others: discovery {found.failed} of {found.asked} failed{f' ({why})' if why else ''};"
            f" {deleted}\n"
            f"  lost: {lost or 'nothing'}; healed after {healed_s:.0f} s; load {os.getloadavg()[0]:.0f};"
            f" {'NOT HELD: ' + '; '.join(faults) if faults else 'held'}",
            flush=True,
        )


def _faults(
    name: str, seen: Day, lost: dict[str, int], healed_s: float, ill: str, *, has_controllers: bool
) -> Iterator[str]:
    day = DAYS[name]
    if lost:
        yield f"lost {lost}"
    if healed_s == float("inf"):
        yield f"not healed: {ill}"
    for way in (THROUGH, DIRECT):
        if seen.reads[way].failed and not day.may_fail:
            yield f"{seen.reads[way].failed} reads {way} failed"
    if day.is_others:
        return
    if seen.discovery.failed:
        yield f"discovery failed {seen.discovery.failed} times"
    if has_controllers and seen.namespace_s > STUCK_S:
        yield f"a namespace took {seen.namespace_s:.0f} s to be deleted"


async def show(names: Sequence[str], jobs: int, *, are_steady: bool) -> bool:
    """Whether all held."""
    binaries, missing = find_binaries()
    if missing:
        print(f"needs a real kube-apiserver: {'; '.join(missing)}", flush=True)
        return False
    began = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        plane = stack.enter_context(control_plane(directory, binaries))
        token = await asyncio.to_thread(plane.prepare)
        apply_rights(plane.api, COMPONENTS)
        fleet = Fleet(plane.api, jobs, manners=("steady",) if are_steady else MANNERS)
        kubelet, kubelet_port = KubeletServer(fleet), free_port()
        await kubelet.start(plane.kubelet_tls(), kubelet_port)
        stack.push_async_callback(kubelet.stop)
        await asyncio.to_thread(fleet.create, kubelet_port)
        print(f"{jobs} jobs created, {time.perf_counter() - began:.0f} s", flush=True)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30),
            )
        )
        way = Way(plane.server.port, plane.ca_file, plane.kubelet_files()[0])
        await stack.enter_async_context(way.serving())
        at = Ground(directory, plane, fleet, http, way)
        await asyncio.to_thread(at.keep_certificates)
        at.headers = {"Authorization": f"Bearer {token}"}
        await stack.enter_async_context(at.open_gates())
        await stack.enter_async_context(at.balancer.serving())
        has_controllers = await stack.enter_async_context(namespace_controller(plane, directory))
        bad = await _play(at, token, names, has_controllers=has_controllers)
    print(f"not held: {', '.join(bad) or 'none'}; {time.perf_counter() - began:.0f} s", flush=True)
    return not bad


async def _play(at: Ground, token: str, names: Sequence[str], *, has_controllers: bool) -> list[str]:
    witness = Witness(at.fleet.jobs)
    witness.may_be_stale = True
    users = Users(at, witness, token)
    pushers = at.pushers = Pushers(at, at.fleet.jobs, witness)
    play = Play(at, witness, users, pushers)
    others = Bystanders(users, at, token)
    calendar = Calendar(at, witness, users, has_controllers=has_controllers)
    try:
        await play.begin()
        await beside(pushers.run(), play.all_probed())
        await asyncio.to_thread(at.fleet.change)
        work = [*users.loops(), others.discover, *([others.namespaces] if has_controllers else [])]
        clients = [keep(each, witness) for each in work]
        await beside(pushers.run(), *clients, at.kubelet(), calendar.live(names))
    finally:
        for replica in list(at.running):
            await replica.end(signal.SIGKILL)
    return calendar.bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="DAY", help=f"only these: {'; '.join(DAYS)}")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--steady", action="store_true", help="no job hangs, fails or ends by itself")
    given = parser.parse_args()
    if unknown := set(given.names) - set(DAYS):
        parser.error(f"there is no day called {', '.join(sorted(unknown))}")
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(show(given.names, given.jobs, are_steady=given.steady)) else 1


if __name__ == "__main__":
    sys.exit(main())
