"""What sharing the jobs out among replicas brings. What it survives: `owner_faults`.

    python -m benchmarks.owners [--jobs 600] [--per-s 120] [--seconds 30] [--replicas 1,2,3]
                                [--only pushes]

Real servers with their log in a real NATS, beside kubernetes.py. All jobs push at one rate, to all replicas
in turn; then all are probed by exec at that rate. It tells the rate by the CPU of the busiest replica, and
what each replica and NATS took until all jobs were known. Nothing is measured before each replica is ready.
Meanwhile a client lists a namespace at each replica in turn, and counts older documents than it was shown.
At the end each replica must show what any push was answered 200 for: those that it lacks are counted, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from tests.e2e.processes import free_port
from visibility_api.replication.nats_client import Location, NatsClient
from visibility_api.replication.partitions import PARTITIONS

from .kubernetes import NAMESPACES, job_name, namespace
from .processes import Server, cpu_s, process, resident_mib
from .push import connect, expect_200, message, step_at
from .scale import started_nats, stored
from .scene import ALL, API, certificates, fetch, kubeconfig_for, serving

CONNECTIONS = 32  # to each replica
READY_WITHIN_S = 900.0  # 30,000 jobs on a busy machine
PROGRESS_EVERY_S = 10.0
_PROBES = re.compile(rb"^visibility_probes_total\{.*\} (\S+)$", re.MULTILINE)
_HELD = re.compile(r"partitions (taken over|given up)")


@dataclass(slots=True, eq=False)
class Replica:
    port: int
    directory: Path
    stack: contextlib.AsyncExitStack
    server: Server | None = None
    logs: list[Path] = field(default_factory=list)  # of each process


@dataclass(slots=True, kw_only=True)
class Owners:
    """Replicas, by ports that stay theirs."""

    directory: Path
    tls: tuple[str, ...]
    kubeconfig: Path
    ca: Path
    flags: tuple[str, ...]
    urls: Sequence[str]  # of NATS
    nats_pid: int | None  # of the one that was started here
    replicas: list[Replica] = field(default_factory=list)

    async def start(self, replica: Replica) -> None:
        place = replica.directory / f"process-{len(replica.logs)}"
        place.mkdir(parents=True)
        replica.logs.append(place / "server.log")
        replica.stack = contextlib.AsyncExitStack()
        replica.server = await replica.stack.enter_async_context(
            serving(place, self.tls, self.kubeconfig, replica.port, *self.flags)
        )

    async def end(self, replica: Replica, how: int) -> None:
        assert replica.server is not None
        os.kill(replica.server.pid, how)
        replica.server = None
        await replica.stack.aclose()

    @property
    def running(self) -> list[Replica]:
        return [each for each in self.replicas if each.server is not None]

    async def until_ready(self) -> float:
        """How long it takes until /readyz of each that runs is 200. What is missing is printed meanwhile."""
        began = told = time.monotonic()
        async with asyncio.timeout(READY_WITHIN_S):
            while missing := [what for each in self.running if (what := await self._unready(each))]:
                if time.monotonic() - told > PROGRESS_EVERY_S:
                    told = time.monotonic()
                    print(f"after {told - began:.0f} s: {'; '.join(missing)}", flush=True)
                await asyncio.sleep(0.5)
        return time.monotonic() - began

    async def _unready(self, replica: Replica) -> str:
        """What its /readyz lacks, and what it has taken until now; empty if it is ready."""
        assert replica.server is not None
        try:
            await fetch(replica.server, self.ca, "/readyz?verbose")
        except (OSError, RuntimeError) as error:
            failed = re.findall(r"\[-\]([\w-]+)", str(error))
            pid = replica.server.pid
            used = f"{cpu_s(pid):.0f} CPU-s, {resident_mib(pid):.0f} MiB"
            return f"port {replica.port} is not ready ({' '.join(failed) or error}; {used})"
        return ""

    async def until_shared(self, within_s: float = 60.0) -> float:
        """How long it takes until each partition is held by one of those that run."""
        began = time.monotonic()
        async with asyncio.timeout(within_s):
            while len(self._held()) < PARTITIONS:  # noqa: ASYNC110 - logs of other processes
                await asyncio.sleep(0.1)
        return time.monotonic() - began

    def _held(self) -> set[int]:
        return {number for each in self.running for number in held_now(each.logs[-1])}


def held_now(log: Path) -> set[int]:
    held: set[int] = set()
    for _, is_taken, partitions in events_of(log):
        held = held | partitions if is_taken else held - partitions
    return held


def events_of(log: Path) -> Iterator[tuple[float, bool, set[int]]]:
    """When, whether partitions were taken over, and which."""
    for line in log.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            at = datetime.fromisoformat(found["timestamp"]).timestamp()
            if found["event"] == "owning the log":
                yield at, True, set(range(PARTITIONS))
            elif found["event"].startswith(("giving the log up", "lease lost")):
                yield at, False, set(range(PARTITIONS))
            elif match := _HELD.match(found["event"]):
                yield at, match[1] == "taken over", set(found["partitions"])


@contextlib.asynccontextmanager
async def owners(
    count: int, jobs: int, *sources: str, urls: Sequence[str] = (), place: Path | None = None
) -> AsyncIterator[Owners]:
    """`urls`: of servers of NATS that form a cluster; else there is one. `place`: for files that are kept."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = place or Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, *ports = (free_port() for _ in range(1 + count))
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        async with contextlib.AsyncExitStack() as stack:
            nats_pid = None
            if not urls:
                nats_pid, url = await stack.enter_async_context(started_nats(directory))
                urls = (url,)
            await stack.enter_async_context(
                process(
                    "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
                    port=kube_port, log=directory / "kubernetes.log",
                )
            )  # fmt: skip
            peers = tuple(f"--peers=127.0.0.1:{port}" for port in ports)
            store = *(f"--store={url}" for url in urls), f"--store-replicas={len(urls)}"
            flags = (*sources, *peers, *store)
            found = Owners(
                directory=directory,
                tls=tls,
                kubeconfig=kubeconfig,
                ca=ca,
                flags=flags,
                urls=urls,
                nats_pid=nats_pid,
            )
            for port in ports:
                replica = Replica(port, directory / f"replica-{port}", contextlib.AsyncExitStack())
                found.replicas.append(replica)
                await found.start(replica)
                stack.push_async_callback(_ended, replica)
            ready_s = await found.until_ready()
            shared_s = await found.until_shared(READY_WITHIN_S)
            while unknowing := [each.port for each in found.running if await known(each, ca) < jobs]:
                print(f"not all jobs are known on ports {unknowing}", flush=True)
                await asyncio.sleep(PROGRESS_EVERY_S)
            print(
                f"{count} replicas, {jobs} jobs: all ready after {ready_s:.0f} s, all jobs owned after "
                f"another {shared_s:.0f} s; {await used_by(found)}",
                flush=True,
            )
            await asyncio.sleep(8.0)  # members join within a second or two
            yield found


