"""One request and its response.

uvicorn's class with another way to write responses: head and body in one write, because each write becomes a
TLS record, and no regular expression per header.
"""

from __future__ import annotations

from uvicorn._types import ASGISendEvent, HTTPResponseBodyEvent, HTTPResponseStartEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from .coalescing_writer import CoalescingWriter
from .flow import PIECE_BYTES, Flow

_BODYLESS = frozenset((204, 304))


class Exchange(RequestResponseCycle):
    """`send` is ASGI's. Header names are lower case; a `connection` header can only mean `close`."""

    writer: CoalescingWriter  # of the connection
    flow: Flow
    _head = b""  # of a response with Content-Length: written together with the body, which follows at once

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start(message)
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._continue(message)
        else:
            raise RuntimeError(f"the ASGI message {message['type']} is out of order")

    def _start(self, message: HTTPResponseStartEvent) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        status = message["status"]
        headers = [*self.default_headers, *message.get("headers", ())]
        named = dict(headers)
        if b"connection" in named:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        length = named.get(b"content-length")
        if length is not None:
            self.expected_content_length = int(length)
        elif status not in _BODYLESS and self.scope["method"] != "HEAD":
            self.chunked_encoding = True
            headers.append((b"transfer-encoding", b"chunked"))
        head = STATUS_LINE[status] + b"\r\n".join((*map(b": ".join, headers), b"", b""))
        lines = 1 + len(headers) + 1
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise RuntimeError("a header contains a line break")
        if self.chunked_encoding:
            self.transport.write(
                head
            )  # the first event of a watch may come much later; client-go waits for the head
        else:
            self._head = head

    def _continue(self, message: HTTPResponseBodyEvent) -> None:
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if self.chunked_encoding:
            self._write_chunk(body, is_last=is_last)
        else:
            self._write(body)
        if not is_last:
            return
        if self.expected_content_length != 0:
            raise RuntimeError("the body is shorter than its announced length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _write(self, body: bytes) -> None:
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        self.expected_content_length -= len(body)
        if self.expected_content_length < 0:
            raise RuntimeError("the body is longer than its announced length")
        if self._head:
            body, self._head = self._head + body, b""
            if self.keep_alive and not self.expected_content_length and len(body) <= PIECE_BYTES:
                self.flow.note_piece(len(body))
                self.writer.write(body)  # a complete response, and the connection stays open
                return
        self._write_pieces(body)

    def _write_chunk(self, body: bytes, *, is_last: bool) -> None:
        end = b"0\r\n\r\n" if is_last else b""
        if body:
            self._write_pieces(b"%x\r\n%b\r\n%b" % (len(body), body, end))
        elif end:
            self.transport.write(end)

    def _write_pieces(self, data: bytes) -> None:
        self.flow.note_piece(len(data))
        if len(data) <= PIECE_BYTES:
            if data:
                self.transport.write(data)
            return
        whole = memoryview(data)
        for start in range(0, len(data), PIECE_BYTES):
            self.transport.write(whole[start : start + PIECE_BYTES])
