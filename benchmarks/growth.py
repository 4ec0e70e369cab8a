"""`python -m benchmarks.growth`: the same figures with ever more jobs and ever more watchers. Slow."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from . import watching
from .load import Client, compare
from .processes import resident_mib
from .scene import ALL, ONE, fetch, scene

JOBS = (100, 1_000, 5_000, 10_000, 20_000)
CROWDS = ((1, 50.0), (10, 50.0), (100, 50.0), (1_000, 50.0), (2_000, 20.0))


async def show() -> None:
    """Two tables, as docs/performance.md has them."""
    print("| jobs | GET, ms CPU | LIST, ms CPU | LIST, MB | ms CPU a MB | memory, MiB |")
    print("|---|---|---|---|---|---|", flush=True)
    for jobs in JOBS:
        print(await _jobs_line(jobs), flush=True)
    print("| watchers | changes a second | us CPU an event | p50, ms | p99, ms | complete | KiB a watcher |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for number, changes_per_s in CROWDS:
        seen = await watching.measure(number, changes_per_s)
        print(
            f"| {number} | {changes_per_s:g} | {seen.cpu_us:.1f} | {1000 * seen.quantile_s(0.5):.0f} | "
            f"{1000 * seen.quantile_s(0.99):.0f} | {number - seen.incomplete} | {seen.memory_kib:.0f} |",
            flush=True,
        )


async def _jobs_line(jobs: int) -> str:
    async with scene(jobs) as at:
        memory_mib = resident_mib(at.ours.pid)
        size_mb = len(await fetch(at.ours, at.ca_file, ALL)) / 1e6
        (one,) = await compare(Client(ca_file=at.ca_file, headers=at.by_token), (at.ours, ONE))
        lists = Client(ca_file=at.ca_file, headers=at.by_token, connections=2)
        (every,) = await compare(lists, (at.ours, ALL))
    return (
        f"| {jobs} | {one.cpu_ms:.3f} | {every.cpu_ms:.2f} | {size_mb:.1f} | {every.cpu_ms / size_mb:.2f} | "
        f"{memory_mib:.0f} |"
    )


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show())
    return 0


if __name__ == "__main__":
    sys.exit(main())
