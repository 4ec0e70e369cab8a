"""What a scrape of /metrics/jobs costs the server: CPU of its process, through TLS.

    python -m benchmarks.job_metrics [--jobs 10000] [--interval 30]

First nothing changes between two scrapes. Then every job is probed between them, so that most lines are made
anew; of the CPU time of such a scrape, what probing takes in that time by itself is not its own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

import uvloop

from .probing import probed_every, until_probed
from .processes import cpu_s
from .scene import Scene, fetch, scene, started

SCRAPES = 5
PATH = "/metrics/jobs"


async def _scrape(at: Scene, *, idle: float) -> tuple[float, int]:
    """CPU seconds of one scrape, and its bytes; `idle`: CPU seconds a second without it."""
    before, began = cpu_s(at.ours.pid), time.perf_counter()
    size = len(await fetch(at.ours, at.ca_file, PATH))
    return cpu_s(at.ours.pid) - before - idle * (time.perf_counter() - began), size


async def _scrapes(at: Scene, between_s: float) -> tuple[list[float], int]:
    used, size = [], 0
    await fetch(at.ours, at.ca_file, PATH)
    for _ in range(SCRAPES):
        before = cpu_s(at.ours.pid)
        await asyncio.sleep(between_s)
        took, size = await _scrape(at, idle=(cpu_s(at.ours.pid) - before) / between_s)
        used.append(took)
    return used, size


async def show(jobs: int, interval_s: float) -> None:
    flags = ("--job-metrics", "50000", "--job-metric-names", "loss")
    async with scene(jobs, of_server=flags) as at:
        used, size = await _scrapes(at, 1.0)
    _print("SAME", jobs, used, size)
    async with started(jobs, of_server=(*flags, *probed_every(interval_s))) as at:
        await until_probed(at.ours, at.ca_file, jobs)
        used, size = await _scrapes(at, interval_s)
    _print("CHANGED", jobs, used, size)


def _print(name: str, jobs: int, used: list[float], size: int) -> None:
    print(
        f"{name:<12} {jobs} jobs, {size / 1e6:.1f} MB: {1000 * statistics.median(used):.0f} ms CPU a scrape "
        f"(from {1000 * min(used):.0f} to {1000 * max(used):.0f})",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_metrics", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between probes, and scrapes")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs, given.interval))
    return 0


if __name__ == "__main__":
    sys.exit(main())
