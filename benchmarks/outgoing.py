"""`python -m benchmarks.outgoing`: a push relayed to one peer, and a GET of the http source, with what a
hostile pod can do to it. The http source's own client is compared with aiohttp (decision 0012).

CPU of this process alone; the peer and the pod are processes of their own that send fixed bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import aiohttp
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.probing import http_exchange
from visibility_api.probing.http_source import HttpSource
from visibility_api.pushing.admission import Grant
from visibility_api.pushing.ownership import Membership
from visibility_api.pushing.relayed import PATH as PUSHES_PATH
from visibility_api.pushing.replication import Relay
from visibility_api.reports.document import Progress
from visibility_api.reports.fields import MAX_DOCUMENT_BYTES

from .pod import FLOOD
from .probe import RANK0, REF
from .processes import free_port, process
from .push import PATH, message
from .scene import certificates

ROUNDS = 8
PUSHES = 1000  # a round, each of another pod
GETS, AT_ONCE = 400, 16
FLOOD_TIMEOUT_S = 3.0  # of one GET; --probe-timeout is 10 s by default
PUSH_PATH = PATH.format("team-00", "job-00000")

Get = Callable[[int, str], Awaitable[None]]  # port and path


async def relay_us(port: int, certificate: bytes) -> float:
    """CPU microseconds for one push: the median round. All of a round wait at once."""
    outcomes: Counter[str] = Counter()
    relay = Relay(
        (f"127.0.0.1:{port}",),
        port=1,
        certificate=lambda: certificate,
        proof=lambda: "0" * 64,
        count=lambda outcome, pushes: outcomes.update({outcome: pushes}),
    )
    now = datetime.now(UTC)
    pushes = [(_grant(number), message(number, 0, now).partition(b"\r\n\r\n")[2]) for number in range(PUSHES)]
    running = asyncio.create_task(relay.run())
    try:
        while not outcomes["Accepted"]:  # until the peer's name has been resolved
            relay.pushed(PUSH_PATH, pushes[0][0], "attempt", pushes[0][1])
            await asyncio.sleep(0.2)
        rounds = []
        for _ in range(ROUNDS):
            expected = outcomes["Accepted"] + PUSHES
            began = time.process_time()
            for grant, body in pushes:
                relay.pushed(PUSH_PATH, grant, "attempt", body)
            await _until(lambda expected=expected: outcomes["Accepted"] >= expected)  # type: ignore[misc]
            rounds.append(1e6 * (time.process_time() - began) / PUSHES)
        return median(rounds)
    finally:
        running.cancel()
        await asyncio.wait([running])


def _grant(number: int) -> Grant:
    member = Membership(
        job_uid=f"{number:08}-0000-4000-8000-000000000000",
        pod_name=f"job-{number:05}-node-0-0-abcde",
        pod_uid=f"{number:08}-0000-4000-8000-000000000001",
        restart_attempt=0,
    )
    bucket = Bucket(per_s=1.0, burst=1.0, now=0.0)
    return Grant(credential=bytes(32), membership=member, bucket=bucket, until=time.monotonic() + 60)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


async def ours(port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await http_exchange.get(reader, writer, host="pod", path=path, max_body_bytes=MAX_DOCUMENT_BYTES)
    finally:
        writer.transport.abort()


async def theirs(port: int, path: str) -> None:
    """aiohttp, set as tightly as its documented options allow."""
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=8190,
            max_field_size=8190,
            max_headers=64,
        ) as session,
        session.get(f"http://127.0.0.1:{port}{path}", allow_redirects=False) as response,
    ):
        await response.content.read(MAX_DOCUMENT_BYTES + 1)


async def get_us(get: Get, port: int) -> float:
    """CPU microseconds for one GET with its connection."""

    async def in_a_row() -> None:
        for _ in range(GETS // AT_ONCE):
            await get(port, "/metrics")

    began = time.process_time()
    await asyncio.gather(*(in_a_row() for _ in range(AT_ONCE)))
    return 1e6 * (time.process_time() - began) / GETS


@dataclass(frozen=True, slots=True)
class Flooded:
    cpu_ms: float
    blocked_ms: float  # the longest time in which nothing else in this process ran


async def flooded(get: Get, port: int) -> Flooded:
    longest_s, loop = 0.0, asyncio.get_running_loop()

    async def watch() -> None:
        nonlocal longest_s
        while True:
            began = loop.time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.monotonic() - began - 0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    began = time.process_time()
    with contextlib.suppress(TimeoutError, http_exchange.NotHTTP):
        async with asyncio.timeout(FLOOD_TIMEOUT_S):
            await get(port, FLOOD.decode())
    cpu_ms = 1000 * (time.process_time() - began)
    await asyncio.sleep(0.01)
    watching.cancel()
    return Flooded(cpu_ms=cpu_ms, blocked_ms=1000 * longest_s)


async def probe_works(port: int) -> None:
    """That what is measured is what the source does."""

    async def connect(_address: str, port: int) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    rank0 = replace(RANK0, pod_ip="192.0.2.1", http_port=port)
    found = await HttpSource(timeout_s=30, connect=connect).probe(REF, rank0)
    if not isinstance(found, Progress):
        raise RuntimeError(f"the probe brought {found}")


async def show() -> None:
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        directory = Path(name)
        cert, key, _ = certificates(directory)
        der = x509.load_pem_x509_certificate(cert.read_bytes()).public_bytes(Encoding.DER)
        answer = directory / "answer.json"
        answer.write_bytes(b'{"refused":0}')
        peer_port, pod_port = free_port(), free_port()
        async with (
            process(
                "benchmarks.bare", "--port", str(peer_port), "--cert", str(cert), "--key", str(key),
                "--body", f"{PUSHES_PATH}={answer}", port=peer_port, log=directory / "peer.log",
            ),
            process(
                "benchmarks.pod", "--port", str(pod_port), port=pod_port, log=directory / "pod.log"
            ),
        ):  # fmt: skip
            print(f"relayed push {await relay_us(peer_port, der):.0f} us CPU for each peer", flush=True)
            await probe_works(pod_port)
            rounds: dict[Get, list[float]] = {ours: [], theirs: []}
            for number in range(ROUNDS):
                for get in (ours, theirs) if number % 2 else (theirs, ours):
                    rounds[get].append(await get_us(get, pod_port))
            own_us, aiohttp_us = median(rounds[ours]), median(rounds[theirs])
            print(
                f"http GET     ours {own_us:.0f} us CPU   aiohttp {aiohttp_us:.0f} us   "
                f"ratio {own_us / aiohttp_us:.2f}",
                flush=True,
            )
            for title, get in (("ours", ours), ("aiohttp", theirs)):
                found = await flooded(get, pod_port)
                print(
                    f"http flood   {title}: {found.cpu_ms:.0f} ms CPU within {FLOOD_TIMEOUT_S:g} s, "
                    f"nothing else ran for {found.blocked_ms:.0f} ms",
                    flush=True,
                )


def main() -> int:
    uvloop.run(show())
    return 0


if __name__ == "__main__":
    sys.exit(main())
