"""`python -m benchmarks.reading`: GET and LIST, against a bare ASGI application behind the same TLS."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace

import uvloop

from .load import Client, Load, compare
from .processes import Server, cpu_s, resident_mib
from .scene import ALL, ONE, Scene, bare, fetch, scene

JOBS = 5000
# Often enough to be measured, seldom enough that every list is of another state, as it is for those who poll.
CHANGES_PER_S, LISTS_PER_S, LISTS_S = 50, 5.0, 15.0
ROUNDS = 3
SECONDS = 3.0
TABLE_SECONDS = 11.0  # ages are made anew every 5 s: at least two times a round
TABLE = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
GZIP = ("Accept-Encoding", "gzip")


async def show(jobs: int = JOBS) -> None:
    """A line a measurement."""
    async with scene(jobs) as at:
        print(f"{jobs} jobs with a document each: {resident_mib(at.ours.pid):.0f} MiB resident", flush=True)
        bodies = {path: await fetch(at.ours, at.ca_file, path) for path in (ONE, ALL)}
        async with bare(at.tls, at.directory, bodies) as ceiling:
            by_token = Client(ca_file=at.ca_file, headers=at.by_token)
            _tell("GET, by token", *await compare(by_token, (at.ours, ONE), (ceiling, ONE)))
            by_proxy = Client(
                ca_file=at.ca_file, headers=at.by_proxy, certificate=at.proxy_certificate, connections=16
            )
            _tell("GET, by front proxy", *await compare(by_proxy, (at.ours, ONE), (ceiling, ONE)))
            lists = Client(ca_file=at.ca_file, headers=at.by_token, connections=2)
            size = f"{len(bodies[ALL]) / 1e6:.1f} MB"
            _tell(f"LIST {jobs}, {size}", *await compare(lists, (at.ours, ALL), (ceiling, ALL)))
            await _compare_tables(at, lists)
            (zipped,) = await compare(
                Client(ca_file=at.ca_file, headers=(*at.by_token, GZIP), connections=2), (at.ours, ALL)
            )
            print(f"{f'LIST {jobs}, gzip':<22} ours {zipped.cpu_ms:7.3f} ms CPU, compressed once", flush=True)
            one, every = await gets_beside_lists(at)
            print(
                f"{'GET beside LISTs':<22} p50 {1000 * one.quantile_s(0.5):.1f} ms   "
                f"p99 {1000 * one.quantile_s(0.99):.1f} ms   "
                f"at {one.per_s:.0f} GETs and {every.per_s:.0f} LISTs a second",
                flush=True,
            )
    async with scene(jobs, changes_per_s=CHANGES_PER_S) as at:
        for title, headers in ((f"LIST {jobs}, changing", ()), ("the same, gzip", (GZIP,))):
            cpu_ms = await _lists_amid_changes(at, headers)
            print(
                f"{title:<22} ours {cpu_ms:7.3f} ms CPU, {LISTS_PER_S:g} a second while {CHANGES_PER_S} jobs "
                f"change a second",
                flush=True,
            )


async def _compare_tables(at: Scene, lists: Client) -> None:
    """What `kubectl get` requests beside the same list as JSON, in turns."""
    tables = replace(lists, headers=(*lists.headers, TABLE))
    rounds = [
        [await client.get_many(at.ours, ALL, seconds=TABLE_SECONDS) for client in (lists, tables)]
        for _ in range(ROUNDS)
    ]
    document, table = (min(load.cpu_ms for load in loads) for loads in zip(*rounds, strict=True))
    print(
        f"{'LIST as Table':<22} ours {table:7.3f} ms CPU   the same as JSON {document:7.3f} ms   "
        f"{table / document:.2f} times as much",
        flush=True,
    )


def _tell(title: str, ours: Load, ceiling: Load) -> None:
    print(
        f"{title:<22} ours {ours.cpu_ms:7.3f} ms CPU ({ours.per_cpu_s:6.0f} a CPU-second)   bare "
        f"{ceiling.cpu_ms:7.3f} ms ({ceiling.per_cpu_s:6.0f})   {ceiling.cpu_ms / ours.cpu_ms:.2f} of the "
        f"ceiling   p99 {1000 * ours.quantile_s(0.99):.1f} ms",
        flush=True,
    )


async def gets_beside_lists(at: Scene) -> tuple[Load, Load]:
    """Single documents while the server sends long lists, one after the other: the least disturbed round."""
    gets = Client(ca_file=at.ca_file, headers=at.by_token, connections=4)
    lists = Client(ca_file=at.ca_file, headers=at.by_token, connections=1)
    rounds = [
        await asyncio.gather(
            gets.get_many(at.ours, ONE, seconds=SECONDS), lists.get_many(at.ours, ALL, seconds=SECONDS)
        )
        for _ in range(ROUNDS)
    ]
    return min(rounds, key=lambda found: found[0].quantile_s(0.99))


async def _lists_amid_changes(at: Scene, headers: tuple[tuple[str, str], ...]) -> float:
    """CPU milliseconds of a LIST, each of a state nobody saw before, beyond what the changes cost."""
    before = await _idle_share(at.ours)
    lists = Client(
        ca_file=at.ca_file, headers=(*at.by_token, *headers), connections=1, most_per_s=LISTS_PER_S
    )
    found = await lists.get_many(at.ours, ALL, seconds=LISTS_S)
    share = (before + await _idle_share(at.ours)) / 2
    return 1000 * (found.server_cpu_s - share * found.wall_s) / found.requests


async def _idle_share(server: Server, seconds: float = 5.0) -> float:
    cpu = cpu_s(server.pid)
    await asyncio.sleep(seconds)
    return (cpu_s(server.pid) - cpu) / seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
