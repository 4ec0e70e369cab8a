"""What sharing the jobs out among replicas brings, and what it survives.

    python -m benchmarks.owners [--jobs 600] [--per-s 120] [--seconds 30] [--replicas 1,2,3]
                                [--only pushes] [--faults 4]

Real servers with their log in a real NATS, beside kubernetes.py. All jobs push at one rate, to all replicas
in turn; then all are probed by exec at that rate. It tells the rate by the CPU of the busiest replica, and
what each replica and NATS took until all jobs were known. Nothing is measured before each replica is ready.

With --faults, members and owners are killed, stopped and ended meanwhile. Then: whether each replica
shows each push that was answered 200, and whether two replicas held a partition at one time, by their logs.
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
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from tests.e2e.processes import free_port
from visibility_api.replication.partitions import PARTITIONS, partition_of

from . import kubernetes
from .processes import Server, cpu_s, process, resident_mib
from .push import BEGAN, STEPS_PER_S, expect_200, message
from .scale import started_nats
from .scene import ALL, certificates, fetch, kubeconfig_for, serving

CONNECTIONS = 32  # to each replica
STOPPED_S = 25.0
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
    nats_pid: int
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
            elif found["event"] == "giving the log up":
                yield at, False, set(range(PARTITIONS))
            elif match := _HELD.match(found["event"]):
                yield at, match[1] == "taken over", set(found["partitions"])


@contextlib.asynccontextmanager
async def owners(count: int, jobs: int, *sources: str) -> AsyncIterator[Owners]:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, *ports = (free_port() for _ in range(1 + count))
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        async with contextlib.AsyncExitStack() as stack:
            nats_pid, url = await stack.enter_async_context(started_nats(directory))
            await stack.enter_async_context(
                process(
                    "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
                    port=kube_port, log=directory / "kubernetes.log",
                )
            )  # fmt: skip
            peers = tuple(f"--peers=127.0.0.1:{port}" for port in ports)
            flags = (*sources, *peers, f"--store={url}", "--store-replicas=1")
            found = Owners(
                directory=directory, tls=tls, kubeconfig=kubeconfig, ca=ca, flags=flags, nats_pid=nats_pid
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


async def reported(replica: Replica, ca: Path) -> int:
    """Jobs of which this replica shows a step."""
    assert replica.server is not None
    found, rest = 0, ""
    while True:
        page = json.loads(await fetch(replica.server, ca, f"{ALL}?limit=500{rest}"))
        found += sum("steps" in item["status"] for item in page["items"])
        if not (token := page["metadata"].get("continue")):
            return found
        rest = f"&continue={token}"


async def used_by(at: Owners) -> str:
    """CPU and memory of each process, since its start."""
    pids = [each.server.pid for each in at.running if each.server is not None]
    return ", ".join(
        f"{name} {cpu_s(pid):.1f} CPU-s {resident_mib(pid):.0f} MiB"
        for name, pid in [*((f"replica {n}", pid) for n, pid in enumerate(pids, 1)), ("NATS", at.nats_pid)]
    )


async def _ended(replica: Replica) -> None:
    await replica.stack.aclose()


class Pods(threading.Thread):
    """Push for each job at a rate, to all replicas in turn; one that is not answered 200 pushes again."""

    def __init__(self, at: Owners, jobs: int, per_s: float) -> None:
        super().__init__()
        self._at, self._jobs, self._per_s = at, jobs, per_s
        self._ends = threading.Event()
        self.pushed = self.refused = 0
        self.acknowledged = [0] * jobs  # steps
        self.answered = [time.monotonic()] * jobs
        self.longest_s = [0.0] * jobs  # between two answers of 200

    def run(self) -> None:
        context = ssl.create_default_context(cafile=self._at.ca)
        ports = [each.port for each in self._at.replicas] * CONNECTIONS
        places = [port for port in ports for _ in range(1)]
        threads = [
            threading.Thread(target=self._push, args=(context, port, range(place, self._jobs, len(places))))
            for place, port in enumerate(places)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def _push(self, context: ssl.SSLContext, port: int, numbers: Sequence[int]) -> None:
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
                        raw = socket.create_connection(("127.0.0.1", next(ports)), timeout=6)
                        connection = context.wrap_socket(raw, server_hostname="localhost")
                    now = datetime.now(UTC)
                    connection.sendall(message(number, now))
                    expect_200(connection)
                except (OSError, RuntimeError, ValueError):
                    self.refused += 1
                    if connection is not None:
                        connection.close()
                    connection = None
                    self._ends.wait(0.2)
                    continue
                self.pushed += 1
                self.acknowledged[number] = int(STEPS_PER_S * (now - BEGAN).total_seconds())
                at = time.monotonic()
                self.longest_s[number] = max(self.longest_s[number], at - self.answered[number])
                self.answered[number] = at
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
            used, before, began = [cpu_s(each.pid) for each in servers], pods.pushed, time.monotonic()
            await asyncio.sleep(seconds)
            cores = [
                (cpu_s(each.pid) - cpu) / (time.monotonic() - began)
                for each, cpu in zip(servers, used, strict=True)
            ]
            rate = (pods.pushed - before) / (time.monotonic() - began)
        finally:
            await asyncio.to_thread(pods.end)
        tell(at, jobs, f"{rate:.0f} pushes/s, {pods.refused} refused", cores, rate)
        print(
            f"{rate / sum(cores):.0f} pushes per CPU-second of all; jobs known "
            f"{[await known(each, at.ca) for each in at.running]}, with a report "
            f"{[await reported(each, at.ca) for each in at.running]}; {await used_by(at)}",
            flush=True,
        )
        return rate / max(cores)


async def faults(count: int, jobs: int, per_s: float, rounds: int) -> bool:
    async with owners(count, jobs, "--sources=push") as at:
        pods = Pods(at, jobs, per_s)
        pods.start()
        away: list[tuple[Path, float, float]] = []  # logs of those that were stopped, from when until when
        try:
            await asyncio.sleep(2.0 * jobs / per_s + 2.0)
            pods.longest_s = [0.0] * jobs
            for number in range(rounds):
                owns = [await _owns(each, at.ca) for each in at.running]
                who = at.running[owns.index(number % 2 == 1)]  # a member, then the owner of the log
                how = ("killed", "ended in order", "stopped")[number // 2 % 3]
                what = f"{'owner of the log' if number % 2 else 'member'} {how}"
                began = time.time()
                if how == "stopped":
                    assert who.server is not None
                    os.kill(who.server.pid, signal.SIGSTOP)
                    stopped, who.server = who.server, None
                    took_s = await at.until_shared()
                    await asyncio.sleep(max(0.0, STOPPED_S - took_s))
                    os.kill(stopped.pid, signal.SIGCONT)
                    away.append((who.logs[-1], began, time.time()))
                    who.server = stopped
                else:
                    await at.end(who, signal.SIGKILL if how == "killed" else signal.SIGTERM)
                    away.append((who.logs[-1], began if how == "killed" else time.time(), float("inf")))
                    took_s = await at.until_shared()
                    await at.start(who)
                longest_s, pods.longest_s = max(pods.longest_s), [0.0] * jobs
                late_s = longest_s - jobs / per_s
                print(f"{what}: all owned after {took_s:.1f} s, a push was {late_s:.1f} s late", flush=True)
                await asyncio.sleep(15.0)
        finally:
            await asyncio.to_thread(pods.end)
        await asyncio.sleep(3.0)
        lost = [await _lost(each, at.ca, pods) for each in at.running]
        twice, unowned_s = owned(at, away)
        print(
            f"{rounds} faults: {pods.pushed} pushes were answered 200, {pods.refused} were not; of those "
            f"acknowledged the replicas lack {lost}; partitions held twice: {twice or 'none'}; none was "
            f"nobody's for longer than {unowned_s:.1f} s",
            flush=True,
        )
        return not any(lost) and not twice


async def _owns(replica: Replica, ca: Path) -> bool:
    assert replica.server is not None
    for _ in range(10):
        with contextlib.suppress(RuntimeError):  # with very many jobs its token's review takes long at first
            return b"visibility_log_owner 1.0" in await fetch(replica.server, ca, "/metrics")
        await asyncio.sleep(1.0)
    raise RuntimeError(f"the replica on port {replica.port} shows no metrics")


async def _lost(replica: Replica, ca: Path, pods: Pods) -> int:
    """Jobs of which this replica shows an older step than was acknowledged."""
    assert replica.server is not None
    shown = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["status"]
        .get("steps", {})
        .get("current", 0)
        for item in json.loads(await fetch(replica.server, ca, ALL))["items"]
    }
    lost = 0
    for number, step in enumerate(pods.acknowledged):
        found = shown.get((kubernetes.namespace(number), kubernetes.job_name(number)), 0)
        if found < step:
            lost += 1
            partition = partition_of("trainjobs", kubernetes.namespace(number), kubernetes.job_name(number))
            at = (BEGAN + timedelta(seconds=step / STEPS_PER_S)).time()
            print(f"job {number} of partition {partition}: step {found}, not {step} of {at}", flush=True)
    return lost


def owned(at: Owners, away: Sequence[tuple[Path, float, float]]) -> tuple[list[str], float]:
    """By the logs: partitions that two replicas held at one time, and the longest time that one was nobody's.

    One that was stopped holds nothing meanwhile: it says so when it goes on, and writes nothing before."""
    spans: dict[int, list[tuple[float, float, Path]]] = {}
    for replica in at.replicas:
        for log in replica.logs:
            begun: dict[int, float] = {}
            ends = [(start, False, set(range(PARTITIONS))) for of, start, _ in away if of == log]
            for moment, is_taken, partitions in sorted([*events_of(log), *ends], key=lambda each: each[0]):
                for each in partitions:
                    if is_taken:
                        begun.setdefault(each, moment)
                    elif each in begun:
                        spans.setdefault(each, []).append((begun.pop(each), moment, log))
            for each, moment in begun.items():
                spans.setdefault(each, []).append((moment, float("inf"), log))
    found, longest_s = [], 0.0
    for number, all_ in spans.items():
        for (_, end, one), (begin, _, other) in itertools.pairwise(sorted(all_, key=lambda span: span[0])):
            longest_s = max(longest_s, begin - end)
            if begin < end and one != other:
                found.append(f"{number}: {one.parent} until {end:.3f}, {other.parent} from {begin:.3f}")
    return found, longest_s


async def run(given: argparse.Namespace) -> bool:
    if given.faults:
        return await faults(3, given.jobs, given.per_s, given.faults)
    for name, measure in {"pushes": throughput, "probes": probing}.items():
        if given.only not in (None, name):
            continue
        counts = [int(each) for each in given.replicas.split(",")]
        rates = [await measure(count, given.jobs, given.per_s, given.seconds) for count in counts]
        told = [
            f"{count} replicas {rate / rates[0]:.2f} x" for count, rate in zip(counts, rates, strict=True)
        ]
        print(f"{name}, of {counts[0]}:", ", ".join(told), flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owners", description=__doc__)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--per-s", type=float, default=120.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--replicas", default="1,2,3", help="how many, one run each")
    parser.add_argument("--only", choices=("pushes", "probes"))
    parser.add_argument("--faults", type=int, default=0)
    return 0 if uvloop.run(run(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
