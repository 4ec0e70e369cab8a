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
    from typing import Any, Optional

ASIDE = 200  # a descriptor: a new file gets the lowest number that is free
_CREDENTIALS = 12  # bytes of struct ucred, which begins with the process
MAX_READ = 64  # messages at once
_ends: Optional[tuple[Any, int]] = None  # what we read, and where Python writes


def listen() -> None:
    """From now on, `has_come` knows. On the main thread. Does nothing where another one listens.

    Nor in a program that has not imported ctypes: its calls in C are Python's own, which a signal interrupts.
    """
    global _ends
    if "ctypes" not in sys.modules or "trio" in sys.modules or not sys.platform.startswith("linux"):
        return  # trio warns when it finds a descriptor
    if _is_in_event_loop():
        return
    try:
        if _ends is None:
            _ends = _open()
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


def has_come(number: int) -> bool:
    """Whether the signal has come to this process since the last call."""
    found = False
    for _ in range(MAX_READ if _ends is not None else 0):
        try:
            numbers, about, _, _ = _ends[0].recvmsg(4096, 64)  # type: ignore[index]
        except OSError:  # no more
            break
        if not numbers:
            break
        pids = [int.from_bytes(data[:4], sys.byteorder) for _, _, data in about if len(data) == _CREDENTIALS]
        found = found or (number in numbers and pids == [os.getpid()])
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


def _open() -> tuple[Any, int]:
    import _socket
    import fcntl

    made = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    made[0].setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    numbers = [fcntl.fcntl(one.detach(), fcntl.F_DUPFD_CLOEXEC, ASIDE) for one in made]
    return _socket.socket(fileno=numbers[0]), numbers[1]
