"""TensorBoard: event files below `TENSORBOARD_LOGGING_DIR`, by default ./runs, written without TensorBoard.

An event file is a TFRecord file of Event messages (tensorflow/core/util/event.proto): eight bytes of length,
its masked CRC-32C, the message, its masked CRC-32C.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Mapping, Optional, Sequence

from . import Point, TrackerSink, encode_field, find_name

INTERVAL_S = 2.0
DIRECTORY_VARIABLE = "TENSORBOARD_LOGGING_DIR"  # as Hugging Face's Trainer has it


def find(environ: Mapping[str, str]) -> TrackerSink:
    directory = environ.get(DIRECTORY_VARIABLE) or "runs"
    return TrackerSink(EventFile(os.path.join(os.path.abspath(directory), find_name())), INTERVAL_S)


class EventFile:
    """Writes into a file of its own in `directory`, so that several attempts of a job share that."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path: Optional[str] = None

    def log(self, points: Sequence[Point]) -> None:
        content = b"".join(_record(_encode(point)) for point in points)
        if self._path is None:
            os.makedirs(self._directory, exist_ok=True)
            self._path = os.path.join(
                self._directory, f"events.out.tfevents.{time.time():.6f}{find_suffix()}"
            )
        # Opened anew each time: a program that closes all descriptors has files of its own by their numbers.
        with open(self._path, "ab", buffering=0) as file:
            if not file.tell():
                content = _record(encode_field(1, time.time()) + encode_field(3, "brain.Event:2")) + content
            written = file.write(content)
            if written != len(content):  # a full disk: behind half a record nothing could be read
                file.truncate(os.fstat(file.fileno()).st_size - (written or 0))
                raise OSError(f"{self._path} takes no more: the disk is full")

    def end(self, ending: Optional[str]) -> None:
        del ending  # an event file has no place for it
        self._path = None


def find_suffix() -> str:
    """What the name of a file ends with that this process writes, and of no other one."""
    return f".{socket.gethostname()}.{os.getpid()}"


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + check(length) + data + check(data)


def check(data: bytes) -> bytes:
    """The masked CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _encode(point: Point) -> bytes:
    values = b"".join(
        encode_field(
            1, encode_field(1, name) + b"\x15" + struct.pack("<f", _clip(value))
        )  # simple_value, a float
        for name, value in point.values.items()
    )
    return encode_field(1, point.unix_s) + encode_field(2, point.step) + encode_field(5, values)


def _clip(value: float) -> float:
    """As a float of 32 bits can have it."""
    return value if value - value != 0 or abs(value) < 3.4e38 else value * float("inf")


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()
