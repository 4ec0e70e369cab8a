"""`python -m benchmarks.selective_watches`: what many watches with long selectors cost all others.

Users with rights in one namespace each open Table watches there, each with a selector of its own of twenty
parts, while labels of its jobs change. Another user reads one document all the time: how late is it, before
and meanwhile, what does the server use, and how many watches did it refuse?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from dataclasses import dataclass

import uvloop

from . import kubernetes
from .processes import cpu_s, resident_mib
from .scene import API, ONE, Scene, scene

JOBS = 3000
CONNECTING_AT_ONCE = 32
READS_PER_S = 100
TABLE = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
WATCHED = f"{API}/namespaces/{kubernetes.namespace(0)}/trainjobs"


@dataclass(frozen=True, slots=True)
class Round:
    """Of one user's reads, and of the server while they were made."""

    delays_s: list[float]
    core: float  # share that the server used

    def ms(self, share: float) -> float:
        ordered = sorted(self.delays_s)
        return 1000 * ordered[int(share * (len(ordered) - 1))]


def _selector(number: int) -> str:
    """Twenty parts, all of which match, and unlike any other watch's."""
    return "%2C".join([f"absent-{number}-{part}%21%3Dx" for part in range(20)])


def _any_server() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def _read(port: int, seconds: float) -> list[float]:
    """How long each read of one document takes, in seconds."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=_any_server(), local_addr=("127.0.0.2", 0)
    )
    token = f"Authorization: Bearer {kubernetes.TOKEN}\r\n"
    request = f"GET {ONE} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode()
    delays_s, began = [], time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if b"content-length" in line
        )
        await reader.readexactly(length)
        delays_s.append(time.monotonic() - now)
        await asyncio.sleep(max(0.0, 1 / READS_PER_S - delays_s[-1]))
    writer.close()
    return delays_s


async def _observe(at: Scene, seconds: float) -> Round:
    """In a process of its own: this one is busy with what the watches bring."""
    began, used_s = time.monotonic(), cpu_s(at.ours.pid)
    reading = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.selective_watches", "--read", str(at.ours.port),
        "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await reading.communicate()
    return Round(json.loads(out), (cpu_s(at.ours.pid) - used_s) / (time.monotonic() - began))


async def _watch(at: Scene, user: int, number: int, answers: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", at.ours.port, ssl=_any_server())
    query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    path = f"{WATCHED}?{query}&labelSelector={_selector(number)}"
    token = f"Authorization: Bearer {kubernetes.TOKEN}-{user}\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{TABLE}{token}\r\n".encode())
    try:
        answers.append(int((await reader.readuntil(b"\r\n\r\n")).split()[1]))
        while await reader.read(256 * 1024):
            pass
    finally:
        writer.transport.abort()


async def show(users: int, watches: int, changes_per_s: float, seconds: float) -> None:
    of_cluster = ("--changes-in-one-namespace",)
    async with scene(JOBS, changes_per_s=changes_per_s, of_cluster=of_cluster) as at:
        quiet = await _observe(at, seconds)
        before_mib = resident_mib(at.ours.pid)
        answers: list[int] = []
        slots = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def one(number: int) -> None:
            async with slots:
                task = asyncio.create_task(_watch(at, number % users, number, answers), name="watch")
                await asyncio.sleep(0.02)
            try:
                await task
            except (asyncio.IncompleteReadError, OSError):
                answers.append(0)

        crowd = [asyncio.create_task(one(number), name="watcher") for number in range(users * watches)]
        while len(answers) < len(crowd):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        under = await _observe(at, seconds)
        more_mib = resident_mib(at.ours.pid) - before_mib
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)
    print(
        f"{users} users, {watches} watches each, {changes_per_s:g} changes a second: "
        f"{answers.count(200)} opened, {answers.count(429)} refused, {answers.count(0)} cut\n"
        f"  another user's GET   quiet p50 {quiet.ms(0.5):.1f}, p99 {quiet.ms(0.99):.1f} ms   "
        f"meanwhile p50 {under.ms(0.5):.1f}, p99 {under.ms(0.99):.1f} ms\n"
        f"  the server           {under.core:.2f} of a core ({quiet.core:.2f} before), "
        f"{more_mib:.0f} MiB more",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selective_watches", description=__doc__)
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--watches", type=int, default=300, help="that each user tries to open")
    parser.add_argument("--changes-per-s", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--read", type=int, metavar="PORT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        print(json.dumps(asyncio.run(_read(given.read, given.seconds))))
        return 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(show(given.users, given.watches, given.changes_per_s, given.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