async def known(replica: Replica, ca: Path) -> int:
    """Jobs that this replica lists."""
    assert replica.server is not None
    with contextlib.suppress(RuntimeError):  # 503 until it may list them
        found = json.loads(await fetch(replica.server, ca, f"{ALL}?limit=1"))
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
    return 0


async def steps(replica: Replica, ca: Path) -> dict[str, int]:
    """The last step that this replica shows, of each job that has one."""
    assert replica.server is not None
    found = dict[str, int]()
    for number in range(NAMESPACES):
        path = f"{API}/namespaces/{namespace(number)}/trainjobs"
        found |= _steps(json.loads(await fetch(replica.server, ca, path)))
    return found


def _steps(page: dict[str, Any]) -> dict[str, int]:
    return {
        item["metadata"]["name"]: item["status"]["steps"]["current"]
        for item in page["items"]
        if "steps" in item["status"]
    }


async def look_for_older(at: Owners, found: Counter[str]) -> None:
    """For ever: one namespace, at each replica in turn, by a client that keeps the revision that it was
    given."""
    revision, shown = "0", dict[str, int]()
    for replica in itertools.cycle(at.running):
        assert replica.server is not None
        query = f"?resourceVersion={revision}&resourceVersionMatch=NotOlderThan"
        path = f"{API}/namespaces/{namespace(0)}/trainjobs{query}"
        try:
            page = json.loads(await fetch(replica.server, at.ca, path))
        except (OSError, RuntimeError) as error:  # a timeout, which has a Retry-After
            found[f"lists refused: {str(error)[:200]}"] += 1
            continue
        found["lists"] += 1
        now = _steps(page)
        found["older documents"] += sum(now.get(name, 0) < step for name, step in shown.items())
        found["older documents"] += int(page["metadata"]["resourceVersion"]) < int(revision)
        revision, shown = page["metadata"]["resourceVersion"], now
        await asyncio.sleep(1.0)


