"""`python -m benchmarks.watching`: what a watched event costs, how late it comes, what a watcher holds."""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvloop

from . import kubernetes, watchers
from .bare import WATCH
from .processes import free_port, process
from .scene import ALL, ONE, Scene, fetch, scene

JOBS = 500
SECONDS = 10.0
IDLE_WATCHERS = 1000
USERS = 40  # the watchers are shared out among them: one user may have 64
# Watchers, and changes a second: as many events as this machine's other core can take in.
CROWDS = ((1000, 50.0), (2000, 20.0))


async def show(crowds: tuple[tuple[int, float], ...] = CROWDS) -> None:
    """A line a crowd, each with a server of its own."""
    for number, changes_per_s in crowds:
        seen, bare = await beside_bare(number, changes_per_s)
        print(
            f"{f'WATCH, {number} watchers':<22} ours {seen.cpu_us:5.1f} us CPU an event at {changes_per_s:g} "
            f"changes a second   bare {bare.cpu_us:5.1f} us   {bare.cpu_us / seen.cpu_us:.2f} of the ceiling"
            f"   p99 {1000 * seen.quantile_s(0.99):.0f} ms   "
            f"{number - seen.incomplete} of {number} got every event   {seen.memory_kib:.0f} KiB a watcher",
            flush=True,
        )
    idle = await measure(IDLE_WATCHERS, 0)
    print(f"{'WATCH, memory':<22} {idle.memory_kib:.0f} KiB a watcher while nothing changes", flush=True)


async def beside_bare(number: int, changes_per_s: float) -> tuple[watchers.Delivery, watchers.Delivery]:
    """Ours, and a bare application's that sends as many events of the same size."""
    ours = await measure(number, changes_per_s)
    async with scene(1) as at:
        port, file = free_port(), at.directory / "event"
        file.write_bytes(
            b'{"type":"MODIFIED","object":%b}\n' % (await fetch(at.ours, at.ca_file, ONE)).strip()
        )
        async with process(
            "benchmarks.bare", "--port", str(port), *at.tls, "--event", str(file),
            "--events-per-s", str(changes_per_s), port=port, log=at.directory / "bare.log",
        ) as server:  # fmt: skip
            return ours, await watchers.measure(
                server, WATCH, ca_file=at.ca_file, token=kubernetes.TOKEN, watchers=number, seconds=SECONDS
            )


async def _measure(at: Scene, number: int) -> watchers.Delivery:
    return await watchers.measure(
        at.ours,
        ALL,
        ca_file=at.ca_file,
        token=kubernetes.TOKEN,
        watchers=number,
        seconds=SECONDS,
        users=USERS,
    )


async def measure(number: int, changes_per_s: float) -> watchers.Delivery:
    async with scene(JOBS, changes_per_s=changes_per_s) as at:
        return await _measure(at, number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description=__doc__)
    parser.add_argument("--watchers", type=int)
    parser.add_argument("--changes-per-s", type=float, default=50.0)
    given = parser.parse_args()
    crowds = ((given.watchers, given.changes_per_s),) if given.watchers else CROWDS
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(crowds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
