"""One HTTP GET over a connection of its own, with a limit for every byte received.

The server is a stranger's training process. HTTP client libraries limit bodies and headers, but not interim
responses or chunk extensions, with which it could occupy this server (decision 0012). There are no redirects,
proxies, cookies or credentials here.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD_BYTES = 16 * 1024
MAX_FRAMING_BYTES = 64 * 1024  # of chunk sizes, trailers and interim responses, besides head and body
READ_BYTES = 16 * 1024


class NotHTTP(Exception):
    """What came is not an HTTP response, or is one that exceeds a limit before its body is complete."""


class CutShort(Exception):
    """The connection ended before the response did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response; `body` only with status 200."""

    status: int
    content_encoding: str  # lower case; "" when there is none
    body: bytes  # cut at the limit
    is_too_large: bool  # the body is longer


class _Received:
    """Callbacks of the parser. Interim responses (1xx) are skipped."""

    def __init__(self, max_body_bytes: int) -> None:
        self.parser = HttpResponseParser(self)
        self.body = bytearray()
        self.status = 0  # of the final response, once its headers are complete
        self.content_encoding = ""
        self.has_length = False
        self.is_complete = False
        self._max_body_bytes = max_body_bytes

    @property
    def is_enough(self) -> bool:
        return bool(self.status) and (
            self.is_complete or self.status != 200 or len(self.body) > self._max_body_bytes
        )

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-encoding":
                self.content_encoding = value.decode("latin-1").strip().lower()
            case b"content-length" | b"transfer-encoding":
                self.has_length = True

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status < 200:  # the headers of an interim response do not describe the final one
            self.content_encoding, self.has_length = "", False
        elif not self.status:
            self.status = status

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self.body += data[: self._max_body_bytes + 1 - len(self.body)]

    def on_message_complete(self) -> None:
        self.is_complete = bool(self.status)


async def get(
    reader: StreamReader, writer: StreamWriter, *, host: str, path: str, max_body_bytes: int
) -> HttpResponse:
    """The response to a GET of `path`. Raises NotHTTP, CutShort, OSError; the caller limits the time."""
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: trainjob-visibility\r\n"
        "Accept: application/json\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n".encode("ascii")
    )
    received = _Received(max_body_bytes)
    count = 0
    while not received.is_enough:
        data = await reader.read(READ_BYTES)
        if not data:
            if received.status and not received.has_length:  # the end of the connection ends the body
                break
            raise CutShort
        count += len(data)
        try:
            received.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not received.is_enough:  # what follows a complete response does not matter
                raise NotHTTP from error
        bound = MAX_HEAD_BYTES + READ_BYTES
        if received.status:
            bound += max_body_bytes + MAX_FRAMING_BYTES
        if count > bound and not received.is_enough:
            raise NotHTTP
    return HttpResponse(
        status=received.status,
        content_encoding=received.content_encoding,
        body=bytes(received.body[:max_body_bytes]) if received.status == 200 else b"",
        is_too_large=len(received.body) > max_body_bytes,
    )
