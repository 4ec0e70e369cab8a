"""Sinks in memory, for tests of what a loop says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from trainjob_progress.document import Snapshot


class MemorySink:
    """Keeps what it is given; asks for more every 10 ms."""

    def __init__(self, interval_s: float = 0.01) -> None:
        self.interval_s = interval_s
        self.written: list[Snapshot] = []
        self.is_closed = False

    def write(self, snapshot: Snapshot) -> None:
        assert not self.is_closed
        self.written.append(snapshot)

    def close(self) -> None:
        self.is_closed = True

    @property
    def last(self) -> Snapshot:
        return self.written[-1]


class ReopeningSink(MemorySink):
    """Takes documents after its end too."""

    reopens = True

    def write(self, snapshot: Snapshot) -> None:
        self.written.append(snapshot)


class HangingSink(MemorySink):
    """Takes nothing until it is released, as a disk or a network that hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.is_entered = threading.Event()
        self.released = threading.Event()

    def write(self, snapshot: Snapshot) -> None:
        self.is_entered.set()
        self.released.wait(60)
        super().write(snapshot)


class BrokenSink(MemorySink):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.tries = 0

    def write(self, snapshot: Snapshot) -> None:
        self.tries += 1
        raise self.error


def wait_until(is_so: Callable[[], object], timeout_s: float = 60.0) -> None:
    """`is_so` may look at the last document before there is one."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(IndexError):
            if is_so():
                return
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.002)
