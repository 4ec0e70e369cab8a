"""WebSocket frames as a client receives them (RFC 6455, section 5), without I/O or extensions."""

from __future__ import annotations

import os
from collections.abc import Generator

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_MAX_CONTROL_BYTES = 125


class FrameError(ValueError):
    """A frame that a server may not send here. The message names the rule, never the content."""


class FrameReader:
    """Reads binary messages from bytes."""

    def __init__(self, max_message_bytes: int) -> None:
        self.is_closed = False  # a close frame was received; what follows it is ignored
        self.pongs = b""  # the frames to send in answer to pings
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()  # at most one incomplete frame, and what was fed last
        self._message: bytearray | None = None  # fragments of a message whose last one has not come

    def feed(self, data: bytes) -> Generator[bytes, None, None]:
        """Yield for each frame the message that it completes, or b"" if it completes none. Raises FrameError.

        A message is at most `max_message_bytes` long. Iterate before feeding more; stopping early is allowed.
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
                yield self._handle(first, payload)
        finally:
            del buffer[:at]

    def _check(self, first: int, length: int) -> None:
        """Check a header before the rest of its frame has come."""
        if first & _RESERVED:
            raise FrameError("a reserved bit is set")
        opcode = first & 0x0F
        if opcode in (_CLOSE, _PING, _PONG):
            if not first & _FINAL or length > _MAX_CONTROL_BYTES:
                raise FrameError("a control frame is fragmented or too long")
        elif opcode not in (_BINARY, _CONTINUATION):
            raise FrameError("a frame is neither binary nor control")
        elif (opcode == _CONTINUATION) != (self._message is not None):
            raise FrameError("fragments of messages are out of order")
        elif length + len(self._message or b"") > self._max_message_bytes:
            raise FrameError("a message is too long")

    def _handle(self, first: int, payload: bytes) -> bytes:
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
    """A client's frame of at most 125 bytes, masked as RFC 6455, section 5.3 requires."""
    key = os.urandom(4)
    masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return bytes((first, _MASKED | len(payload))) + key + masked
