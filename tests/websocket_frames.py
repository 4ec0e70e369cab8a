"""WebSocket frames as a server writes them, right or wrong."""

from __future__ import annotations

import base64
import hashlib

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode: int, data: bytes = b"", *, is_final: bool = True, reserved: int = 0) -> bytes:
    head = bytes(((0x80 if is_final else 0) | reserved | opcode,))
    if len(data) < 126:
        return head + bytes((len(data),)) + data
    if len(data) < 65536:
        return head + b"\x7e" + len(data).to_bytes(2, "big") + data
    return head + b"\x7f" + len(data).to_bytes(8, "big") + data


def unmasked(data: bytes) -> tuple[int, bytes]:
    """First byte and payload of the one short frame of a client in `data`."""
    assert data[1] & 0x80, "a client has to mask"
    length, key = data[1] & 0x7F, data[2:6]
    assert len(data) == 6 + length
    return data[0], bytes(byte ^ key[at % 4] for at, byte in enumerate(data[6:]))


def accepting(request: bytes, *, protocol: str = "v5.channel.k8s.io") -> bytes:
    """The right answer to the head of an upgrade request."""
    lines = dict(line.split(": ", 1) for line in request.decode().split("\r\n")[1:] if line)
    digest = hashlib.sha1(lines["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {base64.b64encode(digest.digest()).decode()}\r\n"
        f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode()
