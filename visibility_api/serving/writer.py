"""The responses of one connection, and its transport as uvicorn writes to it: few writes, bounded pieces."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

# Of one write. Fewer writes are cheaper, but OpenSSL's buffer for one, a third larger, is never given back
# while the connection is open; when the client reads slowly two are in it.
PIECE_BYTES = 62 * 1024
KEPT_BYTES = 2 * PIECE_BYTES * 4 // 3
SMALL_BYTES = 16 * 1024  # is copied to be written together with others
_VISIBLE = bytes(range(0x20, 0x7F))


class Response(RequestResponseCycle):
    """As uvicorn's, but a whole response is one write, and its headers are checked together."""

    _start: Any = None  # waits for its body: ends with Content-Length, as those of `kubeapi.delivery`

    async def send(self, message: Any) -> None:  # noqa: ANN401 - one of ASGI's
        start, self._start = self._start, None
        if start is None or message["type"] != "http.response.body":
            headers = message.get("headers")
            if headers and headers[-1][0] == b"content-length" and not self.response_started:
                self._start = message
            else:
                await super().send(message)
            return
        headers = (*self.default_headers, *start["headers"])
        head = b"".join([b"%s: %s\r\n" % each for each in headers])
        if (
            message.get("more_body")
            or int(headers[-1][1]) != len(message["body"])
            or not self.keep_alive
            or self.flow.write_paused
            or self.disconnected
            or self.scope["method"] == "HEAD"
            or head.translate(None, _VISIBLE) != b"\r\n" * len(headers)  # uvicorn refuses it
        ):
            await super().send(start)
            await super().send(message)
            return
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[start["status"]], head, message["body"]))
        self.waiting_for_100_continue, self.response_started, self.response_complete = False, True, True
        self.message_event.set()
        self.on_response()


class Writer(asyncio.Transport):
    """Writes small data at the end of the turn of the event loop, all of it at once.

    Each write wakes the client that waits for it, and waking costs more than writing. A client with many
    requests in flight (the aggregator, a dashboard) is woken once per turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self.is_closing = transport.is_closing  # type: ignore[method-assign]  # it is asked at each request
        self._loop = loop
        self._pending = b""
        self._is_held = self._is_paused = False
        self.kept_bytes = 0  # by OpenSSL, of the largest piece that was written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Also of more than a piece: no byte is written before those that came earlier."""
        if len(data) <= SMALL_BYTES:
            if not self._pending:
                self._loop.call_soon(self.flush)
            self._pending += data
            if len(self._pending) > SMALL_BYTES:
                self.flush()
            return
        self.flush()
        self.kept_bytes = KEPT_BYTES
        if len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        whole = memoryview(data)
        for start in range(0, len(data), PIECE_BYTES):
            self._transport.write(whole[start : start + PIECE_BYTES])

    def flush(self) -> None:
        """Write what is pending now."""
        if self._pending:
            data, self._pending = self._pending, b""
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._pending = b""
        self._transport.abort()

    def get_extra_info(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - as asyncio's
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Not before `release`, when `hold` was called."""
        self._is_paused = False
        if not self._is_held:
            self._transport.resume_reading()

    def hold(self) -> None:
        """Read nothing until `release`, whatever uvicorn says."""
        self._is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self._is_held = False
        if not self._is_paused:
            self._transport.resume_reading()
