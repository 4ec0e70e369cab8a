"""One thread for each sink, which looks for news at its own pace: training never waits for a sink."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time

from . import redaction
from .stalls import StallClock
from .termination import let_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import SimpleQueue
    from typing import Callable, Mapping, Optional

    from .document import Snapshot
    from .sinks import Sink

POLL_S = 0.5  # a sink that writes less often still notices what moves: the time of a report is when it moved
DISK_S = 5.0  # how long the end of a process waits for a disk that hangs: a busy one may do so for seconds
LAST_S = 1.0  # the same for another place that is slow
END_S = 20.0  # for threads that get ahead: less than the kubelet waits after SIGTERM, before it kills
QUICK_S = 1.0  # a sink with a shorter interval is written to before a fork; the others have time


class Publisher:
    """Carries the newest snapshot to one sink. What a slow sink misses is skipped, not queued."""

    def __init__(
        self, sink: Sink, latest: Callable[[], Optional[Snapshot]], wait: Optional[Callable[[], None]] = None
    ) -> None:
        """`wait`: returns when those that wrote to the same place before are done with it."""
        self.sink = sink
        self._latest = latest
        self._wait = wait
        self._written: Optional[Snapshot] = None
        self._written_s = float("-inf")
        self._stall = StallClock()
        self._has_warned = False
        self._is_closed = False
        self._thread: Optional[threading.Thread] = None
        self._is_paused = False
        # The thread that takes what is in it is the publisher's. No lock: a signal's handler waits for that
        # thread, and may have interrupted whoever holds a lock.
        self._place: list[None] = [None]
        # A SimpleQueue, because a signal handler may interrupt the very thread that is putting something in:
        # its put is re-entrant, the locks of Event and Condition are not. By its module's name: where gevent
        # has made threads into greenlets since, its own queue lets the others run, Python's none.
        self._requests: SimpleQueue[tuple[SimpleQueue[bool], str]] = queue.SimpleQueue()

    def start(self) -> None:
        """Have a thread again, unless there is one. On the training thread, or in a handler that has
        interrupted this: a thread that does not run yet is none, and of two that do, one ends at once."""
        self._is_paused = False
        if self._thread is not None and self._thread.ident is not None:
            return
        if sys.is_finalizing():  # before Python 3.12 it would be waited for, and never run
            raise RuntimeError("can't create new thread at interpreter shutdown")
        # Daemon: a sink that hangs must not keep a finished training process alive.
        thread = threading.Thread(target=self._run, name=f"progress {type(self.sink).__name__}", daemon=True)
        # Signals wait meanwhile: a handler of the program's that raises would leave it half begun.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else None
        self._thread = thread
        try:
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            thread.start()
        finally:
            if thread.ident is None and self._thread is thread:
                self._thread = None
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def is_stuck(self, still_s: float, slow_s: float) -> bool:
        """Whether its thread has stood still for so long, or has been so slow. To be asked often.

        A thread that gets no core does neither; one that waits for Python's lock is slow.
        """
        self._stall.look(self._thread)
        return self._stall.still_s >= still_s or self._stall.waited_s >= slow_s

    def find_limits(self, still_s: float) -> tuple[float, float]:
        """How long the end of the process waits for its sink: without any progress, and with some."""
        if self.is_local:
            return DISK_S, END_S
        last_s = getattr(self.sink, "last_s", 0.0)
        return max(still_s, last_s), max(still_s, last_s, LAST_S)

    @property
    def is_local(self) -> bool:
        """Whether the sink is a file or the like."""
        return bool(getattr(self.sink, "is_local", False))

    @property
    def takes_more(self) -> bool:
        """Whether there may be another document after the last one."""
        return not self._is_closed or getattr(self.sink, "reopens", False)

    def flush(self) -> SimpleQueue[bool]:
        """Ask for a write now. The queue that is returned yields once it was tried."""
        return self._ask("write")

    def end(self) -> SimpleQueue[bool]:
        """Ask for the last write, and the end of the sink and of the thread."""
        return self._ask("close")

    def pause(self) -> Optional[threading.Thread]:
        """Ask the thread to end, for now. Returns it, to be waited for."""
        self._is_paused = True
        self._ask("stop")
        return self._thread

    def _ask(self, what: str) -> SimpleQueue[bool]:
        done: SimpleQueue[bool] = queue.SimpleQueue()
        self._stall = StallClock()
        self._requests.put((done, what))
        return done

    def join(self, timeout_s: float) -> None:
        """Wait for the end of a publisher that was asked for its last write."""
        thread = self._thread
        if thread is not None:
            wait_for_end(thread, timeout_s)

    def write_here(self) -> None:
        """Write on this thread: for the end of a process in which no thread can start any more."""
        if not self._is_closed or self.takes_more:
            self._publish()
            self._close()

    def _run(self) -> None:
        done: Optional[SimpleQueue[bool]] = None
        what = ""
        try:
            self._place.pop()
        except IndexError:
            return
        hold_back_sigpipe()
        if self._wait is not None:
            self._wait()
            self._wait = None  # or each reporter would keep the one before it
        while True:
            is_due = time.monotonic() - self._written_s >= 0.99 * self.sink.interval_s
            is_quick = self.sink.interval_s <= QUICK_S
            if what in ("write", "close") or is_due or (what == "stop" and is_quick):
                self._publish()
            else:
                self._follow()
            if what == "close":
                self._close()
            if done is not None:
                done.put(True)
            if what == "close" or self._is_paused:
                self._thread = None
                self._place.append(None)
                if what != "close" and not self._is_paused:  # a start has seen this thread
                    self.start()
                return
            self._thread = threading.current_thread()
            try:
                done, what = self._requests.get(timeout=min(self.sink.interval_s, POLL_S))
            except queue.Empty:
                done, what = None, ""

    def _publish(self) -> None:
        try:
            snapshot = self._latest()
            if snapshot is not None and snapshot is not self._written:
                self._written_s = time.monotonic()
                self.sink.write(snapshot)
                self._written = snapshot
        except Exception as error:
            self._warn(error)

    def _follow(self) -> None:
        snapshot = self._latest()  # also so that it is known when something moved
        follow = getattr(self.sink, "follow", None)
        if follow is None or snapshot is None:
            return
        try:
            follow(snapshot)
        except Exception as error:
            self._warn(error)

    def _close(self) -> None:
        self._is_closed = True
        try:
            self.sink.close()
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """One line on stderr, once: a log that fills with our trouble is worse than the trouble."""
        if self._has_warned:
            return
        self._has_warned = True
        # What it needs is imported where a sink has an address, and a user, of somebody else.
        says = redaction.describe(error) if "re" in sys.modules else f"{type(error).__name__}: {error}"
        name = getattr(self.sink, "name", type(self.sink).__name__)
        warn(f"{name} failed, training goes on: {says}")


def await_end(limits: Mapping[Publisher, tuple[float, float]], is_done: Callable[[Publisher], bool]) -> bool:
    """Until the last documents are written, or what is left is stuck. Whether they are written."""
    deadline_s = time.monotonic() + END_S
    while True:
        left = [one for one in limits if not is_done(one)]
        if not left:
            return True
        stuck = [one.is_stuck(*limits[one]) for one in left]  # each is looked at
        if all(stuck) or time.monotonic() >= deadline_s:
            return False
        time.sleep(0.001)


def hold_back_sigpipe() -> None:
    """On a thread of ours: a reader who goes away is an error of the write there, and no signal.

    Python ignores the signal; who has set it to SIG_DFL, as tools of the command line do, would be killed.
    """
    is_thread = threading.get_native_id() != os.getpid()  # and not a greenlet on the program's own
    if is_thread and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})


def wait_for_end(thread: threading.Thread, timeout_s: float) -> None:
    """Until a thread has ended, in the kernel's eyes too, or the time is over."""
    if thread is threading.current_thread():
        return
    deadline_s = time.monotonic() + timeout_s
    thread.join(max(timeout_s, 0))
    if thread.native_id == threading.get_native_id():
        return  # a greenlet
    path = f"/proc/self/task/{thread.native_id}"  # before Python 3.13, join returns a moment too early
    while os.path.exists(path) and time.monotonic() < deadline_s:
        time.sleep(0.0001)


def warn(text: str) -> None:
    """Say it on stderr if that can be done at once."""
    if sys.is_finalizing():
        return  # what a `__del__` reports now, nothing can write
    line = f"trainjob_progress: {text}\n"
    try:
        try:
            descriptor = sys.stderr.fileno()
        except Exception as error:  # a notebook's stderr has none
            let_through(error)
            sys.stderr.write(line)
        else:
            select = sys.modules.get("select")
            if select is not None and not select.select([], [descriptor], [], 0)[1]:
                return  # nobody reads it, and a full pipe would hold the training
            # Past the buffer: what stays in it makes the interpreter end with exit code 120.
            _write(descriptor, line.encode("utf-8", "replace"))
    except Exception as error:  # stderr is closed or broken: there is nobody to tell
        let_through(error)


def _write(descriptor: int, data: bytes) -> None:
    """On the program's thread, with SIGPIPE held back and, if it comes, taken. Raises OSError."""
    if not hasattr(signal, "sigtimedwait"):
        os.write(descriptor, data)
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        os.write(descriptor, data)
    except BrokenPipeError:
        signal.sigtimedwait({signal.SIGPIPE}, 0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
