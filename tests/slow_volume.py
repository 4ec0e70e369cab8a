"""A volume whose file is read slowly, or never answers: a file system of this process, by Linux's FUSE.

python -m tests.slow_volume DIRECTORY SECONDS      each 128 KiB after SECONDS, none at all where it is 0
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE, SIZE = 2, 1 << 30  # its inode, and bytes
FLAGS = 2 | 4  # MS_NOSUID, MS_NODEV
GETATTR, LOOKUP, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR = 3, 1, 14, 15, 18, 25, 26, 27
UNANSWERED, ENOSYS = (2, 36, 42), 38  # FORGET, INTERRUPT, BATCH_FORGET


@contextlib.contextmanager
def mounted(directory: Path, seconds: float) -> Iterator[Path]:
    """The path of the file. Skips where this may not be mounted."""
    directory.mkdir()
    command = (sys.executable, "-m", "tests.slow_volume", str(directory), str(seconds))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        if not server.stdout.readline():
            pytest.skip("no file system may be mounted here")
        try:
            yield directory / "data"
        finally:
            server.kill()  # whoever reads it gets an error
            server.wait()
            ctypes.CDLL(None).umount2(str(directory).encode(), 2)  # MNT_DETACH


def serve(directory: str, seconds: float) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if ctypes.CDLL(None).mount(b"slow", directory.encode(), b"fuse", FLAGS, options):
        sys.exit("no file system may be mounted here")
    print("mounted", flush=True)
    while True:
        asked = os.read(device, 1 << 20)
        _, operation, unique, inode = struct.unpack_from("=IIQQ", asked)
        body, error = b"", 0
        if operation in UNANSWERED or (operation == READ and not seconds):
            continue
        if operation == INIT:  # version 7.31
            body = struct.pack("=4I2H2I2HI28x", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 0, 0, 0)
        elif operation == LOOKUP:
            body = struct.pack("=4Q2I", FILE, 0, 60, 60, 0, 0) + attributes(FILE)
        elif operation == GETATTR:
            body = struct.pack("=Q2I", 60, 0, 0) + attributes(inode)
        elif operation in (OPEN, OPENDIR):
            body = struct.pack("=Q2I", 1, 0, 0)
        elif operation == READ:
            time.sleep(seconds)
            _, offset, size = struct.unpack_from("=QQI", asked, 40)
            body = b"x" * min(size, SIZE - offset)
        elif operation not in (RELEASE, FLUSH):
            error = -ENOSYS
        os.write(device, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


def attributes(inode: int) -> bytes:
    is_file = inode == FILE
    mode = 0o100644 if is_file else 0o40755
    return struct.pack("=6Q10I", inode, SIZE if is_file else 0, *[0] * 7, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
