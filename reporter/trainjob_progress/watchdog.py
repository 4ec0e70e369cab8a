"""A stack of a process in which no Python can run: something holds the interpreter's lock (GIL) in C.

Who waits for that lock looks each 5 ms whether it is free, which takes some time on the CPU. A timer of the
kernel counts such time of a thread of ours, which sets it again and again: it elapses only when that thread
could run and never got the lock. No time counts in which the whole process is stopped, frozen or without a
core; else the stacks would be read while other threads change them. Seen: that ended one process in thirty.
When it elapses, a signal comes to that very thread, and faulthandler's handler writes all stacks, in C.
`faulthandler.dump_traceback_later` is not used: there is one for each process, and it is the program's.
The signal is SIGURG, which does nothing where nobody handles it; where somebody does, there is no watchdog.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # no enumeration

from .sinks.file import open_anew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

SPENT_S = 0.03  # on the CPU, waiting for the lock: mostly after 5 to 60 s
_OWN_CPU = 3  # CLOCK_THREAD_CPUTIME_ID
_TO_THREAD = 4  # SIGEV_THREAD_ID


def make_watchdog(path: str) -> Optional[Watchdog]:
    """One that writes to `path`; None where there is none. On the program's thread, for what is imported.

    A program that has not imported ctypes holds no lock in C, or none that is worth the import.
    """
    if "ctypes" not in sys.modules or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    try:
        return Watchdog(path)
    except (AttributeError, ImportError, OSError):  # another libc, or another Python
        return None


class Watchdog:
    """Of one run. All but what is said to be otherwise is done on the thread that is watched."""

    def __init__(self, path: str) -> None:
        import ctypes
        import faulthandler

        class Event(ctypes.Structure):  # struct sigevent
            _fields_ = (
                ("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("how", ctypes.c_int),
                ("thread", ctypes.c_int), ("rest", ctypes.c_int * 11),
            )  # fmt: skip

        self._make_event, self._ctypes, self._faulthandler = Event, ctypes, faulthandler
        self._register = faulthandler.register
        own = ctypes.CDLL(None)
        self._library = own if hasattr(own, "timer_create") else ctypes.CDLL("librt.so.1")
        self._library.timer_create  # noqa: B018 — or AttributeError
        self._path = path
        self._file: Optional[int] = None
        self._is_registered = False
        self._is_over = False
        self._thread: Optional[int] = None  # that the timer is for
        self._timer: Any = None

    def arm(self) -> None:
        """Let the thread that calls this have another SPENT_S. What was written before is old."""
        if self._is_over:
            return
        if self._file is None:
            if _is_handled(signal.SIGURG) or threading.get_native_id() == os.getpid():  # or a greenlet
                self._is_over = True
                return
            self._file = open_anew(self._path)
            self._register(signal.SIGURG, file=self._file, all_threads=True, chain=False)
            self._is_registered = True
        elif getsignal(signal.SIGURG) != signal.SIG_DFL:  # the program has a handler since
            self._is_registered = False
            self.end()
            return
        elif os.fstat(self._file).st_size:
            os.ftruncate(self._file, 0)
        if self._thread != threading.get_native_id():
            self._delete_timer()
            self._make_timer()
        at = (self._ctypes.c_long * 4)(0, 0, 0, int(SPENT_S * 1e9))
        self._library.timer_settime(self._timer, 0, at, None)

    def end(self) -> None:
        """Take it all away."""
        self._delete_timer()
        if self.forget():
            os.unlink(self._path)

    def forget(self) -> bool:
        """In a child, which has no timer: it shall have neither the handler nor the file. Whether it had."""
        self._is_over = True
        if self._is_registered:
            self._is_registered = False
            self._faulthandler.unregister(signal.SIGURG)
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        return file is not None

    def _make_timer(self) -> None:
        thread, timer = threading.get_native_id(), self._ctypes.c_void_p()
        event = self._make_event(None, int(signal.SIGURG), _TO_THREAD, thread)
        by_reference = self._ctypes.byref
        if self._library.timer_create(_OWN_CPU, by_reference(event), by_reference(timer)):
            self.end()
            raise OSError("the kernel gives no timer")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGURG})
        self._timer, self._thread = timer, thread

    def _delete_timer(self) -> None:
        # That of a thread which has ended is left until then: it reaches nobody.
        timer, self._timer, self._thread = self._timer, None, None
        if timer is not None:
            self._library.timer_delete(timer)


def _is_handled(number: int) -> bool:
    """Whether something, in Python or in C, handles or ignores a signal, as far as the kernel says."""
    bit = 1 << (number - 1)
    try:
        with open("/proc/self/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if b":" in line)
        return bool((int(lines[b"SigCgt"], 16) | int(lines[b"SigIgn"], 16)) & bit)
    except (OSError, KeyError, ValueError):
        return True
