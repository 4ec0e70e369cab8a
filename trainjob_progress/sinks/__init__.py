"""Where documents go. A sink may be slow and may fail: a publisher stands between it and training."""

from __future__ import annotations

from typing import Protocol

from trainjob_progress.document import Snapshot


class Sink(Protocol):
    """One place that takes documents."""

    interval_s: float  # the least time between two documents

    def write(self, snapshot: Snapshot) -> None:
        """Put this document where the last one was. May block and may raise: only a publisher calls it."""

    def close(self) -> None:
        """Let go of what is held. Called once, after the last write, by the publisher's thread."""
