"""What the wrapped command writes into, and how it gets from there to where the wrapper's own output goes.

A terminal for a terminal and a pipe for anything else, so that the command sees what it would see without us.
The bytes go on at once and unchanged; a copy of the newest of them is kept for who reads it in time. Most of
a flood the kernel moves by itself; some of it, and its end, are copied.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
import threading
from typing import Callable, Dict, Iterable, List, Optional, Tuple

from .publisher import warn

CHUNK = 256 * 1024  # bytes that a pipe of ours holds, and that are copied at once
FLOOD = 64 * 1024  # bytes that wait in the pipe when the kernel has moved the rest of a flood
_F_SETPIPE_SZ = 1031  # Linux; Python 3.9 has no name for it
MAX_BACKLOG = 256 * 1024  # bytes that nobody has read yet; of what is more, the newest are kept
LINGER_S = 0.1  # for what the command's own children say last, when they end a moment after it


class Channel:
    """One way out of the command: its stdout, its stderr, or both of them where they are one."""

    def __init__(self, descriptors: List[int]) -> None:
        """`descriptors`: 1, 2 or both. Raises OSError."""
        self.descriptors = descriptors
        self._target = descriptors[0]
        self._is_terminal = os.isatty(self._target)
        self._source, self.inlet = self._open()
        self._stopped_outlet, self._stopped_inlet = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._source, select.POLLIN)
        self._poll.register(self._stopped_outlet, select.POLLIN)
        self._can_splice = not self._is_terminal and hasattr(os, "splice")  # Python 3.10, Linux
        self._is_over = False
        self._left = 0  # once it is over: bytes that the command has written and nobody has read
        self._lock = threading.Lock()
        self._backlog: List[bytes] = []
        self._backlog_size = 0
        self._has_lost = False  # something that could not be written
        self._has_gap = False  # what is kept does not follow what was taken before
        self._has_skipped = False  # what comes next does not follow what is kept
        self.is_held = False  # once it was stopped: whether someone may still write
        self._thread = threading.Thread(target=self._copy, name="progress output", daemon=True)

    def start(self) -> None:
        """Begin to copy: the command has the other end by now."""
        os.close(self.inlet)
        self._thread.start()

    def take(self) -> Tuple[bytes, bool]:
        """What has come since the last call, and whether something before it is missing."""
        with self._lock:
            taken, self._backlog, self._backlog_size = self._backlog, [], 0
            has_gap, self._has_gap = self._has_gap, False
            has_gap = has_gap or self._has_skipped
        return b"".join(taken), has_gap

    def resize(self) -> bool:
        """Whether the terminal has another size than before; then the command's has it too."""
        if not self._is_terminal:
            return False
        try:
            size = fcntl.ioctl(self._target, termios.TIOCGWINSZ, bytes(8))
            if size == fcntl.ioctl(self._source, termios.TIOCGWINSZ, bytes(8)):
                return False
            fcntl.ioctl(self._source, termios.TIOCSWINSZ, size)
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """The command has ended: copy what it has written, and no more than that."""
        os.close(self._stopped_inlet)

    def join(self, timeout_s: Optional[float] = None) -> bool:
        """Whether all of it was written, which whoever is to read it can put off."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def stream(self) -> Tuple[int, int]:
        return self._source, self._target

    def _open(self) -> Tuple[int, int]:
        """(where we read, where the command writes)."""
        if self._is_terminal:
            try:
                source, inlet = os.openpty()
            except OSError:  # no /dev/ptmx here
                self._is_terminal = False
            else:
                attributes = termios.tcgetattr(self._target)
                attributes[1] &= ~termios.OPOST  # line ends become \r\n once, in the real one
                termios.tcsetattr(inlet, termios.TCSANOW, attributes)
                self._source = source
                self.resize()
                return source, inlet
        source, inlet = os.pipe()
        with contextlib.suppress(OSError):  # more than a user may have
            fcntl.fcntl(source, _F_SETPIPE_SZ, CHUNK)
        return source, inlet

    def _copy(self) -> None:
        # One for all chunks: making one for each takes as long as copying it.
        buffer = memoryview(bytearray(CHUNK))
        while self._has_more():
            if self._pass_on():
                continue
            chunk = buffer[: read(self._source, buffer)]
            self._left = max(self._left - len(chunk), 0)
            self._keep(chunk)  # the command has said it, whether or not somebody reads it
            if not chunk or not write_all(self._target, chunk, self._warn_of_loss):
                # Whoever writes on is told as if we were not there: by SIGPIPE.
                source, self._source = self._source, -1
                os.close(source)
                return
        self.is_held = True

    def _warn_of_loss(self, error: OSError) -> None:
        if not self._has_lost:
            self._has_lost = True
            warn(f"some of the command's output is lost: {error.strerror}")

    def _pass_on(self) -> bool:
        """Whether the kernel has moved some of what waits: of a flood all but the newest bytes. Not when what
        was kept last has been taken: then some is read."""
        if not self._can_splice or not self._backlog:
            return False
        moved = self._count_waiting() - FLOOD
        if moved < FLOOD:
            return False
        try:
            moved = os.splice(self._source, self._target, moved)
        except OSError:  # the target is no pipe, or what is wrong with it is found by writing
            self._can_splice = False
            return False
        self._left = max(self._left - moved, 0)
        self._has_skipped = True
        return True

    def _count_waiting(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self._source, termios.FIONREAD, bytes(4)))[0])

    def _has_more(self) -> bool:
        """Wait until there is something to copy. False: the command has ended, and all it wrote is copied."""
        if not self._is_over:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._stopped_outlet not in ready:
                return True
            self._is_over = True
            self._poll.unregister(self._stopped_outlet)
            self._poll.modify(self._source, 0)  # nothing but its end
            self._poll.poll(LINGER_S * 1000)
            self._left = self._count_waiting()
        return self._left > 0 or bool(self._poll.poll(0))

    def _keep(self, chunk: memoryview) -> None:
        newest = bytes(chunk[-MAX_BACKLOG:])
        with self._lock:
            if self._has_skipped:
                self._backlog, self._backlog_size = [], 0
                self._has_gap, self._has_skipped = True, False
            self._has_gap = self._has_gap or len(newest) < len(chunk)
            self._backlog.append(newest)
            self._backlog_size += len(newest)
            while self._backlog_size > MAX_BACKLOG:
                self._backlog_size -= len(self._backlog.pop(0))
                self._has_gap = True


def open_channels(outputs: Iterable[int]) -> List[Channel]:
    """One for each of the descriptors; one for both where they are the same, or what is written into the one
    and then into the other could change places."""
    places: Dict[Tuple[int, int], List[int]] = {}
    for descriptor in outputs:
        status = os.fstat(descriptor)
        places.setdefault((status.st_dev, status.st_ino), []).append(descriptor)
    return [Channel(descriptors) for descriptors in places.values()]


def read(source: int, buffer: memoryview) -> int:
    """Take what is there; waits for some. How many bytes; none when no more can come."""
    try:
        return os.readv(source, [buffer])
    except OSError:  # a terminal says so that the other side is closed
        return 0


def write_all(target: int, chunk: memoryview, tell: Callable[[OSError], None] = lambda _: None) -> bool:
    """Whether there is still someone to write to. What a full disk does not take is lost, and told of."""
    while chunk:
        try:
            chunk = chunk[os.write(target, chunk) :]
        except BlockingIOError:  # whoever shares it with us has made it so
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO, errno.ECONNRESET):
                return False
            tell(error)
            return True
    return True
