"""The way from the replicas to kube-apiserver, on which a day may go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.restarts import BACKLOG
from tests.e2e.pki import KeyPair

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REASONS = {429: "TooManyRequests", 500: "InternalError"}
_MOST_BYTES = 2**22  # of a request's head


class Way:
    """Ends TLS, and passes each request on; `delay_s` and `status` are of those that come from now on."""

    def __init__(self, target_port: int, ca_file: Path, pair: KeyPair) -> None:
        self._target_port = target_port
        self._upstream = ssl.create_default_context(cafile=str(ca_file))
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*pair)
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.delay_s = 0.0
        self.status, self.share = 0, 0.0  # what that share of requests is answered
        self.answered = 0  # so

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, limit=_MOST_BYTES, backlog=BACKLOG
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Reset every open connection."""
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        other: asyncio.StreamWriter | None = None
        ways: set[asyncio.Task[None]] = set()
        try:
            back, other = await asyncio.open_connection(
                "127.0.0.1", self._target_port, ssl=self._upstream, server_hostname="127.0.0.1"
            )
            ways = {
                asyncio.create_task(self._pass(reader, writer, other)),
                asyncio.create_task(_relay(back, writer)),
            }
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            for each in ways:
                each.cancel()
            for side in (writer, other):
                if side is not None:
                    side.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = _LENGTH.search(head)
                body = await reader.readexactly(int(found[1])) if found else b""
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.status and random.random() < self.share:
                    self.answered += 1
                    writer.write(_answer(self.status))
                    continue
                other.write(head + body)
                await other.drain()
                if b"\r\nupgrade:" in head.lower():
                    await _relay(reader, other)
                    return


async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()


def _answer(status: int) -> bytes:
    body = json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": _REASONS[status],
            "code": status,
        }
    ).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
    return f"{head}Retry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
