"""What a job keeps in memory, what many cost while nothing happens, and how their first list is taken.

    python -m benchmarks.memory [--jobs N ...]

Resident memory of the real server process, each number of jobs in a process of its own. Every job has had its
first document and nothing since: what the history may grow to beyond that is bounded by itself (store/).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from .processes import Server, cpu_s, free_port, peak_mib, process, resident_mib
from .scene import ALL, certificates, fetch, kubeconfig_for, serving, until_ready

NUMBERS = (0, 1_000, 10_000)
IDLE_S = 30.0
STARTS = 3
_SAMPLE = re.compile(
    rb"^(visibility_jobs|visibility_probes_total\{[^}]*Reported[^}]*\}) (\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A server that has just listed everything and asked nobody."""

    longest_wait_ms: float  # of a request for /livez during other starts: how long the loop was held up
    cpu_s: float  # of the whole process since it began
    peak: float  # MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One server with that many jobs; memory in MiB."""

    jobs: int
    start: Start
    idle_share: float  # of one core, while nothing happens
    steady: float  # every job has a document
    listed: float  # and somebody has listed them all: what was encoded stays for the next one
    peak: float  # the most it ever was


async def measure(jobs: int, *, idle_s: float) -> Held:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, ca = certificates(directory)
        tls = ("--cert", str(cert), "--key", str(key))
        kube_port, our_port = free_port(), free_port()
        kubeconfig = kubeconfig_for(directory, kube_port, ca)
        waits_ms = []
        async with process(
            "benchmarks.kubernetes", "--port", str(kube_port), "--jobs", str(jobs), *tls,
            port=kube_port, log=directory / "kubernetes.log",
        ):  # fmt: skip
            for _ in range(STARTS):
                async with serving(directory, tls, kubeconfig, our_port, "--sources=status") as ours:
                    waits_ms.append(await _longest_wait_ms(ours, ca, jobs))
            async with serving(directory, tls, kubeconfig, our_port, "--sources=status") as ours:
                await until_ready(ours, ca)
                started_s, started_mib = cpu_s(ours.pid), peak_mib(ours.pid)
                await asyncio.sleep(2.0)
                before = cpu_s(ours.pid)
                await asyncio.sleep(idle_s)
                idle_share = (cpu_s(ours.pid) - before) / idle_s
            async with serving(directory, tls, kubeconfig, our_port) as ours:
                await until_metric(ours, ca, jobs, b"visibility_probes_total")
                await asyncio.sleep(2.0)
                steady = resident_mib(ours.pid)
                for _ in range(2):
                    await fetch(ours, ca, ALL)
                await asyncio.sleep(2.0)
                listed, peak = resident_mib(ours.pid), peak_mib(ours.pid)
    # The least disturbed start counts: what else the machine does only ever adds.
    start = Start(longest_wait_ms=min(waits_ms), cpu_s=started_s, peak=started_mib)
    return Held(jobs=jobs, start=start, idle_share=idle_share, steady=steady, listed=listed, peak=peak)


async def _longest_wait_ms(server: Server, ca: Path, jobs: int) -> float:
    """Asks for /livez without a pause until all jobs are there; the longest it had to wait. Each time on a
    connection of its own, as a kubelet: of a stranger's requests on one connection the fifth has to wait."""
    longest_s, clock = 0.0, time.monotonic
    counting = asyncio.create_task(until_metric(server, ca, jobs, b"visibility_jobs"))
    while not counting.done():
        began = clock()
        await fetch(server, ca, "/livez")
        longest_s = max(longest_s, clock() - began)
        await asyncio.sleep(0.001)
    await counting
    return 1000 * longest_s


async def until_metric(server: Server, ca: Path, number: int, metric: bytes) -> None:
    """Waits until the metric has come to that number; says nothing of documents, which stay unencoded."""
    async with asyncio.timeout(300):
        while True:
            with suppress(RuntimeError):
                body = await fetch(server, ca, "/metrics")
                values = [float(m[2]) for m in _SAMPLE.finditer(body) if m[1].startswith(metric)]
                if sum(values) >= number:
                    return
            await asyncio.sleep(0.2)


def show(held: list[Held]) -> None:
    """A line a number of jobs, then what one more costs, by the difference of the last two."""
    for h in held:
        print(
            f"{h.jobs:>6} jobs   steady {h.steady:4.0f} MiB   after a LIST of all {h.listed:4.0f} MiB   "
            f"peak {h.peak:4.0f} MiB   idle {100 * h.idle_share:.1f} % of a core",
            flush=True,
        )
        print(
            f"{'':>11}   started in {h.start.cpu_s:.1f} s CPU and {h.start.peak:.0f} MiB; "
            f"the longest wait for /livez meanwhile {h.start.longest_wait_ms:.0f} ms",
            flush=True,
        )
    for few, many in itertools.pairwise(held):
        a_job = 1024 / (many.jobs - few.jobs)
        print(
            f"a job of {many.jobs}: {a_job * (many.steady - few.steady):.1f} KiB with its document, "
            f"{a_job * (many.listed - few.listed):.1f} KiB once listed"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=list(NUMBERS))
    parser.add_argument("--idle-s", type=float, default=IDLE_S)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        show([runner.run(measure(jobs, idle_s=given.idle_s)) for jobs in sorted(given.jobs)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
