"""SIGTERM comes before eviction, preemption and suspension: note it, write the last document, pass it on.

Ours is put over whatever handler there is and calls it. Frameworks that look for a handler see what they
would see without us: it equals the one it was put over. When a handler is set after ours, ours is put over
that one in its turn, so that the order of set-up does not matter.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _signal import getsignal, valid_signals  # type: ignore[import-not-found]  # no enumeration
from types import TracebackType

from . import stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Iterable, Optional, Sequence

    Flush = Callable[[bool], object]

# How long the end of a run waits for sinks, unless asked for more: leaving the block and the process in all.
# With what else is done then, on a machine that others use, it is below 0.2 s.
FLUSH_TIMEOUT_S = 0.12
NOTICED_S = 0.1  # within which a main thread that is not in C runs a signal's handler
_flushes: list[Flush] = []
_handled = 0  # how often ours has run
# By which schedulers announce an end, as Slurm (--signal) and submitit do. We only look who handles them.
_ANNOUNCING = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")


def watch(flush: Flush) -> None:
    """Call `flush` on SIGTERM, with whether the process ends then. Does nothing off the main thread."""
    _flushes.append(flush)
    watch_again()
    if _stands_alone() and threading.current_thread() is threading.main_thread():
        stuck.listen()


def look() -> None:
    """On a thread of ours: end a process that would have ended, but for a handler that cannot run."""
    if stuck.has_come(signal.SIGTERM):
        threading.Thread(target=_end, args=(_handled,), name="progress end", daemon=True).start()


def _end(handled: int) -> None:
    time.sleep(NOTICED_S)
    if handled == _handled and _stands_alone():
        for flush in tuple(_flushes):
            flush(True)
        stuck.die_of(signal.SIGTERM)


def _stands_alone() -> bool:
    """Whether there is a handler of ours, and none of the program's."""
    handler = signal.getsignal(signal.SIGTERM)
    return isinstance(handler, _Handler) and handler.before == signal.SIG_DFL


def watch_again() -> None:
    """Come back on top of a handler that was set since."""
    if not _flushes or threading.current_thread() is not threading.main_thread():
        return
    stuck.check()
    before = signal.getsignal(signal.SIGTERM)
    # None: not Python's, it could not be called. Ignored: then nothing ends, and children inherit it so.
    if before is None or before == signal.SIG_IGN or isinstance(before, _Handler):
        return
    try:
        signal.signal(signal.SIGTERM, _Handler(before))
    except ValueError:  # a subinterpreter, which gets no signals
        return


def forget(flush: Flush) -> None:
    """Call it no more; with the last one the old handler comes back, unless someone put theirs over ours."""
    if flush in _flushes:
        _flushes.remove(flush)
    if _flushes or threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, _Handler):
        signal.signal(signal.SIGTERM, handler.before)
    stuck.stop()


def forget_all() -> None:
    """In a child: its parent's reporters are none of its business. A handler of ours passes on."""
    _flushes.clear()


def hold_back() -> object:
    """Before a fork, where a handler of ours is: SIGTERM waits. Python forgets what comes to a child before
    that is set up; without our handler it would have ended the child. Returns what `give_back` needs."""
    if not isinstance(signal.getsignal(signal.SIGTERM), _Handler):
        return None
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def give_back(mask: Any) -> None:  # noqa: ANN401 — as `hold_back` returned it
    """Whatever has come since, comes now."""
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def leave() -> None:
    """In a forked child: what was there before our handler is there again."""
    stuck.leave()
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, _Handler):
        signal.signal(signal.SIGTERM, handler.before)


class _Handler:
    """Notes, then does what would have been done without us. Each knows what it was put over."""

    __slots__ = ("_pid", "before")

    def __init__(self, before: Any) -> None:  # noqa: ANN401 — a function or SIG_DFL
        self.before = before
        self._pid = os.getpid()

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        # Where another one is the process's, the program's has called this one, as it would the one before.
        global _handled
        is_end = not callable(self.before) and signal.getsignal(number) is self
        try:
            _handled += 1
            if self._pid == os.getpid():  # a fork inherits the handler, but not the reporters' threads
                for flush in tuple(_flushes):
                    flush(is_end)
        finally:  # another signal's handler may raise in there
            if callable(self.before):
                self.before(number, frame)  # at once: the grace period is for its checkpoint
            elif is_end:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)  # so that the exit code is the one of a terminated process

    def __bool__(self) -> bool:
        return bool(self.before)

    def __eq__(self, other: object) -> bool:
        # Lightning leaves its own handling out where it finds "a handler". The enumeration alone, not the
        # integer in it: `signal.signal` itself must go on to tell the two apart.
        if isinstance(other, _Handler):
            return self is other
        return (isinstance(other, signal.Handlers) or callable(other)) and bool(self.before == other)

    def __hash__(self) -> int:
        return id(self)


def is_announced(error: BaseException) -> bool:
    """Whether an exception comes from the program's own handler of a signal that announces the end."""
    return _is_raised_by_handler(error, [getattr(signal, name, signal.SIGTERM) for name in _ANNOUNCING])


def is_leaving() -> bool:
    """Whether what such a handler has raised is on its way now, where the exception itself is not to be seen:
    its traceback is. To be asked seldom."""
    import gc

    handlers = [signal.getsignal(getattr(signal, name, signal.SIGTERM)) for name in _ANNOUNCING]
    codes = [_find_code(handler) for handler in handlers if callable(handler)]
    codes = [code for code in codes if code is not None]
    made = (one for young in (1, 0) for one in gc.get_objects(generation=young)) if codes else ()
    traces = [one for one in made if type(one) is TracebackType]
    inner = {id(one.tb_next) for one in traces}
    # By the frame that it has come to; the last one that came there. One that was caught has let it go on.
    newest = {id(one.tb_frame): one for one in traces if id(one) not in inner}
    return any(one.tb_lasti == one.tb_frame.f_lasti and _passes(one, codes) for one in newest.values())


def _passes(trace: Optional[TracebackType], codes: Sequence[object]) -> bool:
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def let_through(error: BaseException) -> None:
    """Raise again what the program itself has thrown into code of ours: by a handler of a signal, or by a
    debugger that is told to quit. For every `except Exception` on the program's thread."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:
        return  # raised where it was caught
    for one in (error, error.__context__):  # leaving a lock whose taking was interrupted raises on top of it
        if one is not None and (type(one).__module__ == "bdb" or _is_raised_by_handler(one, valid_signals())):
            raise one


def _is_raised_by_handler(error: BaseException, numbers: Iterable[int]) -> bool:
    codes = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__package__") != __package__:
            codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    handlers = map(getsignal, numbers if codes else ())
    return any(_find_code(handler) in codes for handler in handlers if callable(handler))


def _find_code(handler: Any) -> object:  # noqa: ANN401 — whatever may be called
    """Of a function, a method, a partial of one, or an object that can be called; None for no such."""
    for _ in range(4):
        if isinstance(handler, _Handler):
            handler = handler.before
        handler = getattr(handler, "func", getattr(handler, "__func__", handler))
    method = getattr(type(handler), "__call__", None)  # noqa: B004 — its code is wanted
    return getattr(handler, "__code__", None) or getattr(method, "__code__", None)


def is_exit(error: Optional[BaseException]) -> bool:
    """Whether an exception is a way to end a process, not a fault in it."""
    return error is None or isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


def find_uncaught() -> Optional[BaseException]:
    """The exception that is ending this process, as far as the interpreter has noted it."""
    if hasattr(sys, "ps1"):
        return None  # an interactive session goes on after one
    return getattr(sys, "last_value", None)
