"""TLS of one connection, from bytes to bytes: somebody else carries them.

asyncio and uvloop have a layer of their own. For connections as short as those of exec it costs more than
the exchange within: timers for its begin and its end, large buffers, and a write for each step, each of
which wakes the peer; here the last of the handshake and the request are one.
"""

from __future__ import annotations

import ssl

from .tls import ResumingContext

_MAX_RECORD_BYTES = 16 * 1024  # RFC 8446, 5.1


class Records:
    """A client's side. What fails the handshake, the server's certificate too, is raised as ssl.SSLError."""

    def __init__(self, context: ResumingContext, server_hostname: bytes) -> None:
        self.is_open = False  # the handshake is done
        self.is_closed = False  # no more can be read: the server said so, or there is a `fault`
        self.fault: ssl.SSLError | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)

    def shake_hands(self, data: bytes) -> None:
        """Take a step of the handshake: the first with nothing, the others with what the server said."""
        self._incoming.write(data)
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_open = True

    def unlock(self, data: bytes) -> bytes:
        """What `data` says; at most one record more than its size, the one that it ends."""
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
        except ssl.SSLError as error:  # what came before it stands
            self.is_closed, self.fault = True, error
        return found

    def lock(self, data: bytes) -> None:
        """Say `data` to the server."""
        self.connection.write(data)

    def unsent(self) -> bytes:
        """What is to be sent, each byte once."""
        return self._outgoing.read() if self._outgoing.pending else b""
