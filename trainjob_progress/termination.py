"""SIGTERM comes before eviction, preemption and suspension: write the last document, then pass it on."""

from __future__ import annotations

import os
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

    from .reporter import Reporter

_watched: list[Reporter] = []


def watch(reporter: Reporter) -> None:
    """Flush `reporter` on SIGTERM. Off the main thread nothing can be installed, and nothing is."""
    _watched.append(reporter)
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is not None and not isinstance(before, _Handler):  # None: not Python's, it could not be called
        signal.signal(signal.SIGTERM, _Handler(before))


def forget(reporter: Reporter) -> None:
    """Stop flushing it; with the last one the old handler comes back, unless someone put theirs over ours."""
    if reporter in _watched:
        _watched.remove(reporter)
    if _watched or threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, _Handler):
        signal.signal(signal.SIGTERM, handler.before)


class _Handler:
    """Flushes, then does what would have been done without us. Each knows what it was put over."""

    __slots__ = ("_pid", "before")

    def __init__(self, before: Any) -> None:  # noqa: ANN401 — a function, SIG_DFL or SIG_IGN
        self.before = before
        self._pid = os.getpid()

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        if self._pid == os.getpid():  # a fork inherits the handler, but not the reporters' threads
            for reporter in tuple(_watched):
                reporter.flush()
        if callable(self.before):
            self.before(number, frame)
        elif self.before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # so that the exit code is the one of a terminated process
