"""States on their way between replicas: each job as its length and MessagePack; length 0 is the end."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from visibility_api.history.attempt import UNREADABLE
from visibility_api.jobs.saved import SavedJob

MAX_FRAME_BYTES = 512 * 1024  # of one job; the largest states that are kept on disk have half of it
END = struct.pack(">I", 0)

_LENGTH = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SavedJob).decode


class BadFrame(Exception):
    """What came is not such a stream."""


def frame(saved: SavedJob) -> bytes:
    """One job; nothing at all for a state that is too large."""
    body = _encode(saved)
    return _LENGTH.pack(len(body)) + body if len(body) <= MAX_FRAME_BYTES else b""


class FrameReader:
    """Takes a stream apart, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_ended = False  # the sender has said that there is no more

    def feed(self, data: bytes) -> Iterator[SavedJob]:
        """The jobs that are complete with this piece. Raises BadFrame after those that were good."""
        data, start = self._rest + data, 0
        while not self.is_ended and len(data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            begin, end = start + _LENGTH.size, start + _LENGTH.size + length
            if length > MAX_FRAME_BYTES:
                raise BadFrame("a frame is too long")
            if end > len(data):
                break
            start = end
            if not length:
                self.is_ended = True
                break
            try:
                saved = _decode(memoryview(data)[begin:end])
            except UNREADABLE as error:
                raise BadFrame("a frame cannot be read") from error
            yield saved
        self._rest = data[start:]
