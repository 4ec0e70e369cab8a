"""One WebSocket exchange on a connection of its own, as cheaply as we can make it.

Every exec probe is a new connection, thousands of them a minute, and general-purpose clients cost more CPU
for one than its TLS does. This one writes one request, and reads one answer and binary messages. It knows
no proxies: `proxy.py` does.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
from aiohappyeyeballs import start_connection

from .errors import ApiError, Unreachable
from .frames import FrameError, FrameReader
from .records import Records
from .tls import ResumingContext

Take = Callable[[bytes], bool]

RESOLVED_FOR_S = 10.0  # as aiohttp: no look-up for each of hundreds of connections a second
SECOND_ADDRESS_AFTER_S = 0.25  # RFC 8305: an address that does not answer must not take all the time
READ_BYTES = 16 * 1024
MAX_HEAD_BYTES = 64 * 1024
MAX_UNSENT_BYTES = 64 * 1024
_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


class Dialer:
    """Opens WebSockets to one server."""

    def __init__(self, base: str, *, server_hostname: str | None) -> None:
        """`base` is what comes before all paths; `server_hostname` is in the certificate, if not its host."""
        parts = urlsplit(base)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_secure else 80)
        self._prefix = parts.path
        self._fields = (
            f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        )
        self._server_hostname = (server_hostname or self._host).encode("idna")  # not at each connection
        self._addresses: Sequence[Any] = []  # of getaddrinfo
        self._resolved_until = 0.0  # by the loop's clock

    async def exchange(
        self,
        target: str,
        *,
        headers: Mapping[str, str],
        tls: ResumingContext,
        protocols: Sequence[str],
        max_message_bytes: int,
        take: Take,
    ) -> None:
        """Give each binary message to `take` until it returns False or the server ends the connection.

        `target` is a quoted path with its query; the server has to choose one of `protocols`. `take` gets b""
        for what says nothing: a ping, a part of a message. Then hangs up at once. Raises ApiError when the
        upgrade is refused; Unreachable or OSError when the connection breaks or brings something else.
        """
        key = base64.b64encode(os.urandom(16))
        request = _request(
            f"GET {self._prefix}{target} HTTP/1.1\r\n{self._fields}",
            {
                "Sec-WebSocket-Key": key.decode(),
                "Sec-WebSocket-Protocol": ", ".join(protocols),
                **headers,
            },
        )
        records = Records(tls, self._server_hostname) if self._is_secure else None
        exchange = _Exchange(request, _Upgrade(key, protocols), FrameReader(max_message_bytes), take, records)
        try:
            await self._connect(exchange)
            error = await exchange.ended
            if error is not None:
                raise error
            if records is not None:
                tls.keep_session(records.connection)
        finally:
            exchange.hang_up()

    async def _connect(self, exchange: _Exchange) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._resolved_until:
            self._addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._resolved_until = loop.time() + RESOLVED_FOR_S
        if len(self._addresses) == 1:
            host, port = self._addresses[0][4][:2]
            await loop.create_connection(lambda: exchange, host, port)
        else:
            connected = await start_connection(
                self._addresses, happy_eyeballs_delay=SECOND_ADDRESS_AFTER_S, interleave=1
            )
            await loop.create_connection(lambda: exchange, sock=connected)


def _request(begin: str, headers: Mapping[str, str]) -> bytes:
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{begin}{fields}\r\n"
    # A token comes from a file or a plugin. A line break in one would begin a header of its own.
    if fields.count("\r") != len(headers) or fields.count("\n") != len(headers) or not text.isascii():
        raise Unreachable("a header of the request holds what no header may")
    return text.encode()


class _Upgrade:
    """The answer to the request (RFC 6455, 4.1)."""

    def __init__(self, key: bytes, protocols: Sequence[str]) -> None:
        self._key = key
        self._protocols = protocols
        self._headers: dict[bytes, bytes] = {}
        self._is_complete = False
        self._size = 0
        self._parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._is_complete = True

    def feed(self, data: bytes) -> bytes | None:
        """What follows the answer, None when it is not yet whole. Raises ApiError, Unreachable."""
        self._size += len(data)
        rest = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise Unreachable("the answer to the WebSocket upgrade is not HTTP") from error
        if not self._is_complete:
            if self._size > MAX_HEAD_BYTES:
                raise Unreachable(f"the answer to the WebSocket upgrade exceeds {MAX_HEAD_BYTES} bytes")
            return None
        status = self._parser.get_status_code()
        if status != 101:
            raise ApiError(status, "", "the WebSocket upgrade was refused")
        if rest is None or not self._fits():
            raise Unreachable("the answer to the WebSocket upgrade does not fit the request")
        del self._parser  # it holds us
        return rest

    def _fits(self) -> bool:
        digest = hashlib.sha1(self._key + _ACCEPT_SUFFIX, usedforsecurity=False).digest()
        return (
            self._headers.get(b"upgrade", b"").lower() == b"websocket"
            and self._headers.get(b"sec-websocket-accept") == base64.b64encode(digest)
            and self._headers.get(b"sec-websocket-protocol", b"").decode("latin-1") in self._protocols
            and b"sec-websocket-extensions" not in self._headers
        )


class _Exchange(asyncio.BufferedProtocol):
    """Between a transport and `take`; `ended` brings the error, None when all went well.

    With a buffer of its own: uvloop would else allocate 256 KiB for each of the many small reads.
    """

    def __init__(
        self, request: bytes, upgrade: _Upgrade, frames: FrameReader, take: Take, records: Records | None
    ) -> None:
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._upgrade: _Upgrade | None = upgrade  # None once it is done
        self._frames = frames
        self._take = take
        self._records = records  # None without TLS
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        if self.ended.done():  # given up while connecting
            self.hang_up()
        elif self._records is None:
            self._transport.write(self._request)
        else:
            self._receive(b"")  # the client begins

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        if not self.ended.done():
            self._receive(bytes(self._buffer[:size]))

    def connection_lost(self, error: Exception | None) -> None:
        """What came stands, even without a close frame: whether it is whole, channel 3 says (X5)."""
        if self._upgrade is None and (error is None or isinstance(error, OSError)):
            self._end(None)
        else:
            self._end(error or Unreachable("the connection closed before the WebSocket upgrade"))

    def hang_up(self) -> None:
        """Not a close handshake: a peer that floods us never comes to its part of it."""
        self.ended.cancel()
        if self._transport is not None:
            self._transport.abort()
            # It holds us too: without the circle the memory of a connection, 50 KiB, is free at once and
            # not only when the garbage collector has come round.
            self._transport = None

    def _receive(self, data: bytes) -> None:
        try:
            if self._records is None:
                self._hear(data)
            else:
                self._unlock(data, self._records)
        except FrameError as error:
            self._end(Unreachable(str(error)))
        except (ApiError, Unreachable) as error:
            self._end(error)
        except OSError as error:  # ssl.SSLError is one
            self.connection_lost(error)

    def _unlock(self, data: bytes, records: Records) -> None:
        if not records.is_open:
            records.shake_hands(data)
            if records.is_open:
                # Not read on: all that a server says before the request are tickets, which can wait.
                records.lock(self._request)
        else:
            if found := records.unlock(data):
                self._hear(found)
            if records.is_closed:
                self.connection_lost(records.fault)
                return
        unsent = records.unsent()
        if unsent and self._transport is not None:
            self._transport.write(unsent)

    def _hear(self, data: bytes) -> None:
        if self._upgrade is not None:
            rest = self._upgrade.feed(data)
            if rest is None:
                return
            self._upgrade, data = None, rest
        for message in self._frames.feed(data):
            if not self._take(message):
                self._end(None)
                return
        self._answer()

    def _answer(self) -> None:
        """What the frames read last ask for."""
        if self._frames.is_closed or self._transport is None:
            self._end(None)
        elif self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._end(Unreachable("the peer sends pings and does not read the answers"))
        elif self._frames.pongs:
            write = self._transport.write if self._records is None else self._records.lock
            write(self._frames.pongs)
            self._frames.pongs = b""

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
