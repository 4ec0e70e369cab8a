"""One WebSocket exchange on a connection of its own, at little CPU cost (decision 0010).

Every exec probe is a new connection, thousands of them per minute, and a general-purpose client costs more
CPU for each than its TLS does. This one writes one request, and reads one response and binary messages. It
does not support proxies: `proxy.py` does.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from visibility_api.kube.errors import ApiError, Unreachable
from visibility_api.kube.tls import ResumingContext

from .frames import FrameError, FrameReader
from .tls_client import TlsClient
from .upgrade import UpgradeResponse, encode_request

OnMessage = Callable[[bytes], bool]  # whether to go on

DNS_CACHE_S = 10.0  # as in aiohttp: there are hundreds of connections per second
HAPPY_EYEBALLS_DELAY_S = 0.25  # RFC 8305, section 5: until the next address is tried as well
READ_BYTES = 16 * 1024
MAX_UNSENT_BYTES = 64 * 1024


class Dialer:
    """Opens WebSockets to one server."""

    def __init__(self, base: str, *, server_hostname: str | None) -> None:
        """`base`: the URL before every path. `server_hostname`: the certificate's name, if not the URL's."""
        parts = urlsplit(base)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_secure else 80)
        self._prefix = parts.path
        self._fields = (
            f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        )
        self._server_hostname = (server_hostname or self._host).encode("idna")  # once, not per connection
        self._addresses: Sequence[Any] = []  # of getaddrinfo
        self._resolved_until = 0.0  # loop time

    async def exchange(
        self,
        target: str,
        *,
        headers: Mapping[str, str],
        tls: ResumingContext,
        protocols: Sequence[str],
        max_message_bytes: int,
        on_message: OnMessage,
    ) -> None:
        """Pass each binary message to `on_message` until it returns False or the server closes.

        `target` is a quoted path with its query; the server must choose one of `protocols`. `on_message` is
        called with b"" for every frame that completes no message. Closes the connection without a handshake.
        Raises ApiError when the upgrade is refused; Unreachable or OSError when the connection fails or what
        comes is not a WebSocket.
        """
        key = base64.b64encode(os.urandom(16))
        request = encode_request(
            f"GET {self._prefix}{target} HTTP/1.1\r\n{self._fields}",
            {
                "Sec-WebSocket-Key": key.decode(),
                "Sec-WebSocket-Protocol": ", ".join(protocols),
                **headers,
            },
        )
        tls_client = TlsClient(tls, self._server_hostname) if self._is_secure else None
        exchange = _Exchange(
            request, UpgradeResponse(key, protocols), FrameReader(max_message_bytes), on_message, tls_client
        )
        try:
            await self._connect(exchange)
            error = await exchange.ended
            if error is not None:
                raise error
            if tls_client is not None:
                tls.keep_session(tls_client.connection)
        finally:
            exchange.abort()

    async def _connect(self, exchange: _Exchange) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._resolved_until:
            self._addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._resolved_until = loop.time() + DNS_CACHE_S
        if len(self._addresses) == 1:
            host, port = self._addresses[0][4][:2]
            await loop.create_connection(lambda: exchange, host, port)
        else:
            connected = await start_connection(
                self._addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, interleave=1
            )
            await loop.create_connection(lambda: exchange, sock=connected)


class _Exchange(asyncio.BufferedProtocol):
    """Passes what a transport receives to `on_message`; the result of `ended` is the error, or None.

    It has a buffer of its own: otherwise uvloop would allocate 256 KiB for each of the many small reads.
    """

    def __init__(
        self,
        request: bytes,
        upgrade: UpgradeResponse,
        frames: FrameReader,
        on_message: OnMessage,
        tls: TlsClient | None,
    ) -> None:
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._upgrade: UpgradeResponse | None = upgrade  # None once it is complete
        self._frames = frames
        self._on_message = on_message
        self._tls = tls  # None: plain HTTP
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not a subclass
        if self.ended.done():  # cancelled while connecting
            self.abort()
        elif self._tls is None:
            self._transport.write(self._request)
        else:
            self._receive(b"")  # the client begins

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        if not self.ended.done():
            self._receive(bytes(self._buffer[:size]))

    def connection_lost(self, error: Exception | None) -> None:
        """No error after the upgrade, even without a close frame: the Status says whether all has come."""
        if self._upgrade is None and (error is None or isinstance(error, OSError)):
            self._end(None)
        else:
            self._end(error or Unreachable("the connection closed before the WebSocket upgrade"))

    def abort(self) -> None:
        """Without a closing handshake: a server that floods would never reach its part of it."""
        self.ended.cancel()
        if self._transport is not None:
            self._transport.abort()
            # It references this object: without the cycle the 50 KiB of a connection are freed at once, not
            # when the garbage collector runs.
            self._transport = None

    def _receive(self, data: bytes) -> None:
        try:
            if self._tls is None:
                self._read(data)
            else:
                self._decrypt(data, self._tls)
        except FrameError as error:
            self._end(Unreachable(str(error)))
        except (ApiError, Unreachable) as error:
            self._end(error)
        except OSError as error:  # ssl.SSLError is one
            self.connection_lost(error)

    def _decrypt(self, data: bytes, tls: TlsClient) -> None:
        if not tls.is_open:
            tls.handshake(data)
            if tls.is_open:
                # Nothing is decrypted yet: before the request a server sends only tickets, which can wait.
                tls.encrypt(self._request)
        else:
            if found := tls.decrypt(data):
                self._read(found)
            if tls.is_closed:
                self.connection_lost(tls.fault)
                return
        to_send = tls.to_send()
        if to_send and self._transport is not None:
            self._transport.write(to_send)

    def _read(self, data: bytes) -> None:
        if self._upgrade is not None:
            rest = self._upgrade.feed(data)
            if rest is None:
                return
            self._upgrade, data = None, rest
        for message in self._frames.feed(data):
            if not self._on_message(message):
                self._end(None)
                return
        self._answer_pings()

    def _answer_pings(self) -> None:
        """After each read: send the pongs, or end."""
        if self._frames.is_closed or self._transport is None:
            self._end(None)
        elif self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._end(Unreachable("the server sends pings and does not read the pongs"))
        elif self._frames.pongs:
            write = self._transport.write if self._tls is None else self._tls.encrypt
            write(self._frames.pongs)
            self._frames.pongs = b""

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
