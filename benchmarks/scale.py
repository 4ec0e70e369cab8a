"""What a job, a probe, a push, a change and a watcher cost two replicas, and what fleets would take by that.

    python -m benchmarks.scale [--jobs 4000] [--seconds 60]

Real servers, one that owns the jobs and one that follows, beside kubernetes.py. Each unit is the
difference of two runs. A mixed run of half the size then shows how far their sum is from what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tests.nats_servers import find_nats_server
from visibility_api.replication.nats_client import Location, NatsClient

from . import kubernetes, watchers
from .processes import Server, cpu_s, free_port, process, resident_mib
from .push import connect, expect_200, message
from .scene import ALL, certificates, fetch, kubeconfig_for, serving, until_ready

REPORT_S = 15.0
FEW = 200
CONNECTIONS = 32  # to each replica
WATCHERS, USERS = 200, 40
CHANGES_PER_S = 50.0
FLEETS = (1_000, 10_000, 100_000, 1_000_000)
_SAMPLE = re.compile(rb"^(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Of the owner and the follower: CPU in microseconds, memory in KiB."""

    process_us: float  # a second, whatever there is
    job_us: float  # a second: it is evaluated once a minute
    probe_us: float
    push_us: float  # half of them come to the follower, and are forwarded
    change_us: float  # of an object
    event_us: float  # to one watcher
    process_kib: float
    job_kib: float
    watcher_kib: float

    def cores(self, rates: Rates) -> float:
        return 1e-6 * (
            self.process_us
            + self.job_us * rates.jobs
            + self.probe_us * rates.probes
            + self.push_us * rates.pushes
            + self.change_us * rates.changes
            + self.event_us * rates.events
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A second, but for the jobs. `events`: to all watchers together, of this replica."""

    jobs: int
    probes: float = 0.0
    pushes: float = 0.0
    changes: float = 0.0
    events: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Of one stretch of time; by replica: the owner, the follower."""

    rates: Rates
    cores: tuple[float, float]
    mib: tuple[float, float]
    reviews: float  # a second, that kube-apiserver is asked for
    watcher_kib: float = 0.0
    nats: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two replicas, and the cluster."""

    owner: Server
    follower: Server
    cluster: Server
    ca: Path
    jobs: int
    store: NatsClient | None
    nats_pid: int


@contextlib.asynccontextmanager
async def pair(jobs: int, *flags: str, changes_per_s: float = 0.0, nats: bool = False) -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, ports = free_port(), (free_port(), free_port())
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        flags = (*flags, *(f"--peers=127.0.0.1:{port}" for port in ports))
        async with contextlib.AsyncExitStack() as stack:
            store, nats_pid = None, 0
            if nats:
                nats_pid, url = await stack.enter_async_context(started_nats(directory))
                flags = (*flags, f"--store={url}", "--store-replicas=1")
                store = NatsClient(
                    Location(servers=(url,), name="trainjob-visibility", replicas=1, max_bytes=2**30)
                )
                stack.push_async_callback(store.close)
            cluster = await stack.enter_async_context(
                process(
                    "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
                    "--changes-per-s", str(changes_per_s), port=kube_port, log=directory / "kubernetes.log",
                )
            )  # fmt: skip
            both = [
                await stack.enter_async_context(serving(directory, tls, kubeconfig, port, *flags))
                for port in ports
            ]
            for server in both:
                await until_ready(server, ca)
            owns = [False, False]
            while True not in owns:
                owns = [b"visibility_log_owner 1.0" in await fetch(each, ca, "/metrics") for each in both]
                await asyncio.sleep(0.5)
            owner, follower = both if owns[0] else reversed(both)
            await asyncio.sleep(5.0)
            yield Pair(
                owner=owner,
                follower=follower,
                cluster=cluster,
                ca=ca,
                jobs=jobs,
                store=store,
                nats_pid=nats_pid,
            )


@contextlib.asynccontextmanager
async def started_nats(directory: Path) -> AsyncIterator[tuple[int, str]]:
    port = free_port()
    child = await asyncio.create_subprocess_exec(
        find_nats_server(), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "nats"),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            await asyncio.sleep(0.1)
        yield child.pid, f"nats://127.0.0.1:{port}"
    finally:
        child.terminate()
        await child.wait()


class Pusher:
    """A thread that pushes for each of these jobs every REPORT_S, to both replicas in turn."""

    def __init__(self, at: Pair, numbers: range) -> None:
        self._at, self._numbers = at, numbers
        self._ends = threading.Event()
        self.pushed = 0

    async def warm(self) -> None:
        """Until each has pushed twice: the first one is reviewed."""
        while self.pushed < 2 * len(self._numbers):  # noqa: ASYNC110 - another thread counts
            await asyncio.sleep(0.5)

    @contextlib.contextmanager
    def running(self) -> Iterator[Pusher]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            thread.join()

    def _run(self) -> None:
        context = ssl.create_default_context(cafile=self._at.ca)

        servers = (self._at.owner, self._at.follower) * CONNECTIONS
        sockets = [connect(context, each.port, place) for place, each in enumerate(servers)]
        due, pause_s = time.monotonic(), REPORT_S * len(sockets) / len(self._numbers)
        while not self._ends.is_set():
            for first in range(0, len(self._numbers), len(sockets)):
                batch = list(zip(sockets, self._numbers[first : first + len(sockets)], strict=False))
                for connection, number in batch:
                    connection.sendall(message(number, datetime.now(UTC)))
                for place, (connection, _) in enumerate(batch):
                    try:
                        expect_200(connection)
                        self.pushed += 1
                    except RuntimeError as error:  # a pod would push again
                        print(error, flush=True)
                        connection.close()
                        sockets[place] = connect(context, servers[place].port, place)
                due += pause_s
                if self._ends.wait(max(0.0, due - time.monotonic())):
                    break
        for each in sockets:
            each.close()


async def observe(
    at: Pair, seconds: float, *, pusher: Pusher | None = None, changes: float = 0.0, crowd: int = 0
) -> Seen:
    """`crowd`: watchers of all jobs at the follower."""
    both = (at.owner, at.follower)
    seen: Seen | None = None

    async def count(within_s: float) -> None:
        nonlocal seen
        before, pushed = [await _samples(at, each) for each in both], pusher.pushed if pusher else 0
        used, stored = [cpu_s(each.pid) for each in both], await _stored(at)
        began = time.monotonic()
        await asyncio.sleep(within_s)
        cores = [cpu_s(each.pid) - cpu for each, cpu in zip(both, used, strict=True)]
        wall_s = time.monotonic() - began
        pushes = (pusher.pushed if pusher else 0) - pushed
        after, stored_then = [await _samples(at, each) for each in both], await _stored(at)
        probes = after[0]["visibility_probes_total"] - before[0]["visibility_probes_total"]
        reviews = sum(
            now[name] - then[name]
            for now, then in zip(after, before, strict=True)
            for name in ("apiserver_delegated_authn_request_total", "apiserver_delegated_authz_request_total")
        )
        told = [(b - a) / wall_s for a, b in zip(stored, stored_then, strict=True)]
        nats = f"NATS {told[0]:.0f} messages/s, {told[1] / 1024:.0f} KiB/s, {told[2]:.3f} cores"
        seen = Seen(
            rates=Rates(jobs=at.jobs, probes=probes / wall_s, pushes=pushes / wall_s, changes=changes),
            cores=(cores[0] / wall_s, cores[1] / wall_s),
            mib=(resident_mib(at.owner.pid), resident_mib(at.follower.pid)),
            reviews=reviews / wall_s,
            nats=nats if at.store is not None else "",
        )

    if not crowd:
        await count(seconds)
        assert seen is not None
        return seen
    delivered = await watchers.measure(
        at.follower, ALL, ca_file=at.ca, token=kubernetes.TOKEN, watchers=crowd, seconds=seconds,
        users=USERS, observe=count,
    )  # fmt: skip
    assert seen is not None
    rates = Rates(
        jobs=at.jobs,
        probes=seen.rates.probes,
        pushes=seen.rates.pushes,
        changes=changes,
        events=delivered.events / seconds,
    )
    return Seen(
        rates=rates,
        cores=seen.cores,
        mib=seen.mib,
        reviews=seen.reviews,
        watcher_kib=delivered.memory_kib,
        nats=seen.nats,
    )


async def _samples(at: Pair, server: Server) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(await fetch(server, at.ca, "/metrics")):
        found[name.decode()] = found.get(name.decode(), 0.0) + float(value)
    for name in (
        "visibility_probes_total",
        *(f"apiserver_delegated_{k}_request_total" for k in ("authn", "authz")),
    ):
        found.setdefault(name, 0.0)
    return found


async def _stored(at: Pair) -> tuple[float, float, float]:
    """Messages that NATS has ever stored, bytes that it keeps, and its CPU."""
    if at.store is None:
        return 0.0, 0.0, 0.0
    return *await stored(at.store), cpu_s(at.nats_pid)


async def stored(store: NatsClient) -> tuple[float, float]:
    """Messages that NATS has ever stored, and bytes that it keeps."""
    messages = kept = 0.0
    jetstream = await store._open()
    for stream in (store.location.stream, store.location.bucket):
        state = (await jetstream.stream_info(stream)).state
        messages, kept = messages + state.last_seq, kept + state.bytes
    return messages, kept


# --- the runs


def tell(title: str, seen: Seen) -> Seen:
    rates = seen.rates
    print(
        f"{title:<28} {rates.jobs:>6} jobs {rates.probes:5.0f} probes/s {rates.pushes:5.0f} pushes/s "
        f"{rates.changes:3.0f} changes/s {rates.events:6.0f} events/s   owner {seen.cores[0]:.3f} cores "
        f"{seen.mib[0]:4.0f} MiB   follower {seen.cores[1]:.3f} cores {seen.mib[1]:4.0f} MiB   "
        f"{seen.reviews:.0f} reviews/s   {seen.nats}",
        flush=True,
    )
    return seen


async def measure(jobs: int, seconds: float) -> tuple[Units, Units]:
    probing = "--probe-interval", f"{REPORT_S:g}s", "--probe-concurrency", "256"
    async with pair(FEW, "--sources=push") as at:
        few = tell("few jobs", await observe(at, seconds))
    async with pair(jobs, "--sources=push") as at:
        idle = tell("nothing happens", await observe(at, seconds))
    async with pair(jobs, "--sources=push", changes_per_s=CHANGES_PER_S) as at:
        changing = tell("labels change", await observe(at, seconds, changes=CHANGES_PER_S))
    async with pair(jobs, "--sources=push") as at:
        with Pusher(at, range(jobs)).running() as pusher:
            await pusher.warm()
            pushing = tell("all push", await observe(at, seconds, pusher=pusher))
            watched = tell("all push, watched", await observe(at, seconds, pusher=pusher, crowd=WATCHERS))
    async with pair(jobs, "--sources=exec", *probing) as at:
        await asyncio.sleep(2 * REPORT_S)
        probed = tell("all are probed by exec", await observe(at, seconds))

    def units(replica: int) -> Units:
        def cores(seen: Seen) -> float:
            return 1e6 * seen.cores[replica]

        job_us = max(0.0, cores(idle) - cores(few)) / (jobs - FEW)
        process_us = cores(few) - job_us * FEW
        push_us = (cores(pushing) - cores(idle)) / pushing.rates.pushes
        without = cores(idle) + push_us * watched.rates.pushes
        process_kib = 1024 * (
            few.mib[replica] - (pushing.mib[replica] - few.mib[replica]) * FEW / (jobs - FEW)
        )
        return Units(
            process_us=process_us,
            job_us=job_us,
            probe_us=(cores(probed) - cores(idle)) / probed.rates.probes,
            push_us=push_us,
            change_us=(cores(changing) - cores(idle)) / CHANGES_PER_S,
            event_us=(cores(watched) - without) / watched.rates.events if replica else 0.0,
            process_kib=process_kib,
            job_kib=1024 * (max(probed.mib[replica], pushing.mib[replica]) - few.mib[replica]) / (jobs - FEW),
            watcher_kib=watched.watcher_kib if replica else 0.0,
        )

    return units(0), units(1)


async def check(jobs: int, seconds: float, both: tuple[Units, Units]) -> None:
    """Half of the jobs push and the others are probed, beside changes and watchers."""
    probing = "--probe-interval", f"{REPORT_S:g}s", "--probe-concurrency", "256"
    async with pair(jobs, "--sources=exec,push", *probing, changes_per_s=5.0) as at:
        with Pusher(at, range(jobs // 2)).running() as pusher:
            await pusher.warm()
            seen = tell("mixed", await observe(at, seconds, pusher=pusher, changes=5.0, crowd=WATCHERS // 2))
    for name, units, cores, mib in zip(("owner", "follower"), both, seen.cores, seen.mib, strict=True):
        predicted = units.cores(seen.rates)
        kib = units.process_kib + units.job_kib * jobs + units.watcher_kib * WATCHERS / 2
        print(
            f"{name:<28} predicted {predicted:.3f} cores, measured {cores:.3f} ({cores / predicted:.2f} x)   "
            f"predicted {kib / 1024:.0f} MiB, measured {mib:.0f} ({1024 * mib / kib:.2f} x)",
            flush=True,
        )


async def with_nats(jobs: int, seconds: float) -> None:
    async with pair(jobs, "--sources=push", nats=True) as at:
        with Pusher(at, range(jobs)).running() as pusher:
            await pusher.warm()
            tell("all push, log in NATS", await observe(at, seconds, pusher=pusher))


def project(owner: Units, follower: Units) -> None:
    """All jobs run; half push every 15 s, the others are probed. A watcher for each 100 jobs, at the
    follower, of a namespace with 100 jobs. Churn is 5 objects a second for each 100,000 jobs."""
    print(f"owner     {owner}\nfollower  {follower}")
    for jobs in FLEETS:
        each = jobs / 2 / REPORT_S
        events = jobs / 100 * 100 / REPORT_S
        rates = Rates(jobs=jobs, probes=each, pushes=each, changes=jobs / 20_000, events=events)
        cores = owner.cores(Rates(jobs=jobs, probes=each, pushes=each, changes=jobs / 20_000))
        gib = (owner.process_kib + owner.job_kib * jobs) / 2**20
        follows = (follower.process_kib + follower.job_kib * jobs + follower.watcher_kib * jobs / 100) / 2**20
        print(
            f"{jobs:>9} jobs   owner {cores:6.2f} cores {gib:6.2f} GiB   "
            f"follower {follower.cores(rates):6.2f} cores {follows:6.2f} GiB   "
            f"kube-apiserver {each:.0f} execs/s",
            flush=True,
        )


async def run(jobs: int, seconds: float) -> None:
    both = await measure(jobs, seconds)
    await check(jobs // 2, seconds, both)
    await with_nats(jobs, seconds)
    project(*both)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(given.jobs, given.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
