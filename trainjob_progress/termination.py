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
_previous: Any = None  # what had SIGTERM before: a function, SIG_DFL, SIG_IGN; None when it is not Python's
_installed_in_pid = 0


def watch(reporter: Reporter) -> None:
    """Flush `reporter` on SIGTERM. Off the main thread nothing can be installed, and nothing is."""
    global _previous, _installed_in_pid
    _watched.append(reporter)
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is _on_sigterm
    ):
        return
    _previous = signal.signal(signal.SIGTERM, _on_sigterm)
    _installed_in_pid = os.getpid()


def forget(reporter: Reporter) -> None:
    """Stop flushing it; with the last one the old handler comes back, unless someone put theirs over ours."""
    global _previous
    if reporter in _watched:
        _watched.remove(reporter)
    if _watched or threading.current_thread() is not threading.main_thread():
        return
    if _previous is not None and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, _previous)
        _previous = None


def _on_sigterm(number: int, frame: Optional[FrameType]) -> None:
    if _installed_in_pid == os.getpid():
        for reporter in tuple(_watched):
            reporter.flush()
    if callable(_previous):
        _previous(number, frame)
    elif _previous != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # so that the exit code is the one of a terminated process
