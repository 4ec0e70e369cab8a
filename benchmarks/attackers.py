"""`python -m benchmarks.attackers NAME`: one attack on a server of this machine, for so many seconds.

Every attack is bounded in connections and in time, and reaches loopback addresses only. Prints a line when it
is under way, and at the end how often it was answered, by HTTP status, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import uvloop

from visibility_api.pushing.body import MAX_BODY_BYTES

from . import kubernetes
from .push import PATH as PUSH, token
from .scene import ALL, API, ONE

YAML = "Accept: application/yaml\r\n"
TABLE = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
BROWSER = "Accept: text/html,*/*;q=0.8\r\nUser-Agent: Mozilla/5.0\r\n"
ELSEWHERE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")  # other addresses than the users'
PATIENCE_S = 60.0
BIG_HEAD = b"GET / HTTP/1.1\r\n" + b"".join([b"X-%d: %b\r\n" % (n, b"x" * 9000) for n in range(100)])

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@dataclass(slots=True, kw_only=True)
class Target:
    """The server, the tokens of one user who may list and of one who may nothing, and what came back."""

    port: int
    token: str
    weak_token: str
    on_way: int = 1  # so many connections begun: the attack is under way
    answers: Counter[str] = field(default_factory=Counter)
    is_under_way: asyncio.Event = field(default_factory=asyncio.Event)
    _begun: int = 0
    _tls: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def connect(self, address: str = "127.0.0.2") -> tuple[Reader, Writer]:
        connecting = asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self._tls, local_addr=(address, 0), limit=64 * 1024 * 1024
        )
        if self.on_way == 1:
            self.count_begun()
        reader, writer = await connecting
        if self.on_way > 1:
            self.count_begun()
        return reader, writer

    def count_begun(self) -> None:
        self._begun += 1
        if self._begun == self.on_way:
            self.is_under_way.set()

    async def ask(self, reader: Reader, writer: Writer, path: str, headers: str = "") -> None:
        """One request and its whole answer."""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        await self.read(reader)

    async def read(self, reader: Reader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.answers[head.split()[1].decode()] += 1
        if b"\r\ntransfer-encoding: chunked\r\n" not in head:
            await reader.readexactly(int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]))
            return
        size = 1
        while size:
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + len(b"\r\n"))

    def bearer(self, token: str | None = None) -> str:
        """A header with this token, or with one that nobody has."""
        return f"Authorization: Bearer {token or os.urandom(300).hex()}\r\n"


Attack = Callable[[Target], Awaitable[None]]


async def _crowd(number: int, one: Callable[[int], Awaitable[None]]) -> None:
    """`one` again and again in each of so many tasks; a connection that is refused is made again."""

    async def always(place: int) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError, ValueError, RuntimeError, asyncio.LimitOverrunError):
                await one(place)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for place in range(number):
            group.create_task(always(place))


def repeating(
    number: int, request: Callable[[Target, int], tuple[str, str]], *, lone: bool = False
) -> Attack:
    """Each of so many connections sends requests without pause; `lone`: all from the users' own address."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            address = "127.0.0.1" if lone else ELSEWHERE[place % len(ELSEWHERE)]
            reader, writer = await target.connect(address)
            try:
                while True:
                    await target.ask(reader, writer, *request(target, place))
            finally:
                writer.transport.abort()

        await _crowd(number, one)

    return attack


def keeping(number: int, message: bytes = b"", *, path: str = ONE) -> Attack:
    """Each of so many connections is known by one request with a token that counts, then sends this and
    nothing more. 100 are opened at a time: of thousands most would be closed before they are known."""

    async def attack(target: Target) -> None:
        opening = asyncio.Semaphore(100)

        async def one(place: int) -> None:
            async with opening:
                reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            try:
                await target.ask(reader, writer, path, target.bearer(target.token))
                writer.write(message)
                await reader.read()
            finally:
                writer.transport.abort()

        await _crowd(number, one)

    return attack


