"""One other replica: what waits for it, and the connections to it.

It is sent nothing unless it shows the very certificate that we serve with, and has its key.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from visibility_api.faults import describe_fault

log = structlog.get_logger("visibility.relay")

AT_ONCE = 4  # requests, and so connections, of one peer
ANSWER_S = 5.0  # for one request, its connection included
IDLE_S = 60.0  # then a connection is not used again: well below the peer's KEEP_ALIVE_S
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0  # a peer that is away is left alone so long
# Waiting for one peer. What comes again meanwhile takes the place of what it was, so it is one for each pod.
MAX_WAITING, MAX_WAITING_BYTES = 10_000, 16 * 1024 * 1024
MAX_ANSWER_BYTES = 256 * 1024

# What a push to one peer came to, for a metric.
ACCEPTED = "Accepted"  # answered 200
REFUSED = "Refused"  # answered anything else; it is not tried again
DROPPED = "Dropped"  # too many wait: the oldest goes
UNREACHABLE = "Unreachable"  # or no answer in time, or tried in vain a moment ago
NOT_OURS = "OtherCertificate"  # nothing was sent

_LENGTH = re.compile(rb"\r\ncontent-length: ?(\d{1,6})\r\n", re.IGNORECASE)


class Address(NamedTuple):
    host: str  # an IP address
    port: int


class _Stranger(Exception):
    """Whoever is there shows another certificate than ours."""


class _Connection(NamedTuple):
    reader: StreamReader
    writer: StreamWriter


class Peer:
    """Its tasks belong to `group`. `certificate` gives ours, DER; `count` is told what a push came to."""

    def __init__(
        self,
        address: Address,
        group: asyncio.TaskGroup,
        *,
        certificate: Callable[[], bytes],
        count: Callable[[str], None],
    ) -> None:
        self._address = address
        self._group = group
        self._certificate = certificate
        self._count = count
        self._clock = asyncio.get_running_loop().time
        self._waiting: dict[bytes, bytes] = {}  # body by head, the oldest first
        self._bytes = 0
        self._running = 0
        self._idle: list[tuple[_Connection, float]] = []  # and since when; the latest last
        self._is_closed = False
        self._pause_s = 0.0  # 0: the last exchange went well
        self._open_at = 0.0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False  # it is reached by its address, and
        self._context.verify_mode = ssl.CERT_NONE  # must show one certificate, whoever has signed that
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    def put(self, head: bytes, body: bytes) -> None:
        """Send it when its turn comes, in place of what waits with the same head."""
        if self._open_at > self._clock():
            self._count(UNREACHABLE)
            return
        held = self._waiting.get(head)
        self._waiting[head] = body
        self._bytes += len(body) - len(held) if held is not None else len(head) + len(body)
        while len(self._waiting) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
            self._take()
            self._count(DROPPED)
        if self._running < AT_ONCE and self._waiting:
            self._running += 1
            self._group.create_task(self._work(), name=f"relay to {self._address.host}")

    def tidy(self) -> None:
        """Close the connections that have been idle for too long."""
        oldest = self._clock() - IDLE_S
        while self._idle and (self._idle[0][1] < oldest or self._is_closed):
            _abort(self._idle.pop(0)[0])

    def close(self) -> None:
        """Forget what waits; what is under way still ends, in its time."""
        self._is_closed = True
        self._forget()
        self.tidy()

    def _take(self) -> tuple[bytes, bytes]:
        head = next(iter(self._waiting))
        body = self._waiting.pop(head)
        self._bytes -= len(head) + len(body)
        return head, body

    def _forget(self) -> None:
        for _ in range(len(self._waiting)):
            self._count(UNREACHABLE)
        self._waiting.clear()
        self._bytes = 0

    async def _work(self) -> None:
        """One after the other until none waits."""
        try:
            while self._waiting:
                self._count(await self._tell(*self._take()))
        finally:
            self._running -= 1

    async def _tell(self, head: bytes, body: bytes) -> str:
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await self._exchange(head, body)
        except _Stranger:
            self._fail("another certificate than ours", {})
            return NOT_OURS
        except Exception as error:  # the peer's trouble, whatever it is; its text may quote what was sent
            self._fail("out of reach", describe_fault(error))
            return UNREACHABLE
        if self._pause_s:
            self._pause_s = self._open_at = 0.0
            log.info("peer answers again", peer=self._address.host)
        return ACCEPTED if status == 200 else REFUSED

    async def _exchange(self, head: bytes, body: bytes) -> int:
        """The status that is answered. Raises _Stranger, and what goes wrong on a connection."""
        connection = self._idle_connection() or await self._connect()
        is_whole = False
        try:
            reader, writer = connection
            writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
            answer = await reader.readuntil(b"\r\n\r\n")
            status, length = int(answer[9:12]), _LENGTH.search(answer)
            if length is None or int(length[1]) > MAX_ANSWER_BYTES:
                raise ConnectionError
            await reader.readexactly(int(length[1]))
            is_whole = b"\r\nconnection: close\r\n" not in answer.lower() and not self._is_closed
            return status
        finally:
            if is_whole:
                self._idle.append((connection, self._clock()))
            else:
                _abort(connection)

    def _idle_connection(self) -> _Connection | None:
        while self._idle:
            connection, since = self._idle.pop()
            if since + IDLE_S > self._clock() and not connection.reader.at_eof():
                return connection
            _abort(connection)
        return None

    async def _connect(self) -> _Connection:
        """The handshake proves that the peer has the key of what it shows; nothing is sent before that is
        compared. Raises _Stranger, OSError."""
        ours = self._certificate()
        connection = _Connection(*await asyncio.open_connection(*self._address, ssl=self._context))
        tls: ssl.SSLObject | None = connection.writer.get_extra_info("ssl_object")
        if tls is None or tls.getpeercert(binary_form=True) != ours:
            _abort(connection)
            raise _Stranger
        return connection

    def _fail(self, why: str, fault: Mapping[str, str]) -> None:
        """Leave it alone for a while, longer each time; told once until it answers again."""
        self._forget()
        now = self._clock()
        if now < self._open_at:
            return  # of several at once
        if not self._pause_s:
            log.warning("peer not told of pushes", peer=self._address.host, why=why, **fault)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
        self._open_at = now + self._pause_s


def _abort(connection: _Connection) -> None:
    connection.writer.transport.abort()