async def used_by(at: Owners) -> str:
    """CPU and memory of each process, since its start."""
    pids = [each.server.pid for each in at.running if each.server is not None]
    named = [(f"replica {number}", pid) for number, pid in enumerate(pids, 1)]
    if at.nats_pid is not None:
        named.append(("NATS", at.nats_pid))
    return ", ".join(f"{name} {cpu_s(pid):.1f} CPU-s {resident_mib(pid):.0f} MiB" for name, pid in named)


async def _ended(replica: Replica) -> None:
    await replica.stack.aclose()


class Pods(threading.Thread):
    """Push for each job at a rate, to all replicas in turn; one that is not answered 200 pushes again."""

    def __init__(self, at: Owners, jobs: int, per_s: float) -> None:
        super().__init__()
        self._at, self._jobs, self._per_s = at, jobs, per_s
        self._ends = threading.Event()
        self.pushed = self.refused = 0
        self.acknowledged = dict[str, int]()  # the last step, by job

    def run(self) -> None:
        context = ssl.create_default_context(cafile=self._at.ca)
        ports = [each.port for each in self._at.replicas] * CONNECTIONS
        threads = [
            threading.Thread(
                target=self._push, args=(context, place, port, range(place, self._jobs, len(ports)))
            )
            for place, port in enumerate(ports)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def _push(self, context: ssl.SSLContext, place: int, port: int, numbers: Sequence[int]) -> None:
        pause_s = self._jobs / self._per_s / len(numbers)
        due, ports = (
            time.monotonic() + random.random() * pause_s,
            itertools.cycle([port, *self._others(port)]),
        )
        connection: ssl.SSLSocket | None = None
        for number in itertools.cycle(numbers):
            if self._ends.wait(max(0.0, due - time.monotonic())):
                break
            due = max(due + pause_s, time.monotonic() - 1.0)
            while not self._ends.is_set():
                try:
                    if connection is None:
                        connection = connect(context, next(ports), place, timeout_s=6.0)
                    at = datetime.now(UTC)
                    connection.sendall(message(number, at))
                    expect_200(connection)
                except (OSError, RuntimeError, ValueError):
                    self.refused += 1
                    if connection is not None:
                        connection.close()
                    connection = None
                    self._ends.wait(0.2)
                    continue
                self.pushed += 1
                self.acknowledged[job_name(number)] = step_at(at)
                break
        if connection is not None:
            connection.close()

    def _others(self, port: int) -> list[int]:
        return [each.port for each in self._at.replicas if each.port != port]

    def end(self) -> None:
        self._ends.set()
        self.join()


async def probing(count: int, jobs: int, per_s: float, seconds: float) -> float:
    """Probes by exec a second for each core of the busiest replica."""
    interval = f"{jobs / per_s:g}s"
    flags = "--sources=exec", "--probe-interval", interval, "--probe-concurrency", "256"
    async with owners(count, jobs, *flags) as at:
        await asyncio.sleep(2.0 * jobs / per_s)
        servers = [each.server for each in at.replicas if each.server is not None]

        async def probes() -> float:
            texts = [await fetch(each, at.ca, "/metrics") for each in servers]
            return sum(float(number) for text in texts for number in _PROBES.findall(text))

        before, used, began = await probes(), [cpu_s(each.pid) for each in servers], time.monotonic()
        await asyncio.sleep(seconds)
        wall_s = time.monotonic() - began
        cores = [(cpu_s(each.pid) - cpu) / wall_s for each, cpu in zip(servers, used, strict=True)]
        rate = (await probes() - before) / wall_s
        tell(at, jobs, f"{rate:.0f} probes/s", cores, rate)
        return rate / max(cores)


def tell(at: Owners, jobs: int, what: str, cores: Sequence[float], rate: float) -> None:
    shares = [len(held_now(each.logs[-1])) for each in at.replicas]
    sizes = [resident_mib(each.server.pid) for each in at.replicas if each.server is not None]
    print(
        f"{len(cores)} replicas, {jobs} jobs, {what}: cores {' '.join(f'{each:.3f}' for each in cores)} "
        f"({sum(cores):.3f}), partitions {shares}, MiB {' '.join(f'{each:.0f}' for each in sizes)}, "
        f"{rate / max(cores):.0f} per core of the busiest",
        flush=True,
    )


async def throughput(count: int, jobs: int, per_s: float, seconds: float) -> float:
    """Pushes a second for each core of the busiest replica."""
    async with owners(count, jobs, "--sources=push") as at:
        pods = Pods(at, jobs, per_s)
        pods.start()
        try:
            while pods.pushed < 2 * jobs:  # noqa: ASYNC110 - threads count; at first each token is reviewed
                await asyncio.sleep(0.5)
            print(f"each job has pushed twice; {await used_by(at)}", flush=True)
            servers = [each.server for each in at.replicas if each.server is not None]
            used, before, in_nats = [cpu_s(each.pid) for each in servers], pods.pushed, await _in_nats(at)
            began, lists = time.monotonic(), Counter[str]()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await look_for_older(at, lists)
            wall_s = time.monotonic() - began
            cores = [(cpu_s(each.pid) - cpu) / wall_s for each, cpu in zip(servers, used, strict=True)]
            rate, in_nats_then = (pods.pushed - before) / wall_s, await _in_nats(at)
        finally:
            await asyncio.to_thread(pods.end)
        tell(at, jobs, f"{rate:.0f} pushes/s, {pods.refused} refused", cores, rate)
        messages, cpu, kib, disk_mib = (b - a for a, b in zip(in_nats, in_nats_then, strict=True))
        print(
            f"{rate / sum(cores):.0f} pushes per CPU-second of all; NATS {messages / wall_s:.0f} messages/s, "
            f"{cpu / wall_s:.3f} cores, keeps {in_nats_then[2]:.0f} KiB ({kib / wall_s:+.0f} a second), "
            f"{in_nats_then[3]:.0f} MiB on disk ({disk_mib:+.0f}); {await used_by(at)}",
            flush=True,
        )
        print(f"{pods.pushed} pushes answered 200; {dict(lists)}", flush=True)
        await asyncio.sleep(3.0)
        for each in at.running:
            shown = await steps(each, at.ca)
            lost = sum(shown.get(name, 0) < step for name, step in pods.acknowledged.items())
            print(
                f"port {each.port}: jobs known {await known(each, at.ca)}, with a report {len(shown)}; of "
                f"{len(pods.acknowledged)} jobs' last acknowledged pushes lost: {lost}",
                flush=True,
            )
        return rate / max(cores)


async def _in_nats(at: Owners) -> tuple[float, float, float, float]:
    """Messages ever stored, CPU-seconds, KiB kept, MiB of files."""
    store = NatsClient(Location(servers=at.urls, name="trainjob-visibility", replicas=1, max_bytes=2**30))
    try:
        messages, kept = await stored(store)
    finally:
        await store.close()
    files = [each for each in (at.directory / "nats").rglob("*") if each.is_file()]
    disk = sum(each.stat().st_blocks * 512 for each in files)
    return messages, cpu_s(at.nats_pid) if at.nats_pid is not None else 0.0, kept / 2**10, disk / 2**20


async def run(given: argparse.Namespace) -> None:
    for name, measure in {"pushes": throughput, "probes": probing}.items():
        if given.only not in (None, name):
            continue
        counts = [int(each) for each in given.replicas.split(",")]
        rates = [await measure(count, given.jobs, given.per_s, given.seconds) for count in counts]
        told = [
            f"{count} replicas {rate / rates[0]:.2f} x" for count, rate in zip(counts, rates, strict=True)
        ]
        print(f"{name}, of {counts[0]}:", ", ".join(told), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owners", description=__doc__)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--per-s", type=float, default=120.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--replicas", default="1,2,3", help="how many, one run each")
    parser.add_argument("--only", choices=("pushes", "probes"))
    uvloop.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
