"""SIGTERM while the main thread is in a call in C: a handler of Python's runs only when that returns.

Python's own handler, in C, writes a byte of each signal to a descriptor (`signal.set_wakeup_fd`), which a
thread of ours reads. It is a socket that says which process has written: a fork past Python has it, too. It
is never closed: who has found it there may set it again later.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

MOST = 4096  # the descriptor is below that and high: a new file gets the lowest number that is free
_CREDENTIALS = 12  # bytes of struct ucred, which begins with the process
MAX_READ = 64  # messages at once
_ends: Optional[tuple[int, int]] = None  # what we read, and where Python writes
_opened: Optional[os.stat_result] = None  # the latter, which a program may have closed since


def listen() -> None:
    """From now on, `has_come` knows. On the main thread. Does nothing where another one listens.

    Nor in a program that has not imported ctypes: its calls in C are Python's own, which a signal interrupts.
    """
    global _ends, _opened
    if "ctypes" not in sys.modules or "trio" in sys.modules or not sys.platform.startswith("linux"):
        return  # trio warns when it finds a descriptor
    if _is_in_event_loop():
        return
    try:
        if _ends is None:
            _ends = _open()
            _opened = os.fstat(_ends[1])
        before = signal.set_wakeup_fd(_ends[1], warn_on_full_buffer=False)
    except (OSError, ValueError):  # too many are open; or not the main interpreter
        return
    if before not in (-1, _ends[1]):
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)


def stop() -> None:
    """On the main thread: write no more, unless another one has taken our place."""
    if _ends is not None and not _is_in_event_loop():
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, _ends[1]):
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)


def leave() -> None:
    """In a forked child: what it reads there would be its parent's."""
    global _ends
    stop()
    _ends = None


def check() -> None:
    """On the main thread, at times: nothing may be written into a file of the program's by that number."""
    global _ends
    if _ends is None:
        return
    try:
        is_own = _opened is not None and os.path.samestat(_opened, os.fstat(_ends[1]))
    except OSError:
        is_own = False
    if is_own:
        return
    stop()
    _ends = None


def has_come(number: int) -> bool:
    """Whether the signal has come to this process since the last call."""
    ends, found = _ends, False
    if ends is None:
        return False
    import _socket

    try:
        source = _socket.socket(fileno=ends[0])  # an object that is kept would warn at the interpreter's end
    except OSError:  # the program has closed it
        return False
    try:
        source.setblocking(False)
        for _ in range(MAX_READ):
            numbers, about, _, _ = source.recvmsg(4096, 64)
            pids = [data[:4] for *_, data in about if len(data) == _CREDENTIALS]
            found = found or (number in numbers and pids == [os.getpid().to_bytes(4, sys.byteorder)])
            if not numbers:
                break
    except OSError:  # no more
        pass
    finally:
        source.detach()
    return found


def die_of(number: int) -> None:
    """End the process by this signal, as if nobody handled it. On any thread."""
    import ctypes

    ctypes.CDLL(None).signal(number, ctypes.c_void_p(0))  # Python's own is for the main thread alone
    os.kill(os.getpid(), number)


def _is_in_event_loop() -> bool:
    """Its own descriptor may be there, and would be away for a moment."""
    events = sys.modules.get("asyncio.events")
    return events is not None and getattr(events, "_get_running_loop", lambda: None)() is not None


def _open() -> tuple[int, int]:
    import _socket
    import fcntl
    import resource

    aside = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 2**63, MOST) - 16
    made = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    made[0].setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    numbers = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, aside) for one in made]
    for one in made:
        one.close()
    return numbers[0], numbers[1]
