"""A process beside the wrapped command that sees what comes to both: which signals, and the wrapper's end.

A signal may be for the wrapper alone, as a kubelet's SIGTERM is, and has to be forwarded; or it has come to
the command as well, as Ctrl-C, `kill -PGID`, `timeout` and `pkill -f` do, and must not come twice. Nothing
that the wrapper can ask the kernel tells the two apart. The witness is in the wrapper's process group, its
session and cgroup, and has its command line: what is sent to all of them comes to it too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from typing import FrozenSet, Iterable, List, Tuple

from .channels import CHUNK, read, write_all

# How long a sender that goes from one process to the next, as pkill does, may take between two of them.
WINDOW_S = 0.05
# The witness writes a signal down when it comes; the wrapper may reach it later, when others came before it.
MAX_DELAY_S = 0.5
ANSWER_S = 1.0
_ANSWER = 0  # in place of a signal's number
_NEVER = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGPIPE"}  # not to be received, or sent by the kernel for a write
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # a handler would return into them
_RECORD = struct.Struct("<Bd")  # a signal's number, and when it came
_PID = struct.Struct("<q")


def name_signal(number: int) -> str:
    """`SIGTERM`; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


FORWARDED: FrozenSet[int] = frozenset(n for n in signal.valid_signals() if name_signal(n) not in _NEVER)


class Witness:
    """Starts the process, and asks it. To be made before any thread is, with the signals blocked."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._seen: List[Tuple[int, float]] = []
        self._last: Tuple[int, float] = (0, 0.0)  # the newest that came to both
        self._is_alive = True
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):  # nothing of it may be printed
                self._socket.close()
                _watch(theirs)
            os._exit(0)
        theirs.close()

    def has_seen(self, number: int) -> bool:
        """Whether the signal that has come to this process has come to the witness too.

        Or had come just before to both: `timeout` sends each signal to us and then to all, and where it meets
        one process these two are one.
        """
        now_s = time.monotonic()
        is_answered = False  # all that has come to the witness by now is known
        while True:
            for record in self._seen:
                if record[0] == number and record[1] > now_s - MAX_DELAY_S:
                    self._seen.remove(record)
                    self._last = number, now_s
                    return True
            if self._last[0] == number and self._last[1] > now_s - WINDOW_S:
                return True
            if not self._is_alive or is_answered:
                return False
            wait_s = now_s + WINDOW_S - time.monotonic()
            if wait_s > 0 and self._poll.poll(wait_s * 1000):
                self._receive()
            elif wait_s <= 0:
                is_answered = self._ask()

    def _ask(self) -> bool:
        """Wait until the witness, which may not have had a core since, has said all. ANSWER_S at most."""
        self._send(b"q")
        deadline_s = time.monotonic() + ANSWER_S
        while self._is_alive and self._poll.poll(max(deadline_s - time.monotonic(), 0) * 1000):
            self._receive()
            if self._seen and self._seen[-1][0] == _ANSWER:
                self._seen.pop()
                break
        return True

    def guard(self, pid: int) -> None:
        """Kill this process when the wrapper is killed: who kills the one they know wants the other ended.

        0: none any more.
        """
        self._send(b"g" + _PID.pack(pid))

    def take_over(self, streams: Iterable[Tuple[int, int]]) -> None:
        """Go on copying from the first to the second of each pair: for what the command has left running."""
        for source, target in streams:
            with contextlib.suppress(OSError):
                socket.send_fds(self._socket, [b"c"], [source, target])

    def dismiss(self) -> None:
        """Ask for nothing more: the witness ends when nothing is left to copy."""
        self._send(b"e")

    def _send(self, message: bytes) -> None:
        try:
            self._socket.sendall(message)
        except OSError:  # someone has killed it: from now on every signal is forwarded
            self._is_alive = False

    def _receive(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = self._socket.recv(_RECORD.size, socket.MSG_WAITALL)
        self._is_alive = len(data) == _RECORD.size
        if self._is_alive:
            self._seen = [*self._seen, _RECORD.unpack(data)][-64:]


def _watch(wrapper: socket.socket) -> None:
    """What the witness does, from its start to its end."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # who waits for the end of the output does not wait for the witness
    close_all_but({0, 1, 2, wrapper.fileno()})
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    numbers = [number for number in FORWARDED if name_signal(number) not in _FAULTS]
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    command = 0
    streams: List[Tuple[int, int]] = []
    message = b""
    descriptors: List[int] = []
    while True:
        ready = select.select([wrapper.fileno(), readable], [], [])[0]
        if wrapper.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(wrapper, 1, 2)
        with contextlib.suppress(OSError):  # the wrapper is gone, or no signal has come
            now_s = time.monotonic()
            for number in os.read(readable, 64):
                wrapper.sendall(_RECORD.pack(number, now_s))
        if wrapper.fileno() not in ready:
            continue
        if message == b"q":
            with contextlib.suppress(OSError):
                wrapper.sendall(_RECORD.pack(_ANSWER, 0.0))
        elif message == b"g":
            (command,) = _PID.unpack(wrapper.recv(_PID.size, socket.MSG_WAITALL))
        elif message == b"c":
            streams.append((descriptors[0], descriptors[1]))
        else:
            break
    wrapper.close()
    if message == b"" and command:
        os.kill(command, signal.SIGKILL)
    threads = [threading.Thread(target=_copy, args=stream) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _copy(source: int, target: int) -> None:
    """Until nobody can write into the one, or nobody reads the other."""
    buffer = memoryview(bytearray(CHUNK))
    while count := read(source, buffer):
        if not write_all(target, buffer[:count]):
            break
    os.close(source)
    os.close(target)


def close_all_but(kept: Iterable[int]) -> None:
    """In a process beside the command: hold nothing open that is the command's, or ours."""
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
