"""A sink that prints: one document, one line, for readers of the container's log."""

from __future__ import annotations

import os

from trainjob_progress.document import Snapshot, encode
from trainjob_progress.tail import Tail

MAX_ROWS = 16  # a log keeps everything
LINE_MAX_BYTES = 4096  # one write of this size into a pipe is not torn apart by other writers (PIPE_BUF)


class LogSink:
    """Prints each document as one line of JSON on stdout, with what came since the line before.

    Sparse, because a log keeps everything.
    """

    reopens = True

    def __init__(self, interval_s: float = 15.0, descriptor: int = 1) -> None:
        self.interval_s = interval_s
        self._descriptor = descriptor
        self._tail = Tail(MAX_ROWS)

    def follow(self, snapshot: Snapshot) -> None:
        """Told of what is not written, between two documents."""
        self._tail.follow(snapshot)

    def write(self, snapshot: Snapshot) -> None:
        # Past sys.stdout: its buffer belongs to the program, and its lock may be held by a print that hangs.
        self._tail.follow(snapshot)
        recent = self._tail.columns(snapshot)
        os.write(self._descriptor, encode(snapshot, LINE_MAX_BYTES - 1, recent) + b"\n")
        self._tail.clear()

    def close(self) -> None:
        pass
