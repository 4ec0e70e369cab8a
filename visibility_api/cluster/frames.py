"""WebSocket frames as a client receives them (RFC 6455, chapter 5), without I/O and without extensions."""

from __future__ import annotations

import os
from collections.abc import Generator

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_MAX_CONTROL_BYTES = 125


class FrameError(ValueError):
    """What came is no frame that a server may send here. Says which rule it breaks, never what it holds."""


class FrameReader:
    """Bytes in, binary messages out."""

    def __init__(self, max_message_bytes: int) -> None:
        self.is_closed = False  # a close frame came; what follows it is not read
        self.pongs = b""  # to be sent
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()  # at most one frame that is not whole, and what was fed last
        self._message: bytearray | None = None  # whose last frame has not come

    def feed(self, data: bytes) -> Generator[bytes, None, None]:
        """Yield the message each frame ends, b"" for a frame that ends none. Raises FrameError.

        A message is at most `max_message_bytes` long. To be iterated before more is fed; may be left early.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while not self.is_closed and len(buffer) >= at + 2:
                first, length, start = buffer[at], buffer[at + 1], at + 2
                if length >= 126:
                    if length & _MASKED:
                        raise FrameError("a server's frame is masked")
                    start += 2 if length == 126 else 8
                    if len(buffer) < start:
                        return
                    length = int.from_bytes(buffer[at + 2 : start], "big")
                self._check(first, length)
                end = start + length
                if len(buffer) < end:
                    return
                payload, at = bytes(buffer[start:end]), end
                yield self._hear(first, payload)
        finally:
            del buffer[:at]

    def _check(self, first: int, length: int) -> None:
        """Before the frame is waited for."""
        if first & _RESERVED:
            raise FrameError("a reserved bit is set")
        opcode = first & 0x0F
        if opcode in (_CLOSE, _PING, _PONG):
            if not first & _FINAL or length > _MAX_CONTROL_BYTES:
                raise FrameError("a control frame is in parts or too long")
        elif opcode not in (_BINARY, _CONTINUATION):
            raise FrameError("a frame is neither binary nor control")
        elif (opcode == _CONTINUATION) != (self._message is not None):
            raise FrameError("parts of messages are out of order")
        elif length + len(self._message or b"") > self._max_message_bytes:
            raise FrameError("a message is too long")

    def _hear(self, first: int, payload: bytes) -> bytes:
        opcode = first & 0x0F
        if opcode == _CLOSE:
            self.is_closed = True
        elif opcode == _PING:
            self.pongs += _masked(_FINAL | _PONG, payload)
        elif opcode != _PONG:
            if self._message is None and first & _FINAL:
                return payload
            self._message = (self._message or bytearray()) + payload
            if first & _FINAL:
                message, self._message = bytes(self._message), None
                return message
        return b""


def _masked(first: int, payload: bytes) -> bytes:
    """A client's frame of at most 125 bytes (5.3)."""
    key = os.urandom(4)
    masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return bytes((first, _MASKED | len(payload))) + key + masked
