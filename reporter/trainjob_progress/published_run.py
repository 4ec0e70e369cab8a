"""A run's publishers: they are started, asked for a write, paused for a fork, and left behind in a child."""

from __future__ import annotations

import os
import time
from _thread import get_ident
from queue import Empty

from . import forks, marks, termination
from .publisher import Publisher, await_end, wait_for_end
from .run_state import RunState
from .values import read_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import SimpleQueue
    from typing import Callable, Iterable, Optional, Sequence

    from .document import Snapshot
    from .sinks import Sink

PATIENCE_S = 0.25  # how long a due report waits for the loop to come by
PAUSE_S = 0.1  # how long a fork waits for a write to end


class PublishedRun(RunState):
    """Of one run; how it begins and ends is a `LiveRun`'s."""

    __slots__ = ("_beats", "_due_since_s", "_end_s", "_final", "_is_parked", "_publishers")

    def __init__(self) -> None:
        super().__init__()
        self._final: Optional[Snapshot] = None  # what is written once it is over; None: nothing
        self._publishers: list[Publisher] = []
        self._end_s = 0.0  # how long a sink wants the end to wait for it
        self._beats: list[Publisher] = []  # one writes the file of this rank, one reads the accelerators
        self._due_since_s = 0.0
        self._is_parked = False  # the publishers have ended for a fork

    @property
    def _all(self) -> list[Publisher]:
        return self._publishers + self._beats

    @property
    def is_active(self) -> bool:
        """Whether this process writes documents of this run."""
        if self.main is not None:
            return self.main.is_active and not self.is_over
        return bool(self._publishers) and not self.is_over and self._pid == os.getpid()

    @property
    def patience_s(self) -> float:
        """How long the end waits for slow sinks, unless it is said."""
        return max(termination.FLUSH_TIMEOUT_S, self._end_s)

    def has_any_of(self, sinks: Sequence[Sink]) -> bool:
        """Whether this run writes to one of `sinks`, the very objects."""
        return any(publisher.sink is sink for publisher in self._publishers for sink in sinks)

    # On the training thread

    def collect(self) -> None:
        """Turn what was handed over into the newest snapshot, on the training thread."""
        self.due = False
        if self.is_over:
            return
        if self._pid != os.getpid():  # forked in C, past Python: threads and the right to write stay behind
            self.forget()
            return
        termination.watch_again()
        if self.marks is not None and self.main is None:
            self.marks.threads = self.marks.threads[0], get_ident()
        self._system = self.device_metrics
        self._read(is_sign_of_life=True)
        main = self.main or self
        if main._is_parked:
            main._resume()

    def sample(self) -> None:
        """Keep what is known now for sinks that want each value. No device is asked."""
        main = self.main or self
        if main._queues and main.is_active:
            main._move(main._take(), is_sign_of_life=True)

    def hasten(self) -> None:
        """Write what is known now, without waiting for it."""
        if self.is_active:
            self._read()
            if self.main is not None:
                self.main._hasten_for_another()
                return
            self._resume()
            for publisher in self._publishers:
                publisher.flush()

    def flush(self, timeout_s: float) -> None:
        """Write what is known now and wait until every sink has tried, `timeout_s` at most."""
        if self.is_active:
            self._read()
            if self.main is not None:
                self.main._move(self.main._take())
                self.main._await([one.flush() for one in self.main._publishers], timeout_s)
                return
            self._resume()
            if not self._await([publisher.flush() for publisher in self._publishers], timeout_s):
                self.say("slow", f"a sink has not taken the document within {timeout_s:g} s")

    def write_line(self, text: str) -> None:
        """Print a line where a bar is drawn, above the bar."""
        for publisher in (self.main or self)._publishers:
            write = getattr(publisher.sink, "write_line", None)
            if write is not None:
                write(text)
                return
        from .sinks.bar import print_line

        print_line(text)

    # On any thread, in a signal handler, at a fork

    def join(self) -> None:
        """Wait until nothing is written any more, 3 s at most. On a publisher's thread."""
        deadline_s = time.monotonic() + 3.0
        for publisher in self._all:
            publisher.join(max(deadline_s - time.monotonic(), 0))

    def pause(self) -> None:
        """Before a fork: have no thread."""
        if self._pid != os.getpid():
            return
        if self._all and not self.is_over and not self._is_parked:
            self._is_parked = True
            if self._publishers:
                self._move(self._take())
            self._ask()  # with the next call they start again
        threads = [publisher.pause() for publisher in self._all]
        deadline_s = time.monotonic() + PAUSE_S
        for thread in threads:
            if thread is not None:
                wait_for_end(thread, deadline_s - time.monotonic())

    def resume(self) -> None:
        """After a fork, in the parent."""
        if self._pid == os.getpid() and self._is_parked and not forks.IS_WATCHED:
            self._resume()

    def forget(self) -> None:
        """In a child: report nothing, keep nothing, hold nothing open."""
        publishers, self._publishers, self._beats = self._all, [], []
        self.due = False
        self.is_over = True
        self._final = None
        self.values = self.marks = None
        marks.forget()
        self.seen, self._between = {}, []
        self.levels = []
        beside, self.beside = self.beside, []
        for one in beside:
            one.forget()
        for publisher in publishers:
            close = getattr(publisher.sink, "close_in_child", None)
            if close is not None:
                close()
        termination.forget_all()

    def _hasten_for_another(self) -> None:
        """Write what is known now, on another thread than this run's: no device is asked."""
        self._move(self._take())
        for publisher in self._publishers:
            publisher.flush()

    def _ask(self) -> None:
        """Have the next call of a reporter bring the newest."""
        self.due = True
        for one in tuple(self.beside):
            one.due = True

    def _resume(self) -> None:
        if forks.is_forking():
            self.due = True
            return
        self._is_parked = False
        self._start(self._all)

    def _start(self, publishers: Iterable[Publisher]) -> None:
        try:
            for publisher in publishers:
                publisher.start()
                resume = getattr(publisher.sink, "resume", None)
                if resume is not None:
                    resume()
        except RuntimeError as error:  # at the end of the process no thread can start
            termination.let_through(error)
            for publisher in publishers:
                if not publisher.is_running and publisher.is_local:
                    publisher.write_here()

    def _await(self, outcomes: Sequence[SimpleQueue[bool]], timeout_s: float) -> bool:
        """Whether all have come in time."""
        deadline_s = time.monotonic() + timeout_s
        for outcome in outcomes:
            try:
                outcome.get(timeout=max(deadline_s - time.monotonic(), 0))
            except Empty:
                return False
        return True

    def _await_last(self, publishers: Iterable[Publisher], is_done: Callable[[Publisher], bool]) -> None:
        """At the end of the process: what is not written now will not be known."""
        limits = {one: one.find_limits(self.patience_s) for one in publishers}
        if not await_end(limits, is_done) and not all(map(is_done, self._publishers)):
            self.say("slow", "a sink has not taken the last document in time")

    # On a publisher's thread

    def _latest(self) -> Optional[Snapshot]:
        """The newest snapshot, and a request for the next one.

        When the loop has not come by for a while (a long step, an evaluation), what needs no device is taken
        here. Else the last of a burst of steps would be missing until the next one.
        """
        termination.look()
        if self.is_over:
            return self._final
        seen, now_s = self.snapshot, time.monotonic()
        if not self.due:
            self._due_since_s = now_s
            self._ask()
        elif now_s - self._due_since_s > PATIENCE_S:
            read_ready(self.values or {})
            taken = self._take()
            # The time of a report is when something moved: a hung run must look hung. And if the training
            # thread came by meanwhile, its own snapshot is better.
            if seen is not None and self.snapshot is seen and not taken.is_same_progress(seen):
                if self.marks is not None and taken.has_only_marked(seen):
                    taken = taken.replace(timestamp=max(seen.timestamp, self.marks.changed_at))
                self._keep(taken)
        return self.snapshot
