"""One thread for each sink, which looks for news at its own pace: training never waits for a sink."""

from __future__ import annotations

import os
import sys
import threading
from queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from .document import Snapshot
    from .sinks import Sink


class Publisher:
    """Carries the newest snapshot to one sink. What a slow sink misses is skipped, not queued."""

    def __init__(
        self, sink: Sink, latest: Callable[[], Optional[Snapshot]], wait: Optional[Callable[[], None]] = None
    ) -> None:
        """`wait`: returns when those that wrote to the same place before are done with it."""
        self._sink = sink
        self._latest = latest
        self._wait = wait
        self._written: Optional[Snapshot] = None
        self._has_warned = False
        # A SimpleQueue, because a signal handler may interrupt the very thread that is putting something in:
        # its put is re-entrant, the locks of Event and Condition are not.
        self._requests: SimpleQueue[tuple[SimpleQueue[bool], bool]] = SimpleQueue()
        # Daemon: a sink that hangs must not keep a finished training process alive.
        self._thread = threading.Thread(target=self._run, name=f"progress {type(sink).__name__}", daemon=True)
        self._thread.start()

    def flush(self, is_last: bool = False) -> SimpleQueue[bool]:
        """Ask for a write now. The queue that is returned yields once it was tried."""
        done: SimpleQueue[bool] = SimpleQueue()
        self._requests.put((done, is_last))
        return done

    def join(self, timeout_s: float) -> None:
        """Wait for the end of a publisher that was asked for its last write."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        is_last = False
        done: Optional[SimpleQueue[bool]] = None
        if self._wait is not None:
            self._wait()
            self._wait = None  # or each reporter would keep the one before it
        while not is_last:
            self._publish()
            if done is not None:
                done.put(True)
            try:
                done, is_last = self._requests.get(timeout=self._sink.interval_s)
            except Empty:
                done = None
        self._publish()
        try:
            self._sink.close()
        except Exception as error:
            self._warn(error)
        if done is not None:
            done.put(True)

    def _publish(self) -> None:
        try:
            snapshot = self._latest()
            if snapshot is not None and snapshot is not self._written:
                self._sink.write(snapshot)
                self._written = snapshot
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """One line on stderr, once: a log that fills with our trouble is worse than the trouble."""
        if self._has_warned:
            return
        self._has_warned = True
        warn(f"{type(self._sink).__name__} failed, training goes on: {type(error).__name__}: {error}")


def warn(text: str) -> None:
    """Say it on stderr if that can be done."""
    line = f"trainjob_progress: {text}\n"
    try:
        try:
            descriptor = sys.stderr.fileno()
        except Exception:  # a notebook's stderr has none
            sys.stderr.write(line)
        else:
            # Past the buffer: what stays in it makes the interpreter end with exit code 120.
            os.write(descriptor, line.encode("utf-8", "replace"))
    except Exception:  # noqa: S110 — stderr is closed or broken: there is nobody to tell
        pass
