"""The client side of TLS for one connection, from bytes to bytes, without I/O.

asyncio and uvloop have a TLS layer of their own. For connections as short as those of exec it costs more than
the exchange itself: timers for its start and its end, large buffers, and one write per step, each of which
wakes the server. Here the end of the handshake and the request are one write.
"""

from __future__ import annotations

import ssl

from visibility_api.kube.tls import ResumingContext

_MAX_RECORD_BYTES = 16 * 1024  # RFC 8446, section 5.1


class TlsClient:
    """Handshake, encryption and decryption. A handshake that fails, for example because of the server's
    certificate, raises ssl.SSLError.
    """

    def __init__(self, context: ResumingContext, server_hostname: bytes) -> None:
        self.is_open = False  # the handshake is complete
        self.is_closed = False  # nothing more can be read: the server closed TLS, or there is a `fault`
        self.fault: ssl.SSLError | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)

    def handshake(self, data: bytes) -> None:
        """One step of the handshake: the first with b"", each further one with what the server sent."""
        self._incoming.write(data)
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_open = True

    def decrypt(self, data: bytes) -> bytes:
        """The plain text in `data`; at most one record longer than it, the one that it completes."""
        self._incoming.write(data)
        found = b""
        try:
            while self._incoming.pending:
                record = self.connection.read(_MAX_RECORD_BYTES)
                if not record:
                    self.is_closed = True
                    break
                found += record
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:  # what was decrypted before it is valid
            self.is_closed, self.fault = True, error
        return found

    def encrypt(self, data: bytes) -> None:
        """Queue `data` for the server."""
        self.connection.write(data)

    def to_send(self) -> bytes:
        """The bytes to write to the server; each is returned once."""
        return self._outgoing.read() if self._outgoing.pending else b""
