"""Many watchers of changing jobs: the server's CPU time an event, how late events come, whether all do."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from .processes import Server, cpu_s, resident_mib

CONNECTING_AT_ONCE = 32
PATIENCE_S = 30.0  # until the slowest watcher has what the fastest has
_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')
# The label in which benchmarks.kubernetes puts the time of a change.
_MARK = re.compile(rb'"changed-at":"([0-9.]+)"')
_MARK_BYTES = 64  # longer than the label
_TAIL_BYTES = 8192  # longer than an event


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What was delivered to all watchers together."""

    watchers: int
    events: int
    cpu_s: float
    delays_s: list[float]  # from the change to one watcher in twenty
    incomplete: int  # watchers that missed an event, or got one twice, of all between their first and last
    memory_kib: float  # of the server, a watcher

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.events)

    def quantile_s(self, share: float) -> float:
        ordered = sorted(self.delays_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(slots=True)
class _Count:
    """What all watchers add to."""

    events: int = 0
    delays_s: list[float] = field(default_factory=list)


class _Watcher(asyncio.Protocol):
    """Counts events without reading them; one in twenty looks when they were made."""

    def __init__(self, request: bytes, total: _Count, *, looks: bool) -> None:
        self._request, self._total, self._looks = request, total, looks
        self._rest = b""
        self._newest = 0.0  # time of the last change seen
        self._first = 0
        self._beginning = self._tail = b""
        self._events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]  # uvloop's has no public class

    def data_received(self, data: bytes) -> None:
        # An event ends in a newline; every other newline is HTTP's own and follows a carriage return.
        events = data.count(b"\n") - data.count(b"\r")
        self._events += events
        self._total.events += events
        self._tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else (self._tail + data)[-_TAIL_BYTES:]
        if not self._first:
            self._beginning += data
            if found := _REVISION.search(self._beginning):
                self._first, self._beginning = int(found[1]), b""
        if self._looks:
            self._look(data)

    def _look(self, data: bytes) -> None:
        now, text, end = time.time(), self._rest + data, 0
        for mark in _MARK.finditer(text):
            changed_at, end = float(mark[1]), mark.end()
            if changed_at > self._newest:  # else an event of another kind, of a job that was changed before
                self._total.delays_s.append(now - changed_at)
                self._newest = changed_at
        self._rest = text[end:][-_MARK_BYTES:]

    @property
    def last(self) -> int:
        """The revision of the last whole event."""
        end = self._tail.rfind(b"}\n")
        revisions = _REVISION.findall(self._tail[: end + 1])
        return int(revisions[-1]) if revisions else 0

    @property
    def is_complete(self) -> bool:
        """Every change of every job is a revision of its own, one more than the one before."""
        return self._first > 0 and self._events == self.last - self._first + 1


async def measure(
    server: Server,
    path: str,
    *,
    ca_file: Path,
    token: str,
    watchers: int,
    seconds: float,
    users: int = 1,
    observe: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Delivery:
    """`watchers` watches of `path`, observed for `seconds` once all are open; `observe` waits so long.

    More than one of `users` have tokens that end in their number.
    """
    context = ssl.create_default_context(cafile=ca_file)
    head = (
        f"GET {path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan HTTP/1.1\r\n"
        f"Host: localhost\r\nAuthorization: Bearer {token}"
    )
    ends = [""] if users == 1 else [f"-{user}" for user in range(users)]
    requests = [f"{head}{end}\r\n\r\n".encode() for end in ends]
    loop = asyncio.get_running_loop()
    total = _Count()
    slots = asyncio.Semaphore(CONNECTING_AT_ONCE)
    everyone: list[_Watcher] = []
    transports: list[asyncio.BaseTransport] = []
    empty_mib = resident_mib(server.pid)

    async def connect(number: int) -> None:
        async with slots:
            transport, watcher = await loop.create_connection(
                lambda: _Watcher(requests[number % users], total, looks=number % 20 == 0),
                "127.0.0.1",
                server.port,
                ssl=context,
                server_hostname="localhost",
            )
            transports.append(transport)
            everyone.append(watcher)

    async with asyncio.TaskGroup() as group:
        for number in range(watchers):
            group.create_task(connect(number))
    await asyncio.sleep(2.0)  # the last streams begin
    total.events, total.delays_s = 0, []
    before = cpu_s(server.pid)
    await observe(seconds)
    used_s, events, delays_s = cpu_s(server.pid) - before, total.events, total.delays_s[:]
    newest = max(watcher.last for watcher in everyone)
    deadline = loop.time() + PATIENCE_S
    while loop.time() < deadline and min(watcher.last for watcher in everyone) < newest:  # noqa: ASYNC110 - what is waited for is in another process
        await asyncio.sleep(0.1)
    for transport in transports:
        transport.pause_reading()  # type: ignore[attr-defined]
    delivery = Delivery(
        watchers=watchers,
        events=events,
        cpu_s=used_s,
        delays_s=delays_s,
        incomplete=sum(watcher.last < newest or not watcher.is_complete for watcher in everyone),
        memory_kib=1024 * (resident_mib(server.pid) - empty_mib) / watchers,
    )
    for transport in transports:
        transport.close()
    return delivery
