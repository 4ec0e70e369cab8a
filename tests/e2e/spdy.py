"""The server side of SPDY/3.1 as far as `exec` uses it.

kube-apiserver speaks it to kubelets: it ends the client's WebSocket itself and translates (X3). Frames: the
SPDY/3 draft (draft-mbelshe-httpbis-spdy-00, section 2.6). Flow control is left out, as in the Go library
that kube-apiserver uses. Knows frames and streams; nothing of pods.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_CONTROL = 0x8003  # control bit and version 3
_FIN = 0x01
_MAX_FRAME_BYTES = 1 << 20  # arbitrary; kube-apiserver sends headers and stdin only

# The header compression dictionary, section 2.6.10.1: words with a 32-bit length in front, then loose text.
_WORDS = (  # noqa: SIM905  # as a list it is four times as long
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization cache-control connection content-base content-encoding content-language "
    "content-length content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK version "
    "HTTP/1.1 url public set-cookie keep-alive origin"
).split()
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS)
    + _TEXT.encode()
)


class SpdyError(Exception):
    """The peer sent something this subset of SPDY/3.1 does not know."""


class SpdySession:
    """One connection: answers the peer's streams and writes to them by their `streamtype` header.

    `feed_data` and `feed_eof` make it a payload parser in aiohttp's sense.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
        *,
        expected_streams: frozenset[str],
    ) -> None:
        self._write = write
        self._drain = drain
        self._expected = expected_streams
        self._stream_ids: dict[str, int] = {}
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zlib.Z_BEST_COMPRESSION, zdict=DICTIONARY)
        self.opened = asyncio.Event()  # every expected stream is there
        self.gone = asyncio.Event()  # the peer has ended the connection or reset a stream

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes from the peer; (finished, rest) as aiohttp wants it."""
        self._buffer += data
        try:
            while self._take_frame():
                pass
        except (SpdyError, zlib.error, struct.error, KeyError, UnicodeDecodeError):
            self.gone.set()
            return True, b""
        return False, b""

    def feed_eof(self) -> None:
        self.gone.set()

    async def send(self, stream: str, data: bytes, *, fin: bool = False) -> None:
        """Write one DATA frame to the stream of that type, when there is one; waits for a slow peer."""
        if stream not in self._stream_ids:
            return
        header = struct.pack(">II", self._stream_ids[stream], (_FIN if fin else 0) << 24 | len(data))
        self._write(header + data)
        await self._drain()

    async def finish(self) -> None:
        """End every stream and say goodbye."""
        for stream in self._stream_ids:
            await self.send(stream, b"", fin=True)
        self._write(_control_frame(_GOAWAY, struct.pack(">II", max(self._stream_ids.values()), 0)))
        await self._drain()

    def _take_frame(self) -> bool:
        if len(self._buffer) < 8:
            return False
        first, second = struct.unpack_from(">II", self._buffer)
        length = second & 0xFFFFFF
        if length > _MAX_FRAME_BYTES:
            raise SpdyError("frame too large")
        if len(self._buffer) < 8 + length:
            return False
        payload = bytes(self._buffer[8 : 8 + length])
        del self._buffer[: 8 + length]
        if first >> 16 == _CONTROL:
            self._take_control(first & 0xFFFF, payload)
        return True  # DATA is stdin, which nothing here reads

    def _take_control(self, kind: int, payload: bytes) -> None:
        if kind == _SYN_STREAM:
            (stream_id,) = struct.unpack_from(">I", payload)
            headers = _parse_headers(self._inflate.decompress(payload[10:], _MAX_FRAME_BYTES))
            self._stream_ids[headers["streamtype"]] = stream_id
            no_headers = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            self._write(_control_frame(_SYN_REPLY, struct.pack(">I", stream_id) + no_headers))
            if self._expected <= self._stream_ids.keys():
                self.opened.set()
        elif kind == _PING:
            self._write(_control_frame(_PING, payload))
        elif kind in {_RST_STREAM, _GOAWAY}:
            self.gone.set()


def _control_frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", _CONTROL, kind, len(payload)) + payload


def _parse_headers(block: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", block)
    offset, texts = 4, []
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", block, offset)
        texts.append(block[offset + 4 : offset + 4 + length].decode())
        offset += 4 + length
    return dict(zip(texts[::2], texts[1::2], strict=True))