def holding(number: int, message: Callable[[Target], bytes], *, drip: bytes = b"") -> Attack:
    """Each of so many connections sends a message, reads nothing, and then sends `drip` once a second."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            _, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of every socket's transport
            try:
                writer.write(message(target))
                while not writer.transport.is_closing():
                    await asyncio.sleep(1.0)
                    writer.write(drip)
            finally:
                writer.transport.abort()

        await _crowd(number, one)

    return attack


async def together(target: Target) -> None:
    """1,000 new connections that send their first requests at the same moment, every three seconds."""

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        try:
            await asyncio.sleep(3.0 - time.monotonic() % 3.0)
            for _ in range(4):  # then answers are delayed
                await target.ask(reader, writer, f"{ONE}?x={'a' * 1500}", target.bearer())
        finally:
            writer.transport.abort()

    await _crowd(1000, one)


async def leaving(target: Target) -> None:
    """100 lists as YAML at a time, whose clients leave soon; each of another namespace or selection."""

    async def one(_: int) -> None:
        reader, writer = await target.connect()
        selection = f"?labelSelector=team!=x{random.randrange(10**9)}"
        try:
            async with asyncio.timeout(0.5):
                await target.ask(reader, writer, ALL + selection, YAML + target.bearer(target.token))
        except TimeoutError:
            target.answers["left"] += 1
        finally:
            writer.transport.abort()

    await _crowd(100, one)


async def pushing(target: Target) -> None:
    path = PUSH.format(kubernetes.namespace(0), kubernetes.job_name(0))

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        try:
            while True:
                head = (
                    f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n{target.bearer()}\r\n"
                )
                writer.write(head.encode() + b"{}")
                await target.read(reader)
        finally:
            writer.transport.abort()

    await _crowd(200, one)


def hostile_pushes(pods: int) -> Attack:
    """So many pods of one namespace push as often as they may, each time what is largest and costliest."""

    async def attack(target: Target) -> None:
        jobs_of_namespace = 60

        async def one(place: int) -> None:
            number, rank = place % jobs_of_namespace * kubernetes.NAMESPACES, place // jobs_of_namespace
            path, bearer = (
                PUSH.format(kubernetes.namespace(number), kubernetes.job_name(number)),
                token(number, rank),
            )
            reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
            try:
                while True:
                    began = time.monotonic()
                    body = random.choice(HOSTILE)()
                    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                    writer.write(f"{head}Authorization: Bearer {bearer}\r\n\r\n".encode() + body)
                    await target.read(reader)
                    await asyncio.sleep(max(0.0, began + 0.05 - time.monotonic()))
            finally:
                writer.transport.abort()

        await _crowd(pods, one)

    return attack


def _many_metrics() -> bytes:
    """Each time others, so that all of them are recorded."""
    now = datetime.now(UTC).isoformat()
    pairs = [{"name": f"{n:03}" + "\u200b" * 25, "value": random.random()} for n in range(256)]
    status = {"lastUpdatedTime": now, "progressPercentage": random.randrange(100), "metrics": pairs}
    return json.dumps({"trainerStatus": status}, ensure_ascii=False).encode()


def _many_values() -> bytes:
    """A document with as many earlier values as are read."""
    rows = range(100, 0, -1)
    columns = {f"m{n}": [random.random() for _ in rows] for n in range(20)}
    recent = {"secondsBefore": [each / 10 for each in rows], "metrics": columns}
    document = {"timestamp": datetime.now(UTC).isoformat(), "step": random.randrange(1000), "recent": recent}
    return json.dumps(document).encode()


def _of_parts(part: bytes, *, before: bytes = b"", after: bytes = b"") -> Callable[[], bytes]:
    body = before + part * ((MAX_BODY_BYTES - len(before) - len(after)) // len(part)) + after
    return lambda: body


HOSTILE: tuple[Callable[[], bytes], ...] = (
    _of_parts(b"[", after=b"\xff"),
    _of_parts(b"[]," , before=b"[", after=b"[]]\xff"),
    _of_parts(b'{"":0},', before=b'{"timestamp":"2026-01-23T10:30:45Z","x":['),
    _of_parts(b'"a":1e23,', before=b'{"timestamp":"2026-01-23T10:30:45Z","metrics":{', after=b'"b":1}}'),
    _of_parts(b"\xed\xa0\x80", before=b'{"trainerStatus":"', after=b'"}'),
    _many_metrics,
    _many_values,
)  # fmt: skip


def handshakes(*addresses: str) -> Attack:
    """100 connections at a time that complete their handshake and end, without pause."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            _, writer = await target.connect(addresses[place % len(addresses)])
            target.answers["handshakes"] += 1
            writer.transport.abort()

        await _crowd(100, one)

    return attack


