"""SIGTERM comes before eviction, preemption and suspension: write the last document, then pass it on."""

from __future__ import annotations

import os
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Optional

    Flush = Callable[[], object]

_flushes: list[Flush] = []


def watch(flush: Flush) -> None:
    """Call `flush` on SIGTERM. Off the main thread nothing can be installed, and nothing is."""
    _flushes.append(flush)
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is not None and not isinstance(before, _Handler):  # None: not Python's, it could not be called
        signal.signal(signal.SIGTERM, _Handler(before))


def forget(flush: Flush) -> None:
    """Call it no more; with the last one the old handler comes back, unless someone put theirs over ours."""
    if flush in _flushes:
        _flushes.remove(flush)
    if _flushes or threading.current_thread() is not threading.main_thread():
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
            for flush in tuple(_flushes):
                flush()
        if callable(self.before):
            self.before(number, frame)
        elif self.before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # so that the exit code is the one of a terminated process
