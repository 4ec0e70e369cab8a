"""Sending by the standard library, to a server that is reached without a proxy: httpx takes 40 ms to load."""

from __future__ import annotations

import socket
import zlib
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Dict, Iterator, List, Tuple
from urllib.parse import quote, urlencode

from trainjob_client.connection import USER_AGENT, Connection
from trainjob_client.errors import ConfigError
from trainjob_client.requests import Answer, Call
from trainjob_client.sending import SILENCE_S, Sender

_GZIP = 16 + zlib.MAX_WBITS


class Direct(Sender):
    """Connections are kept, one for each thread that sends at the same time."""

    faults = (OSError, HTTPException, zlib.error)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._idle: List[HTTPConnection] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _send(self, call: Call) -> Answer:
        with self._begin(call, self.connection.timeout_s) as (code, headers, chunks):
            return Answer(code, b"".join(chunks), headers)

    @contextmanager
    def _begin(
        self, call: Call, timeout_s: float = SILENCE_S
    ) -> Iterator[Tuple[int, Dict[str, str], Iterator[bytes]]]:
        if self.connection.prepare():
            self.close()
        try:
            link, response = self._ask(call, timeout_s)
        except ValueError as error:  # of a host or a header: it would say so each time
            if isinstance(error, self.faults):  # a certificate's
                raise
            raise ConfigError(f"The kubeconfig or a flag is of no use for a request: {error}.") from error
        is_over = False
        try:
            headers = {name.lower(): value for name, value in response.getheaders()}
            yield response.status, headers, _chunks(response, headers.get("content-encoding") == "gzip")
            is_over = response.isclosed()  # read to its end
        finally:
            if is_over and not response.will_close:
                self._idle.append(link)
            else:
                response.close()
                link.close()

    def _ask(self, call: Call, timeout_s: float) -> Tuple[HTTPConnection, HTTPResponse]:
        least = timeout_s if call.timeout_s is None else min(timeout_s, call.timeout_s)
        while True:
            try:
                link, is_kept = self._idle.pop(), True
            except IndexError:
                link, is_kept = self._connect(min(self.connection.connect_s, least)), False
            try:
                link.sock.settimeout(least)
                self._write(link, call)
                return link, link.getresponse()
            except BaseException as error:
                link.close()
                # The server may have closed one on which nothing was sent for long.
                is_stale = (
                    is_kept and isinstance(error, self.faults) and not isinstance(error, socket.timeout)
                )
                if not is_stale:
                    raise

    def _connect(self, timeout_s: float) -> HTTPConnection:
        server = self.connection.server
        host, port = server.hostname or "", server.port or {"https": 443, "http": 80}[server.scheme]
        link = HTTPConnection(host, port, timeout=timeout_s)
        link.connect()
        if server.scheme == "https" and self.connection.tls is not None:
            name = self.connection.context.cluster.get("tls-server-name") or host
            try:
                link.sock = self.connection.tls.wrap_socket(link.sock, server_hostname=name)
            except BaseException:
                link.close()
                raise
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def _write(self, link: HTTPConnection, call: Call) -> None:
        path = self.connection.server.path.rstrip("/") + call.path  # a server may be below a path
        if call.parameters:
            path += "?" + urlencode(list(call.parameters), quote_via=quote)
        link.putrequest("GET", path, skip_accept_encoding=True)
        link.putheader("Accept-Encoding", "gzip")
        link.putheader("User-Agent", USER_AGENT)
        for name, value in self.connection.headers(call.accept):
            link.putheader(name, value.encode())
        link.endheaders()


def _chunks(response: HTTPResponse, is_gzip: bool) -> Iterator[bytes]:
    """As they come. Raises HTTPException when the body is cut."""
    unpacker = zlib.decompressobj(_GZIP) if is_gzip else None
    while chunk := response.read1(1 << 18):
        yield chunk if unpacker is None else unpacker.decompress(chunk)
    if unpacker is not None and not unpacker.eof:
        raise IncompleteRead(b"")
    if response.length:  # is still to come; of chunks it tells by itself
        raise IncompleteRead(b"", response.length)
    response.read()  # nothing more: the connection may be used again
