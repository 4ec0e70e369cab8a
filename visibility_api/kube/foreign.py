"""Connections to servers that are not trusted: another cluster's may send what takes long to read.

That is HTTP without content: chunks of a byte, `100 Continue` again and again, extensions of chunks. aiohttp
parses all of it that has come at once, up to 256 KiB, which took up to 0.8 s. What bounds it here is a part
of aiohttp that is not documented: with 3.13 nothing can be read, and a later one might not be bounded. So
pyproject.toml allows tested versions alone.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler

READ_BUFFER_BYTES = 64 * 1024  # twice of it is parsed at once, and less when it is read more slowly
# CPU time that parsing may take: at once, of all time, and for each byte of content. Events in a chunk each
# take 2 ns a byte, chunks of a byte 450.
MOST_S, SHARE, BYTE_S = 0.005, 0.2, 20e-9
_PART_BYTES = 2048  # parsed between two looks at the clock
_WHY = "HTTP that takes too long to read, such as tiny chunks: see what stands between the clusters"


class _Handler(ResponseHandler):
    """One that closes the connection when it took too long to parse what has come."""

    _unparsed = b""  # while the reader is slower
    _left_s = MOST_S
    _left_at = 0.0

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called for each piece that is read; each call took 20 us."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def data_received(self, data: bytes) -> None:
        """Called with b"" when the reader goes on."""
        now = self._loop.time()
        self._left_s, self._left_at = self._left_s + SHARE * (now - self._left_at), now
        data, self._unparsed = self._unparsed + data, b""
        for at in range(0, len(data) or 1, _PART_BYTES):
            if at and self._reading_paused:
                self._unparsed = data[at:]
                return
            began, had = time.thread_time(), self._content_bytes
            super().data_received(data[at : at + _PART_BYTES])
            earned_s = BYTE_S * max(0, self._content_bytes - had)
            self._left_s = min(MOST_S, self._left_s + earned_s) - (time.thread_time() - began)
            if self._left_s < 0.0:
                self._refuse()
                return

    @property
    def _content_bytes(self) -> int:
        """Of the answer that is being read."""
        return self._payload.total_bytes if self._payload is not None else 0

    def _refuse(self) -> None:
        error = aiohttp.ClientPayloadError(_WHY)
        if self._payload is not None:
            self._payload.set_exception(error)
            self._payload = None  # or the end of the connection would be its error
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()


class ForeignConnector(aiohttp.TCPConnector):
    """For servers that are not trusted. As many connections as the callers want."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._factory = partial(_Handler, loop=asyncio.get_running_loop())  # type: ignore[assignment]  # narrower
