"""A stack of a process in which no Python can run: something holds the interpreter's lock (GIL) in C.

Who waits for that lock looks each 5 ms whether it is free, which takes some time on the CPU. A timer of the
kernel counts the time on the CPU of a thread of ours, which sets it again and again. The thread's own work
between two settings counts too, and is a small part. No time counts in which the whole process is stopped,
frozen or without a core; else the stacks would be read while other threads change them. Seen: that ended one
process in thirty. For the same reason there is no watchdog where there is no such lock (free threading).
When it elapses, a signal comes to that very thread, and faulthandler's handler writes all stacks, in C.
`faulthandler.dump_traceback_later` is not used: there is one for each process, and it is the program's.
The signal is SIGURG, which does nothing where nobody handles it; where somebody does, there is no watchdog.
A program may close our descriptor and open a file that gets its number: each use looks first whose it is. The
handler in C cannot look: the number is one that a new file does not get.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from .sinks.file import open_anew, remove_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

SPENT_S = 0.03  # on the CPU, waiting for the lock: mostly after 5 to 60 s
ASIDE = 200  # a descriptor: a new file gets the lowest number that is free
_OWN_CPU = 3  # CLOCK_THREAD_CPUTIME_ID
_TO_THREAD = 4  # SIGEV_THREAD_ID


def make_watchdog(path: str) -> Optional[Watchdog]:
    """One that writes to `path`; None where there is none. On the program's thread, for what is imported.

    A program that has not imported ctypes holds no lock in C, or none that is worth the import.
    """
    if "ctypes" not in sys.modules or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
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
        import fcntl

        class Event(ctypes.Structure):  # struct sigevent
            _fields_ = (
                ("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("how", ctypes.c_int),
                ("thread", ctypes.c_int), ("rest", ctypes.c_int * 11),
            )  # fmt: skip

        self._make_event, self._ctypes, self._faulthandler = Event, ctypes, faulthandler
        self._register, self._fcntl = faulthandler.register, fcntl
        own = ctypes.CDLL(None)
        self._library = own if hasattr(own, "timer_create") else ctypes.CDLL("librt.so.1")
        self._library.timer_create, self._library.sigaction  # noqa: B018 — or AttributeError
        self._path = path
        self._file: Optional[int] = None
        self._opened: Optional[os.stat_result] = None  # the file, which a program may have closed since
        self._handler = 0  # faulthandler's, in C
        self._is_over = False
        self._thread: Optional[int] = None  # that the timer is for
        self._timer: Any = None

    def arm(self) -> None:
        """Let the thread that calls this have another SPENT_S. What was written before is old.

        Raises OSError where that cannot be done, after which there is nothing but `end`.
        """
        if self._is_over:
            return
        if self._file is None:
            if self._find_handler() or threading.get_native_id() == os.getpid():  # or a greenlet
                self._is_over = True
                return
            self._file = self._put_aside(open_anew(self._path))
            self._opened = os.fstat(self._file)
            self._register(signal.SIGURG, file=self._file, all_threads=True, chain=False)
            self._handler = self._find_handler()
        elif self._find_handler() != self._handler or not self._is_own(self._file):  # the program's since
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
        """Take away all that is ours still."""
        self._delete_timer()
        self.forget()
        try:
            is_own = self._opened is not None and os.path.samestat(self._opened, os.lstat(self._path))
        except OSError:
            return
        if is_own:
            remove_file(self._path)

    def forget(self) -> None:
        """In a child, which has no timer: it shall have neither the handler nor the file."""
        self._is_over = True
        file, self._file = self._file, None
        if file is None or self._find_handler() != self._handler:
            return  # another's handler may give the signal on to ours, which writes to this number: it stays
        self._faulthandler.unregister(signal.SIGURG)
        if self._is_own(file):
            os.close(file)

    def _put_aside(self, file: int) -> int:
        """The same file under another number, if as many may be open."""
        try:
            aside = self._fcntl.fcntl(file, self._fcntl.F_DUPFD_CLOEXEC, ASIDE)
        except OSError:
            return file
        os.close(file)
        return aside

    def _is_own(self, file: int) -> bool:
        try:
            return self._opened is not None and os.path.samestat(self._opened, os.fstat(file))
        except OSError:
            return False

    def _find_handler(self) -> int:
        """Where the function is that handles SIGURG; 0 where none does, 1 where it is ignored."""
        found = (self._ctypes.c_size_t * 64)()  # struct sigaction is shorter, and begins with it
        self._library.sigaction(int(signal.SIGURG), None, found)
        return int(found[0])

    def _make_timer(self) -> None:
        thread, timer = threading.get_native_id(), self._ctypes.c_void_p()
        event = self._make_event(None, int(signal.SIGURG), _TO_THREAD, thread)
        by_reference = self._ctypes.byref
        if self._library.timer_create(_OWN_CPU, by_reference(event), by_reference(timer)):
            raise OSError("the kernel gives no timer")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGURG})
        self._timer, self._thread = timer, thread

    def _delete_timer(self) -> None:
        # That of a thread which has ended is left until then: it reaches nobody.
        timer, self._timer, self._thread = self._timer, None, None
        if timer is not None:
            self._library.timer_delete(timer)