def hellos(*addresses: str, number: int, hello: bytes | None = None, hold_s: float = 0.0) -> Attack:
    """So many connections at a time that begin their handshake with the same bytes, wait and end."""

    async def attack(target: Target) -> None:
        first = _client_hello() if hello is None else hello

        async def one(place: int) -> None:
            address = addresses[place % len(addresses)]
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port, local_addr=(address, 0))
            try:
                writer.write(first)
                if target.on_way == 1:
                    target.count_begun()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if first else hold_s):
                        answered = await reader.read(1)
                        target.answers["hellos answered"] += bool(answered)
                        if target.on_way > 1:
                            target.count_begun()
                await asyncio.sleep(hold_s)
            finally:
                writer.transport.abort()

        await _crowd(number, one)

    return attack


def _client_hello() -> bytes:
    hello = ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return hello.read()


async def opening(target: Target) -> None:
    """3,000 connections that are opened and then say nothing."""

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        target.answers["open"] += 1
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    await _crowd(3000, one)


async def watching(target: Target) -> None:
    """100 watches at a time that begin with all jobs as Table rows, and end."""

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        query = "?watch=1&timeoutSeconds=1"
        request = f"GET {ALL}{query} HTTP/1.1\r\nHost: localhost\r\n{TABLE}{target.bearer(target.token)}\r\n"
        try:
            writer.write(request.encode())
            await target.read(reader)
        finally:
            writer.transport.abort()

    await _crowd(100, one)


def _long(_target: Target, place: int) -> tuple[str, str]:
    """What takes long to parse, from who has no credentials."""
    return (
        (f"{ALL}?labelSelector=" + "a," * 30_000, ""),
        (ALL, "Accept: application/json;" + "a=b;" * 200_000 + "\r\n"),
        (f"{ALL}?timeout=" + "%31h" * 15_000, ""),
        (ALL, "X-A: b\r\n" * 8_000),
    )[place % 4]


def _histories(target: Target, place: int) -> tuple[str, str]:
    return ONE.removesuffix("/progress") + "/history", (YAML, "", "Accept: text/csv\r\n")[
        place % 3
    ] + target.bearer(target.token)


def _lists(target: Target, place: int) -> tuple[str, str]:
    return ALL, (YAML, TABLE, BROWSER, TABLE)[place % 4] + target.bearer(target.token)


def _number() -> int:
    return random.randrange(10**9)


def _selections(target: Target, place: int) -> tuple[str, str]:
    terms = ",".join(f"k{_number()}!=v" for _ in range(1 if place % 2 else 100))
    return f"{ALL}?labelSelector={terms}", (YAML, TABLE, "", "")[place % 4] + target.bearer(target.token)


