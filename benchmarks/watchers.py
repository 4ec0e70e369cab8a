"""Many watchers of changing jobs: CPU time of the server an event it delivers, and how late they come."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass, field

from .processes import Server, cpu_s

MARK = b'"changed-at":"'  # the label in which benchmarks.kubernetes puts the time of a change
CONNECTING_AT_ONCE = 32


@dataclass(slots=True)
class Delivery:
    """What was delivered to all watchers together."""

    events: int = 0
    delays_s: list[float] = field(default_factory=list)  # from the change to one watcher in twenty
    cpu_s: float = 0.0

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.events)

    def quantile_s(self, share: float) -> float:
        ordered = sorted(self.delays_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class _Watcher(asyncio.Protocol):
    """Counts events without reading them; one in twenty looks when they were made."""

    def __init__(self, request: bytes, delivery: Delivery, *, looks: bool) -> None:
        self._request, self._delivery, self._looks = request, delivery, looks
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]  # uvloop's has no public class

    def data_received(self, data: bytes) -> None:
        self._delivery.events += data.count(b'{"type":"MODIFIED"')
        if not self._looks:
            return
        now = time.time()
        *marks, self._rest = (self._rest + data).split(MARK)
        for text in marks[1:]:
            self._delivery.delays_s.append(now - float(text.partition(b'"')[0]))
        self._rest = MARK + self._rest if marks else self._rest[-4096:]


async def measure(
    server: Server, path: str, *, ca_file: str, token: str, watchers: int, seconds: float
) -> Delivery:
    """`watchers` watches of `path`, observed for `seconds` once all are open."""
    context = ssl.create_default_context(cafile=ca_file)
    request = (
        f"GET {path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan HTTP/1.1\r\n"
        f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    delivery = Delivery()
    slots = asyncio.Semaphore(CONNECTING_AT_ONCE)
    transports: list[asyncio.BaseTransport] = []

    async def connect(number: int) -> None:
        async with slots:
            transport, _ = await loop.create_connection(
                lambda: _Watcher(request, delivery, looks=number % 20 == 0),
                "127.0.0.1",
                server.port,
                ssl=context,
                server_hostname="localhost",
            )
            transports.append(transport)

    async with asyncio.TaskGroup() as group:
        for number in range(watchers):
            group.create_task(connect(number))
    await asyncio.sleep(2.0)  # the last streams begin
    delivery.events, delivery.delays_s = 0, []
    before = cpu_s(server.pid)
    await asyncio.sleep(seconds)
    delivery.cpu_s = cpu_s(server.pid) - before
    counted = Delivery(events=delivery.events, delays_s=delivery.delays_s, cpu_s=delivery.cpu_s)
    for transport in transports:
        transport.close()
    return counted
