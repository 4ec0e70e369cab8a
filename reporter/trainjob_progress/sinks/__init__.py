"""Where documents go. A sink may be slow and may fail: a publisher stands between it and training."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from trainjob_progress.document import Snapshot

    class Sink(Protocol):
        """One place that takes documents. Anything that has these is one: there is no base class."""

        interval_s: float  # the least time between two documents

        def write(self, snapshot: Snapshot) -> None:
            """Put this document where the last one was. May block, may raise: only a publisher calls it.

            Must not import anything: it runs on a thread, and a fork would hand on the import's lock.
            """

        def close(self) -> None:
            """Let go of what is held. Called once, after the last write, by the publisher's thread.

            A sink with an attribute `reopens` that is true is written to, and closed, again when a result
            comes after the end of a run. One with a method `follow(snapshot)` is told between two documents
            what it is not given to write, twice a second. To a `queue`, a deque, each snapshot is appended.
            `end_s`: for how long the end of a run may wait for it, where 0.12 s are too short; `last_s`: the
            end of the process. One that `is_local` is waited for as long as it gets ahead.
            """
