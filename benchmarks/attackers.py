"""What attackers do who have no rights, or may read everything: on connections of their own, without pause.

Every attack is bounded in connections and in time, and reaches loopback addresses only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from . import kubernetes
from .attack_scene import Access
from .others import read_answer
from .push import PATH as PUSH
from .scene import ALL, ONE

YAML = "Accept: application/yaml\r\n"
TABLE = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
BROWSER = "Accept: text/html,*/*;q=0.8\r\nUser-Agent: Mozilla/5.0\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
ELSEWHERE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")  # other addresses than the users'
PATIENCE_S = 60.0
LEFT = "left"  # instead of a status: the client went while its answer was made
BIG_HEAD = b"GET / HTTP/1.1\r\n" + b"".join([b"X-%d: %b\r\n" % (n, b"x" * 9000) for n in range(100)])

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@dataclass(slots=True, kw_only=True)
class Target:
    """The server, what the attackers have, and what came back."""

    access: Access
    on_way: int = 1  # so many connections begun: the attack is under way
    answers: Counter[str] = field(default_factory=Counter)
    is_under_way: asyncio.Event = field(default_factory=asyncio.Event)
    _begun: int = 0
    _tls: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def connect(
        self, address: str = "127.0.0.2", port: int = 0, *, receive_bytes: int = 0
    ) -> tuple[Reader, Writer]:
        """To the server, or to another port. `receive_bytes`: what the kernel keeps of unread bytes."""
        opened = socket.socket()
        opened.setblocking(False)
        if receive_bytes:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        opened.bind((address, 0))
        connecting = self._open(opened, port or self.access.port)
        if self.on_way == 1:
            self.count_begun()
        reader, writer = await connecting
        if self.on_way > 1:
            self.count_begun()
        return reader, writer

    async def _open(self, opened: socket.socket, port: int) -> tuple[Reader, Writer]:
        try:
            await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
            return await asyncio.open_connection(
                sock=opened, ssl=self._tls, server_hostname="localhost", limit=64 * 1024 * 1024
            )
        except BaseException:
            opened.close()
            raise

    def count_begun(self) -> None:
        self._begun += 1
        if self._begun == self.on_way:
            self.is_under_way.set()

    async def ask(
        self,
        connection: tuple[Reader, Writer],
        path: str,
        headers: str = "",
        *,
        method: str = "GET",
        body: bytes = b"",
        by: str = "",
    ) -> None:
        """One request and its whole answer. A body is sent as it is if `headers` say that it is in chunks."""
        reader, writer = connection
        length = f"Content-Length: {len(body)}\r\n" if body and CHUNKED not in headers else ""
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n".encode() + body)
        await self.read(reader, by)

    async def read(self, reader: Reader, by: str = "") -> None:
        """One answer of the server, or `by` another one."""
        self.answers[by + (await read_answer(reader)).split()[1].decode()] += 1

    @property
    def reader(self) -> str:
        """The header of a user who may list all jobs."""
        return self.bearer(self.access.token)

    @property
    def nobody(self) -> str:
        """The header of a user who has no rights."""
        return self.bearer(self.access.weak_token)

    def bearer(self, token: str | None = None) -> str:
        """A header with this token, or with one that nobody has."""
        return f"Authorization: Bearer {token or os.urandom(300).hex()}\r\n"


Attack = Callable[[Target], Awaitable[None]]


async def crowd(number: int, one: Callable[[int], Awaitable[None]]) -> None:
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
                    await target.ask((reader, writer), *request(target, place))
            finally:
                writer.transport.abort()

        await crowd(number, one)

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
                await target.ask((reader, writer), path, target.reader)
                writer.write(message)
                await reader.read()
            finally:
                writer.transport.abort()

        await crowd(number, one)

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

        await crowd(number, one)

    return attack


async def together(target: Target) -> None:
    """1,000 new connections that send their first requests at the same moment, every three seconds."""

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        try:
            await asyncio.sleep(3.0 - time.monotonic() % 3.0)
            for _ in range(4):  # then answers are delayed
                await target.ask((reader, writer), f"{ONE}?x={'a' * 1500}", target.bearer())
        finally:
            writer.transport.abort()

    await crowd(1000, one)


async def leaving(target: Target) -> None:
    """100 lists as YAML at a time, whose clients leave soon; each of another namespace or selection."""

    async def one(_: int) -> None:
        reader, writer = await target.connect()
        selection = f"?labelSelector=team!=x{random.randrange(10**9)}"
        try:
            async with asyncio.timeout(0.5):
                await target.ask((reader, writer), ALL + selection, YAML + target.reader)
        except TimeoutError:
            target.answers[LEFT] += 1
        finally:
            writer.transport.abort()

    await crowd(100, one)


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

    await crowd(200, one)


def handshakes(*addresses: str) -> Attack:
    """100 connections at a time that complete their handshake and end, without pause."""

    async def attack(target: Target) -> None:
        async def one(place: int) -> None:
            _, writer = await target.connect(addresses[place % len(addresses)])
            target.answers["handshakes"] += 1
            writer.transport.abort()

        await crowd(100, one)

    return attack


def hellos(*addresses: str, number: int, hello: bytes | None = None, hold_s: float = 0.0) -> Attack:
    """So many connections at a time that begin their handshake with the same bytes, wait and end."""

    async def attack(target: Target) -> None:
        first = _client_hello() if hello is None else hello

        async def one(place: int) -> None:
            address = addresses[place % len(addresses)]
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", target.access.port, local_addr=(address, 0)
            )
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

        await crowd(number, one)

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

    await crowd(3000, one)


async def watching(target: Target) -> None:
    """100 watches at a time that begin with all jobs as Table rows, and end."""

    async def one(place: int) -> None:
        reader, writer = await target.connect(ELSEWHERE[place % len(ELSEWHERE)])
        query = "?watch=1&timeoutSeconds=1"
        request = f"GET {ALL}{query} HTTP/1.1\r\nHost: localhost\r\n{TABLE}{target.reader}\r\n"
        try:
            writer.write(request.encode())
            await target.read(reader)
        finally:
            writer.transport.abort()

    await crowd(100, one)


def long(_target: Target, place: int) -> tuple[str, str]:
    """What takes long to parse, from who has no credentials."""
    return (
        (f"{ALL}?labelSelector=" + "a," * 30_000, ""),
        (ALL, "Accept: application/json;" + "a=b;" * 200_000 + "\r\n"),
        (f"{ALL}?timeout=" + "%31h" * 15_000, ""),
        (ALL, "X-A: b\r\n" * 8_000),
    )[place % 4]


def histories(target: Target, place: int) -> tuple[str, str]:
    return ONE.removesuffix("/progress") + "/history", (YAML, "", "Accept: text/csv\r\n")[
        place % 3
    ] + target.reader


def lists(target: Target, place: int) -> tuple[str, str]:
    return ALL, (YAML, TABLE, BROWSER, TABLE)[place % 4] + target.reader


def number() -> int:
    return random.randrange(10**9)


def selections(target: Target, place: int) -> tuple[str, str]:
    terms = ",".join(f"k{number()}!=v" for _ in range(1 if place % 2 else 100))
    return f"{ALL}?labelSelector={terms}", (YAML, TABLE, "", "")[place % 4] + target.bearer(
        target.access.token
    )