ATTACKS: dict[str, Attack] = {
    "random tokens, 1,000 parallel": repeating(1000, lambda t, _: (ONE, t.bearer())),
    "the same on /healthz": repeating(1000, lambda t, _: ("/healthz", t.bearer())),
    "the same, users' address": repeating(500, lambda t, _: (ONE, t.bearer()), lone=True),
    "1,000 new ones at one moment": together,
    "pushes with random tokens": pushing,
    "hostile pushes, one pod": hostile_pushes(1),
    "hostile pushes, 48 pods": hostile_pushes(48),
    "hostile pushes, 1,000 pods": hostile_pushes(1000),
    "anonymous, random paths": repeating(200, lambda _t, _p: (f"/{_number()}", "")),
    "no rights, random names": repeating(
        100, lambda t, _: (f"{ALL}/{_number()}?watch=1", t.bearer(t.weak_token))
    ),
    "anonymous, long lines and heads": repeating(200, _long),
    "documents of the API, gzip": repeating(
        50, lambda t, p: (("/openapi/v2", f"{API}", "/openapi/v3")[p % 3], t.bearer(t.weak_token))
    ),
    "20 YAML, Table, pretty lists": repeating(20, _lists),
    "100 YAML lists, clients leave": leaving,
    "20 lists, random selectors": repeating(20, _selections),
    "100 histories, YAML, CSV": repeating(100, _histories),
    "100 Table watches, reopened": watching,
    "random continue tokens": repeating(
        20, lambda t, _: (f"{ALL}?limit=500&continue={_number()}", t.bearer(t.token))
    ),
    "200 lists that nobody reads": holding(
        200, lambda t: f"GET {ALL} HTTP/1.1\r\nHost: localhost\r\n{t.bearer(t.token)}\r\n".encode()
    ),
    "200 heads of 900 KiB, unfinished": holding(200, lambda _: BIG_HEAD),
    "500 known, heads of 900 KiB": keeping(500, BIG_HEAD),
    "8,000 known, silent": keeping(8000),
    "3,000 known, a page each": keeping(3000, path=f"{ALL}?limit=100"),
    "500 heads, a byte a second": holding(500, lambda _: b"GET / HTTP/1.1\r\nX-Y: ", drip=b"x"),
    "3,000 silent connections": opening,
    "3,000 connections without TLS": hellos(*ELSEWHERE, number=3000, hello=b"", hold_s=PATIENCE_S),
    "3,000 unfinished handshakes": hellos(*ELSEWHERE, number=3000, hold_s=PATIENCE_S),
    "handshakes without end": handshakes(*ELSEWHERE),
    "the same, from users' address": handshakes("127.0.0.1"),
    "unfinished, users' address": hellos("127.0.0.1", number=100),
    "3,000 more, users' address": hellos("127.0.0.1", number=3000, hold_s=PATIENCE_S),
}
# Their attackers are training pods, with tokens of their own.
OF_PODS = frozenset(name for name in ATTACKS if name.startswith("hostile pushes"))
# Who comes from the users' own address while more come than handshakes are begun waits among them
# (docs/security.md): measured from when all of these have had their first answer.
ON_WAY = {
    "the same, users' address": 500,
    "the same, from users' address": 100,
    "unfinished, users' address": 100,
    "3,000 more, users' address": 3000,
}


async def run(name: str, target: Target, seconds: float) -> None:
    # uvloop tells of each connection that is ended while it is written to.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    loop = asyncio.get_running_loop()

    async def announce(limit: asyncio.Timeout) -> None:
        await target.is_under_way.wait()
        print("under way", flush=True)
        limit.reschedule(loop.time() + seconds)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S) as limit, asyncio.TaskGroup() as group:
            group.create_task(announce(limit))
            await ATTACKS[name](target)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attackers", description=__doc__)
    parser.add_argument("name", choices=[*ATTACKS], metavar="NAME")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True, help="of a user who may list")
    parser.add_argument("--weak-token", required=True, help="of a user who may nothing")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    target = Target(
        port=given.port, token=given.token, weak_token=given.weak_token, on_way=ON_WAY.get(given.name, 1)
    )
    uvloop.run(run(given.name, target, given.seconds))
    print(json.dumps(target.answers), flush=True)


if __name__ == "__main__":
    main()
