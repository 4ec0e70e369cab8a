"""What each thing costs while 10,000 jobs are probed, beside the same without probes.

    python -m benchmarks.beside [--jobs 10000] [--interval 30]

Three servers, one after the other: no probes; each probe brings another document; each probe brings the
same. CPU time is that of the server process, less what it takes for probes: those of the measured time, at
what one takes right before and after, when nobody asks the server anything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from tests.e2e.kube import find_binaries
from tests.e2e.manifests import SERVICE_NAME

from . import kubernetes, push, watchers
from .control_plane import ControlPlane, control_plane
from .load import Client, Load
from .probing import probed_every, probes_of, until_probed
from .processes import cpu_s, machine_cpu_s, waited_s
from .reading import gets_beside_lists
from .scene import ALL, API, ONE, Scene, fetch, started

JOBS = 10_000
INTERVAL_S = 30.0
ROUNDS = 3
SECONDS = 3.0  # of load a round
QUIET_S = 3.0  # before and after each
WATCHERS, WATCHED_S = 1000, 10.0
CHANGES_PER_S = 50.0  # all in the namespace that is watched, so watchers have as much to take in each time
TEAM = f"{API}/namespaces/{kubernetes.namespace(0)}/trainjobs"
PACED_PER_S = 60.0  # of each of 16 connections: what leaves the server time for other things
PUSHERS, PUSHES = 500, 8  # of each a round, within its burst; they are not probed while they push
MOST = 4 / 3  # "slows by no more than a third"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was used up to now. Also of the difference of two."""

    at_s: float
    waited_s: float  # by our server for a core: what comes late then is no fault of its own
    ours_s: float  # CPU, as are the next two
    cluster_s: float
    machine_s: float
    probes: int

    def __sub__(self, other: Moment) -> Moment:
        return Moment(
            at_s=self.at_s - other.at_s,
            waited_s=self.waited_s - other.waited_s,
            ours_s=self.ours_s - other.ours_s,
            cluster_s=self.cluster_s - other.cluster_s,
            machine_s=self.machine_s - other.machine_s,
            probes=self.probes - other.probes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing measured at one server."""

    value: float
    probes_per_s: float  # that were meanwhile
    waiting: float  # share of the time in which our server waited for a core
    unanswered: int = 0  # rounds in which nobody was answered: they have no cost, but are no good sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a server is kept busy besides what is measured."""

    title: str
    of_cluster: tuple[str, ...]
    of_server: tuple[str, ...]
    settles_s: float  # once each job was probed


def conditions(interval_s: float) -> tuple[Condition, ...]:
    probed = probed_every(interval_s)
    return (
        Condition(title="alone", of_cluster=("--still",), of_server=(), settles_s=5.0),
        Condition(title="news", of_cluster=(), of_server=probed, settles_s=interval_s),
        # Until all documents have become old: that changes each of them once.
        Condition(title="nothing new", of_cluster=("--still",), of_server=probed, settles_s=4.5 * interval_s),
    )


class Meter:
    """Tells what is measured from what goes on anyway."""

    def __init__(self, at: Scene) -> None:
        self._at = at

    async def moment(self) -> Moment:
        at = self._at
        probes = await probes_of(at.ours, at.ca_file)
        return Moment(
            at_s=asyncio.get_running_loop().time(),
            waited_s=waited_s(at.ours.pid),
            ours_s=cpu_s(at.ours.pid),
            cluster_s=cpu_s(at.cluster.pid),
            machine_s=machine_cpu_s(),
            probes=probes,
        )

    async def quiet(self) -> Moment:
        return await self.during(asyncio.sleep(QUIET_S))

    async def during(self, work: Awaitable[object]) -> Moment:
        before = await self.moment()
        await work
        return await self.moment() - before

    async def net(self, work: Callable[[], Awaitable[float]], *, rounds: int = ROUNDS) -> Figure:
        """CPU seconds for one of what `work` does, whose number it returns, with what goes on taken off."""
        quiet, used, costs = [await self.quiet()], [], []
        for _ in range(rounds):
            number = 0.0

            async def counted() -> None:
                nonlocal number
                number = await work()

            used.append(await self.during(counted()))
            quiet.append(await self.quiet())
            if number:
                costs.append(own_s(used[-1], *quiet[-2:]) / number)
        found = figure(statistics.median(costs) if costs else math.inf, used)
        return replace(found, unanswered=rounds - len(costs))


def own_s(used: Moment, *quiet: Moment) -> float:
    """CPU seconds of `used` without what the probes in it took, or the time where there are none."""
    idle_s = sum(q.ours_s for q in quiet)
    if probes := sum(q.probes for q in quiet):
        return used.ours_s - idle_s * used.probes / probes
    return used.ours_s - idle_s * used.at_s / sum(q.at_s for q in quiet)


def figure(value: float, used: list[Moment]) -> Figure:
    wall_s = sum(u.at_s for u in used)
    return Figure(
        value=value,
        probes_per_s=sum(u.probes for u in used) / wall_s,
        waiting=sum(u.waited_s for u in used) / wall_s,
    )


async def measure(
    condition: Condition, jobs: int, plane: ControlPlane | None, token: str
) -> dict[str, Figure]:
    """Everything, by name, in the order in which it is told."""
    async with started(
        jobs,
        of_cluster=(*condition.of_cluster, "--changes-in-one-namespace"),
        of_server=("--sources=exec,status,push", *condition.of_server),
        names=(SERVICE_NAME,),
        proxies=plane.front_proxy_ca.read_bytes() if plane else b"",
    ) as at:
        await until_probed(at.ours, at.ca_file, jobs)
        await asyncio.sleep(condition.settles_s)
        meter = Meter(at)
        before = await _revision(at)
        idle = await meter.during(asyncio.sleep(3 * QUIET_S))
        changes = await _revision(at) - before
        print(
            f"{condition.title:<12} {idle.probes / idle.at_s:.0f} probes and "
            f"{changes / idle.at_s:.0f} changes of documents a second: "
            f"{idle.ours_s / idle.at_s:.3f} of a core; the cluster "
            f"{idle.cluster_s / idle.at_s:.2f}, the machine {idle.machine_s / idle.at_s:.2f}; "
            f"no core free for {idle.waited_s / idle.at_s:.0%} of the time",
            flush=True,
        )
        parts: list[Callable[[], Awaitable[dict[str, Figure]]]] = [
            lambda: _reads(at, meter),
            lambda: _watches(at, meter),
            lambda: _pushes(at, meter),
        ]
        if plane is not None:
            parts.append(lambda: _aggregated(at, meter, plane, token))
        found: dict[str, Figure] = {}
        for part in parts:
            try:
                made = await part()
            # Not answered, or too late: the other parts count nevertheless.
            except (RuntimeError, OSError, ExceptionGroup) as error:
                print(f"{'':<12} not measured: {error!r}", flush=True)
                continue
            print(f"{'':<12} {'; '.join(f'{name} {f.value:.1f}' for name, f in made.items())}", flush=True)
            found |= made
        return found


async def _revision(at: Scene) -> int:
    """Each change of a document is one more."""
    meta = json.loads(await fetch(at.ours, at.ca_file, f"{ALL}?limit=1"))["metadata"]
    return int(meta["resourceVersion"])


async def _reads(at: Scene, meter: Meter) -> dict[str, Figure]:
    gets = Client(ca_file=at.ca_file, headers=at.by_token)
    lists = replace(gets, connections=2)
    loads: list[Load] = []

    async def many(client: Client, path: str) -> float:
        loads.append(await client.get_many(at.ours, path, seconds=SECONDS))
        return loads[-1].requests

    one = await meter.net(lambda: many(gets, ONE))
    singles = [load.quantile_s(0.99) for load in loads if load.requests]
    paced: list[Load] = []

    async def in_peace() -> None:
        slowly = replace(gets, most_per_s=PACED_PER_S)
        paced.extend([await slowly.get_many(at.ours, ONE, seconds=SECONDS) for _ in range(ROUNDS)])

    calm = await meter.during(in_peace())
    every = await meter.net(lambda: many(lists, ALL))
    beside: list[Load] = []

    async def both() -> None:
        beside.extend(await gets_beside_lists(at))

    used = await meter.during(both())
    return {
        "GET, us CPU": replace(one, value=1e6 * one.value),
        "p99 of GETs without pause, ms": replace(one, value=1e3 * min(singles, default=math.inf)),
        "p99 of 950 GETs a second, ms": figure(1e3 * min(load.quantile_s(0.99) for load in paced), [calm]),
        "LIST of all, ms CPU": replace(every, value=1e3 * every.value),
        "p99 of GETs beside LISTs, ms": figure(1e3 * beside[0].quantile_s(0.99), [used]),
    }


async def _watches(at: Scene, meter: Meter) -> dict[str, Figure]:
    used: list[Moment] = []

    async def observe(seconds: float) -> None:
        used.append(await meter.during(asyncio.sleep(seconds)))

    before = await meter.quiet()
    await fetch(at.cluster, at.ca_file, f"{kubernetes.CHANGES}?per-s={CHANGES_PER_S}")
    seen = await watchers.measure(
        at.ours,
        TEAM,
        ca_file=at.ca_file,
        token=kubernetes.TOKEN,
        watchers=WATCHERS,
        seconds=WATCHED_S,
        users=40,  # one user may have 64 watches
        observe=observe,
    )
    await fetch(at.cluster, at.ca_file, f"{kubernetes.CHANGES}?per-s=0")
    await asyncio.sleep(2.0)
    after = await meter.quiet()
    return {
        "event to 1,000 watchers, us CPU": figure(1e6 * own_s(used[0], before, after) / seen.events, used),
        "p99 of delivery, ms": figure(1e3 * seen.quantile_s(0.99), used),
        "events a second": figure(seen.events / used[0].at_s, used),
    }


async def _pushes(at: Scene, meter: Meter) -> dict[str, Figure]:
    async def push_all() -> float:
        # Elsewhere, for it waits for its sockets.
        await asyncio.to_thread(push.push_all, at.ours, ca=at.ca_file, jobs=PUSHERS, pushes=PUSHES)
        return PUSHERS * PUSHES

    await asyncio.to_thread(push.push_all, at.ours, ca=at.ca_file, jobs=PUSHERS, pushes=1)
    await asyncio.sleep(2.0)
    found = await meter.net(push_all, rounds=ROUNDS + 2)
    return {"push, us CPU": replace(found, value=1e6 * found.value)}


async def _aggregated(at: Scene, meter: Meter, plane: ControlPlane, token: str) -> dict[str, Figure]:
    """Through a real kube-apiserver, which takes most of it."""
    plane.register_ours(at.ours.port, at.ca_file)
    await asyncio.to_thread(plane.wait_available, ONE)
    gets = Client(ca_file=plane.ca_file, headers=(("Authorization", f"Bearer {token}"),))
    theirs: list[float] = []

    async def many() -> float:
        load = await gets.get_many(plane.server, ONE, seconds=SECONDS)
        theirs.append(load.server_cpu_s / max(1, load.requests))
        return load.requests

    ours = await meter.net(many)
    both = replace(ours, value=1e6 * (ours.value + statistics.median(theirs)))
    return {
        "GET, aggregated, us CPU of both": both,
        "of which ours": replace(ours, value=1e6 * ours.value),
    }


async def show(jobs: int = JOBS, interval_s: float = INTERVAL_S) -> None:
    """A line each: alone, beside probes, how many times as much that is, how often the server had no core."""
    kinds = conditions(interval_s)
    with contextlib.ExitStack() as stack:
        plane, token = None, ""
        binaries, missing = find_binaries()
        if missing:
            print(f"through a real aggregator: not measured: {'; '.join(missing)}", flush=True)
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
            plane = stack.enter_context(control_plane(directory, binaries))
            token = plane.prepare()
        alone, *others = [await measure(condition, jobs, plane, token) for condition in kinds]
    slow = []
    for name, first in alone.items():
        line = f"{name:<32} alone {first.value:8.2f} ({first.waiting:.0%} waiting)"
        for kind, found in zip(kinds[1:], others, strict=True):
            beside = found.get(name)
            if beside is None:
                line += f"   {kind.title} NOT MEASURED"
                slow.append(f"{name} ({kind.title})")
                continue
            ratio = beside.value / first.value
            line += (
                f"   {kind.title} {beside.value:8.2f} = {ratio:.2f}x "
                f"({beside.probes_per_s:.0f} probes/s, {beside.waiting:.0%} waiting)"
            )
            if beside.unanswered:
                line += f" NOBODY ANSWERED in {beside.unanswered} rounds"
            if (ratio > MOST or beside.unanswered) and name != "events a second":
                slow.append(f"{name} ({kind.title})")
        print(line, flush=True)
    print(f"slower by more than a third: {', '.join(slow) or 'nothing'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--interval", type=float, default=INTERVAL_S, help="seconds")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs, given.interval))
    return 0


if __name__ == "__main__":
    sys.exit(main())
