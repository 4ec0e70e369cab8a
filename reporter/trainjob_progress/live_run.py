"""One training run: how it begins, goes on as another attempt, and ends."""

from __future__ import annotations

import atexit
import os
import time

from . import document, flows, forks, marks, message, redaction, settings, termination
from .document import MAX_METRICS, now_s
from .estimate import Pace
from .positions import find_counted, find_position
from .published_run import PAUSE_S, PublishedRun
from .publisher import END_S, Publisher, await_end
from .values import Held, read_last

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Protocol, Sequence

    from .message import Earlier
    from .positions import Position
    from .sinks import Sink

    class Beat(Protocol):
        """A thread of its own calls it now and then; it notes of a run what it finds itself."""

        interval_s: float

        def look(self) -> Any:  # noqa: ANN401 — whatever `write` takes
            """A new object when there is something to write."""

        def write(self, found: Any, /) -> None: ...  # noqa: ANN401
        def close(self) -> None: ...


earlier: Earlier = (0, ())  # runs of this process


class LiveRun(PublishedRun):
    """One run, from `report()` to the process's end: results that come after its end belong to it too."""

    __slots__ = (
        "has_failed", "is_announced", "is_exiting", "is_fault", "is_terminated", "is_through", "is_unsaid",
        "was_left",
    )  # fmt: skip
    if TYPE_CHECKING:
        beside: list[LiveRun]
        main: Optional[LiveRun]

    def __init__(self) -> None:
        super().__init__()
        self.is_terminated = False  # SIGTERM has come
        self.is_through = False  # every loop that was begun has come to its end
        self.has_failed = False  # its outermost loop was left, perhaps by an exception
        self.is_fault = False  # surely by one
        self.is_announced = False  # one was left by the program's handler of a signal
        self.was_left = False  # a loop was left early, without an exception
        self.is_exiting = False  # what is written now is waited for: nothing else does
        self.is_unsaid = False  # the process has ended it; an exit handler of the program's may still say how
        self._before = earlier  # as it was when this run began

    def start(self, places: Sequence[Sink], rank: Optional[int], after: Optional[LiveRun]) -> None:
        """Begin to write to `places`. `after`: nothing is written while that one may still be writing."""
        # What publishers will need is imported here: a thread that imports holds a lock, and a fork would
        # hand that lock on, locked for ever.
        document.prepare()
        self.values = {}
        self.marks = marks.Marks()
        self._rank = rank
        self._attempt = settings.find_attempt()
        step = find_position(self.levels).step
        if step is not None:
            self._pace.observe(time.monotonic(), step)
        self.snapshot = self._take()
        wait = after.join if after is not None else None
        self._queues = [sink.queue for sink in places if hasattr(sink, "queue")]
        self._end_s = max(getattr(sink, "end_s", 0.0) for sink in places)
        self._publishers = [Publisher(sink, self._latest, wait) for sink in places]
        termination.watch(self._terminate)
        self._start_threads()

    def start_beat(self, beat: Beat, devices: Optional[Beat], after: Optional[LiveRun]) -> None:
        """Begin to write this rank's own file, which is all that another rank writes; and read `devices`."""
        document.prepare()
        if self.marks is None:
            self.marks = marks.Marks()
        self._beats = [Publisher(beat, beat.look, after.join if after is not None else None)]
        if devices is not None:
            self._beats.append(Publisher(devices, devices.look))
        self._start_threads()

    def _start_threads(self) -> None:
        os.environ[settings.OWNER_VARIABLE] = str(self._pid)
        atexit.register(self.exit)
        forks.watch(self)
        for publisher in self._all:
            publisher.start()

    def start_beside(self, main: LiveRun) -> None:
        """Begin as a part of what `main` shows."""
        self.main = main
        self.values = {} if main.values is not None else None
        self.marks = main.marks
        main.beside.append(self)
        main.begun_beside += 1

    @property
    def takes_results(self) -> bool:
        """Whether the run is over, and its last document may still be changed."""
        if self.main is not None and self.is_over:
            return self.main.takes_results or self.main.is_active
        return self.is_over and self._final is not None and self._pid == os.getpid()

    def note_results(self) -> None:
        """The run is over, and has got a result since: write its last document once more."""
        if self.main is not None:
            self.main._results.update(self._read_values())
            self.main.note_results()
            return
        final = self._final
        if final is None or self._pid != os.getpid():
            return
        self._read_values()
        metrics = self._find_metrics()
        self._best.add_to(metrics, {})
        self._final = final.replace(metrics=metrics, timestamp=now_s())
        self._write_again()

    def _write_again(self) -> None:
        """The last document has changed since it was written."""
        places = [one for one in self._publishers if one.takes_more]
        for one in places:
            one.join(PAUSE_S)
        places = [one for one in places if not one.is_running]
        self._start(places)
        for one in places:
            one.end()
        if self.is_exiting:
            self._await_last(places, lambda one: not one.is_running)

    def finish(self, ending: Optional[str], wait_s: float) -> None:
        """Write the last document, and wait `wait_s` at most until every sink has it."""
        if (self.is_over and not self.is_unsaid) or self._pid != os.getpid():
            return
        self.ending = ending
        self._read(is_sign_of_life=True)
        self._final = self.snapshot
        if self.is_over:
            self.is_unsaid = False
            self._write_again()
            return
        self._note(ending)
        self.ended = flows.count_moment()
        self.is_over = True
        self.due = False
        if not self.is_exiting:
            self.levels = []  # a loop holds what it loops over
        if self.main is not None:
            self.main._absorb(self)
        for one in tuple(self.beside):
            one.finish(None, 0)
        if self._all:
            self._resume()
            for beat in self._beats:
                beat.end()
            outcomes = {publisher: publisher.end() for publisher in self._publishers}
            if not self._await(list(outcomes.values()), min(wait_s, 0.01)):
                limits = {one: (wait_s, END_S if one.is_local else wait_s) for one in outcomes}
                await_end(limits, lambda one: not outcomes[one].empty())
            self._close()

    def begin_again(self) -> None:
        """This attempt has failed, the next one begins, of which nothing is known yet."""
        self._note("failed")
        if self.values is not None:
            self.values.clear()
        self.seen, self._results = {}, {}
        self._best.begin_again()
        if self.marks is not None:
            self.marks.checkpoint = None
        self.remaining_s = self.ranks = self.message = None
        self._pace = Pace()
        self._start_time = now_s()
        self._before = earlier

    def go_on_from(self, before: LiveRun) -> None:
        """What was taken for a run that is over was the first part of this one."""
        global earlier
        if earlier[0] == before._before[0] + 1:
            earlier = before._before  # it had been noted that it failed
        self._start_time, self._before = before._start_time, before._before
        if self.marks is not None and before.marks is not None:
            self.marks.checkpoint = before.marks.checkpoint
        if self.values is not None:
            known = before.values or {}
            self.values.update(
                {name: known[name] if type(known[name]) is Held else read_last(known[name]) for name in known}
            )

    def fail(self) -> None:
        """It has failed, and another run takes its place."""
        self._note("failed" if self.is_fault else "ended")
        self.abandon()

    def _note(self, ending: Optional[str]) -> None:
        """For the message of those that come after it."""
        before = self._before
        levels = find_counted(self.levels)
        if ending == "ended" and levels and not find_position(levels).step:
            return  # a sample was taken
        if levels and (ending in ("failed", "ended", "preempted") or levels[0]._name is not None):
            self.note_attempt(levels[0]._name, ending or "ended", find_position(levels))
            self._before = before

    def note_attempt(self, name: Optional[str], ending: str, at: Position) -> None:
        """One is over, and another takes its place."""
        global earlier
        if self.main is not None or not self._publishers:
            return
        self._before = earlier = message.note(earlier, name, ending, at)

    def abandon(self) -> None:
        """Stop without a last document: another run takes this one's place."""
        if self.is_over or self._pid != os.getpid():
            return
        self.is_over = True
        self.due = False
        if self.main is not None:
            self.main._absorb(self)
        for one in tuple(self.beside):
            one.abandon()
        if self._all:
            self._close()
            atexit.unregister(self.exit)
            self._resume()
            for publisher in self._all:
                publisher.end()

    def leave(self) -> None:
        """Another process reports from now on, to the same places."""
        self.abandon()
        self.join()
        for publisher in self._publishers:
            leave = getattr(publisher.sink, "leave", None)
            if leave is not None:
                leave()

    def exit(self) -> None:
        """The process ends. Without `finish`, say only what is certain; the cluster knows its exit code."""
        try:
            if self._pid != os.getpid():
                return
            self.is_exiting = True
            if not self.is_over:
                self.end_unsaid()
                self.is_unsaid = True
            self._await_last(self._all, lambda one: not one.is_running)
        except Exception as error:
            self.warn(error)

    def _terminate(self, is_end: bool) -> None:
        """SIGTERM has come. `is_end`: nothing of the program's own runs any more.

        No tensor is read: a device that hangs would hang the handler.
        """
        try:
            if self._pid != os.getpid():
                return
            self.is_terminated = True
            if self.is_active:
                if is_end:
                    self.ending = "preempted"
                self._move(self._take())
            elif not is_end or self._final is None:  # or in `finish`, which may have asked nobody yet
                return
            for publisher in self._publishers:
                publisher.start()
            outcomes = {one: one.flush() for one in self._publishers}
            if is_end:
                self._await_last(
                    self._publishers, lambda one: not one.is_running or not outcomes[one].empty()
                )
        except Exception as error:
            self.warn(error)

    def end_unsaid(self) -> None:
        """Nobody has said that the run is over, but it is."""
        error = termination.find_uncaught()
        position = find_position(self.levels)
        ending: Optional[str] = None
        if self.is_terminated:
            ending = "preempted"
        elif error is not None:
            ending = "failed"
        elif self.later is not None:
            ending = self.later
        elif self.is_through or position.is_at_end:
            ending = "finished"
        elif self.is_announced:
            ending = "preempted"
        elif self.was_left:
            ending = "stopped"
        if error is not None:
            self.message = redaction.describe(error)
        self.finish(ending, self.patience_s)

    def _absorb(self, beside: LiveRun) -> None:
        """One that was beside this run is over. The last of them ends what was only waiting for it."""
        if beside in self.beside:
            self.beside.remove(beside)
        results = {**self._results, **beside._read_values()}
        self._results = {name: results[name] for name in tuple(results)[:MAX_METRICS]}
        if self.later is not None and not self.is_busy and self.is_active:
            self.finish(self.later, self.patience_s)

    def _close(self) -> None:
        termination.forget(self._terminate)
        if os.environ.get(settings.OWNER_VARIABLE) == str(self._pid):
            del os.environ[settings.OWNER_VARIABLE]
