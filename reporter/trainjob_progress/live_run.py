"""What one training run has said so far, and the publishers that carry it to its sinks.

Shared by the reporters that are nested in one run. Holds values and positions; what a call means is
`reporter.py`'s.
"""

from __future__ import annotations

import atexit
import os
import time
from _thread import get_ident
from queue import Empty

from . import document, extremes, flows, forks, marks, message, redaction, settings, termination
from .best import Best
from .document import MAX_METRICS, Snapshot, now_s
from .estimate import Pace, find_percentage
from .positions import find_counted, find_position
from .publisher import END_S, Publisher, await_end, wait_for_end, warn
from .values import Held, Latest, read_held, read_last, read_ready, to_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import SimpleQueue
    from typing import Any, Callable, Optional, Protocol, Sequence

    from .extremes import Spans
    from .flows import Flow
    from .levels import Level
    from .message import Earlier
    from .positions import Position
    from .sinks import Sink
    from .values import Number

    class Beat(Protocol):
        """A thread of its own calls it now and then; it notes of a run what it finds itself."""

        interval_s: float

        def look(self) -> Any:  # noqa: ANN401 — whatever `write` takes
            """A new object when there is something to write."""

        def write(self, found: Any, /) -> None: ...  # noqa: ANN401
        def close(self) -> None: ...


PATIENCE_S = 0.25  # how long a due report waits for the loop to come by
PAUSE_S = 0.1  # how long a fork waits for a write to end
earlier: Earlier = (0, ())  # runs of this process
lost: set[str] = set()  # kinds of errors that were said: one that meets a run meets the next one too
STATES = {"finished": "completed", "stopped": "completed", "preempted": "running", "failed": "failed"}


class LiveRun:
    """One run, from `report()` to the process's end: results that come after its end belong to it too."""

    __slots__ = (
        "__weakref__", "_attempt", "_beats", "_before", "_best", "_between", "_due_since_s", "_end_s",
        "_final", "_is_parked", "_pace", "_pid", "_publishers", "_queues", "_rank", "_results",
        "_start_time", "_system", "_warned", "begun_beside", "beside", "device_metrics", "devices",
        "due", "ended", "ending", "has_failed", "is_announced", "is_fault", "is_over", "is_terminated",
        "is_through", "later", "levels", "main", "marks", "message", "message_before", "phases", "ranks",
        "remaining_s", "seen", "snapshot", "values", "was_left",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = False  # set by a publisher's thread, cleared by the training thread
        # Name to value, in the order in which they were first named. None: nobody asks, nothing is kept.
        self.values: Optional[dict[str, Any]] = None
        self.seen: Spans = {}  # what the metrics were since the last sample; replaced with each
        self._between: list[Spans] = []  # of the last samples, oldest first
        self.levels: list[Level] = []  # that are open, outermost first
        self.message: Optional[str] = None
        self.message_before: Optional[str] = None  # all open phases
        self.phases: list[tuple[str, Flow]] = []  # that are open; replaced, never changed
        # What other threads and tasks do at the same time is a run without sinks of its own, beside this one:
        # it has a part of this one's message, and the names of metrics that this one has not.
        self.begun_beside = 0  # how many there have been
        self.beside: list[LiveRun] = []  # several threads append to it and remove from it
        self.main: Optional[LiveRun] = None  # that this one is beside
        self._results: dict[str, Any] = {}  # the metrics of those beside it that have ended
        self.later: Optional[str] = None  # how it has ended itself, while one beside it has not
        self.remaining_s: Optional[float] = None  # as it was given
        self.marks: Optional[marks.Marks] = None  # of its time; None: nobody asks
        self.ranks: Optional[dict[str, Any]] = None  # how all ranks get on, as columns; not changed
        self.ending: Optional[str] = None
        self.ended: Optional[int] = None  # the moment (flows.count_moment)
        self.is_over = False
        self.is_terminated = False  # SIGTERM has come
        self.is_through = False  # every loop that was begun has come to its end
        self.has_failed = False  # its outermost loop was left, perhaps by an exception
        self.is_fault = False  # surely by one
        self.is_announced = False  # one was left by the program's handler of a signal
        self.was_left = False  # a loop was left early, without an exception
        self.snapshot: Optional[Snapshot] = None
        self._final: Optional[Snapshot] = None  # what is written once it is over; None: nothing
        self._publishers: list[Publisher] = []
        self._queues: list[Any] = []  # of sinks that want each snapshot, and not the newest alone
        self._end_s = 0.0  # how long a sink wants the end to wait for it
        self._beats: list[Publisher] = []  # one writes the file of this rank, one reads the accelerators
        self.devices: list[dict[str, Any]] = []  # what those do; replaced, never changed
        self.device_metrics: dict[str, float] = {}  # the same by name
        self._system: dict[str, float] = {}  # as they were when the loop came by last
        self._due_since_s = 0.0
        self._is_parked = False  # the publishers have ended for a fork
        self._warned: set[str] = set()
        self._pace = Pace()
        self._pid = os.getpid()
        self._rank: Optional[int] = None
        self._attempt: Optional[int] = None
        self._best = Best()
        self._start_time = now_s()
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

    @property
    def _all(self) -> list[Publisher]:
        return self._publishers + self._beats

    def start_beside(self, main: LiveRun) -> None:
        """Begin as a part of what `main` shows."""
        self.main = main
        self.values = {} if main.values is not None else None
        self.marks = main.marks
        main.beside.append(self)
        main.begun_beside += 1

    @property
    def is_busy(self) -> bool:
        """Whether another thread or task is still at work in it."""
        for one in tuple(self.beside):
            level = one.levels[-1] if one.levels else None
            if level is None or level._flow.is_over:
                continue
            if not (level.stands_for_loop and level._flow.is_here):  # that one is between two tracked loops
                return True
        return False

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

    @property
    def is_entered(self) -> bool:
        """Whether some level is in its `with` block."""
        return any(level._is_entered for level in self.levels)

    @property
    def takes_results(self) -> bool:
        """Whether the run is over, and its last document may still be changed."""
        if self.main is not None and self.is_over:
            return self.main.takes_results or self.main.is_active
        return self.is_over and self._final is not None and self._pid == os.getpid()

    def has_any_of(self, sinks: Sequence[Sink]) -> bool:
        """Whether this run writes to one of `sinks`, the very objects."""
        return any(publisher.sink is sink for publisher in self._publishers for sink in sinks)

    # On the training thread

    def note(self, name: str, value: Number, level: Level, n: int = 0) -> None:
        """A metric lies outside of what it was since the last sample. `n`: steps of `level` to be counted."""
        span = self.seen.get(name)
        if span is None:
            span = self.seen[name] = extremes.Span()
        levels = self.levels
        if self.main is not None or not levels:
            span.note(value, None)  # the steps that are shown are another one's
        elif levels[0] is level and len(levels) == 1 and level._inner is None:
            step = level._step
            span.note(value, None if step is None else step + n)
        else:
            step = find_position(find_counted(self.levels)).step
            span.note(value, step + n if step is not None and level is levels[-1] and level._counts else step)
        latest = None if self.values is None else self.values.get(name)
        if type(latest) is Latest:
            latest.low, latest.high = span.low, span.high
            if self.seen.get(name) is not span:  # another thread samples just now
                latest.forget()

    def find_step(self) -> Optional[int]:
        """That is shown."""
        levels = (self.main or self).levels
        return find_position(find_counted(levels)).step if levels else None

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
        for publisher in self._publishers:
            if publisher.takes_more and not publisher.is_running:
                publisher.start()
                publisher.end()

    def finish(self, ending: Optional[str], wait_s: float) -> None:
        """Write the last document, and wait `wait_s` at most until every sink has it."""
        if self.is_over or self._pid != os.getpid():
            return
        self.ending = ending
        self._read(is_sign_of_life=True)
        self._final = self.snapshot
        self._note(ending)
        self.ended = flows.count_moment()
        self.is_over = True
        self.due = False
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

    def exit(self) -> None:
        """The process ends. Without `finish`, say only what is certain; the cluster knows its exit code."""
        try:
            if self._pid != os.getpid():
                return
            if not self.is_over:
                self.end_unsaid()
            self._await_last(self._all, lambda one: not one.is_running)
        except Exception as error:
            self.warn(error)

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

    def warn(self, error: Exception) -> None:
        """A report could not be made. What is the program's own is raised again."""
        termination.let_through(error)
        kind = type(error).__name__
        if kind not in lost:
            lost.add(kind)
            self.say("trouble", f"a report was lost, training goes on: {kind}: {error}")

    def say(self, about: str, text: str) -> None:
        """One warning on stderr about each thing; a reporter that writes nothing is silent."""
        if self.main is not None:
            self.main.say(about, text)
            return
        if about not in self._warned and (self._publishers or about == "trouble"):
            self._warned.add(about)
            warn(text)

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
                for publisher in self._publishers:
                    publisher.start()
                outcomes = {publisher: publisher.flush() for publisher in self._publishers}
                if is_end:
                    self._await_last(self._publishers, lambda one: not outcomes[one].empty())
            elif is_end and self._final is not None:  # in the middle of `finish`: let it get through
                self._await_last(self._all, lambda one: not one.is_running)
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
        try:
            for publisher in self._all:
                publisher.start()
                resume = getattr(publisher.sink, "resume", None)
                if resume is not None:
                    resume()
        except RuntimeError as error:  # at the end of the process no thread can start
            termination.let_through(error)
            for publisher in self._publishers:
                if not publisher.is_running and publisher.is_local:
                    publisher.write_here()

    def _read(self, *, is_sign_of_life: bool = False) -> None:
        self._read_values()
        step = find_position(self.levels).step
        if step is not None:
            self._pace.observe(time.monotonic(), step)
        self._move(self._take(), is_sign_of_life=is_sign_of_life)

    def _read_values(self) -> dict[str, Any]:
        values = self.values
        if values is None:
            return {}
        for value in tuple(values.values()):
            if type(value) is Held:
                read_held(values)
                break
        return values

    def _move(self, taken: Snapshot, *, is_sign_of_life: bool = False) -> None:
        """The newest snapshot is `taken`; its time is the one before's, where nothing has moved since.

        `is_sign_of_life`: the loop has come by, if only to say again what it said before.
        """
        seen = self.snapshot
        if seen is not None and not is_sign_of_life and taken.is_same_progress(seen):
            if taken.ending == seen.ending:
                return
            taken = taken.replace(timestamp=seen.timestamp)
        self._keep(taken)

    def _keep(self, taken: Snapshot) -> None:
        self.snapshot = taken
        for queue in self._queues:
            queue.append(taken)

    def _close(self) -> None:
        termination.forget(self._terminate)
        if os.environ.get(settings.OWNER_VARIABLE) == str(self._pid):
            del os.environ[settings.OWNER_VARIABLE]

    def _await(self, outcomes: Sequence[SimpleQueue[bool]], timeout_s: float) -> bool:
        """Whether all have come in time."""
        deadline_s = time.monotonic() + timeout_s
        for outcome in outcomes:
            try:
                outcome.get(timeout=max(deadline_s - time.monotonic(), 0))
            except Empty:
                return False
        return True

    def _await_last(self, publishers: Sequence[Publisher], is_done: Callable[[Publisher], bool]) -> None:
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

    def _take(self) -> Snapshot:
        """What is known now, without asking a device, and what it was since the last time."""
        levels = tuple(self.levels)
        if not levels and self.snapshot is not None:
            return self.snapshot  # another thread has ended it since
        at_s, metrics = now_s(), self._find_metrics()  # first: what comes meanwhile is later
        spent_s, section = (
            self.marks.read(is_over=self.ending is not None) if self.marks is not None else ((), None)
        )
        self._drain(metrics)
        counted = find_counted(levels)
        beside = [(one.message, tuple(one.levels)) for one in self.beside[: message.MAX_SHOWN]]
        position = find_position(counted)
        step, total = position.step, position.total_steps
        if step is None and counted[0]._step is not None:
            self.say("steps", "steps beyond 2^53 are left out")
        if not total or (step or 0) > total:
            total = None  # the plan was wrong; a reader would drop it too
        percentage = counted[0]._percentage
        if not step and total is None and (position.epoch or percentage is not None):
            step = None  # something else is counted, and no steps
        if self.ending == "finished" and total is None and any(level._inner for level in counted):
            total = step or None  # a run that was planned inside alone has come to the end of that plan
        percentage = find_percentage(
            step=step,
            total_steps=total,
            epoch=position.epoch,
            total_epochs=position.total_epochs,
            percentage=None if self.ending == "finished" and position.is_at_end else percentage,
        )
        remaining_s = self.remaining_s
        if STATES.get(self.ending or "") == "completed":
            remaining_s = None if percentage is None else 0.0
        elif self.ending == "failed":
            remaining_s = None
        elif remaining_s is None and total:
            remaining_s = self._pace.remaining_s(step or 0, total)
        return Snapshot(
            state=STATES[self.ending] if self.ending else "running",
            ending=self.ending,
            timestamp=at_s,
            start_time=self._start_time,
            step=step,
            total_steps=total,
            epoch=position.epoch,
            total_epochs=position.total_epochs or None,
            percentage=percentage,
            remaining_s=None if remaining_s is None else round(remaining_s),
            metrics=metrics,
            message=message.say(self.message, counted, levels[len(counted) :], beside, self._before),
            rank=self._rank,
            attempt=self._attempt,
            rate=self._pace.steps_per_s(),
            ranks=self.ranks,
            between=tuple(self._between),
            spent_s=spent_s,
            section=section,
            checkpoint=self.marks.checkpoint if self.marks is not None else None,
        )

    def _drain(self, metrics: dict[str, Any]) -> None:
        """Begin to note anew: those beside this run too, of the metrics that this one has not."""
        own = self.values or {}
        noted: Spans = {}
        for one in (self, *tuple(self.beside)):
            seen, one.seen = one.seen, {}
            for latest in tuple((one.values or {}).values()):
                if type(latest) is Latest:
                    latest.forget()
            noted.update({name: seen[name] for name in seen if one is self or name not in own})
        self._best.add_to(metrics, noted)
        if noted:
            extremes.keep(self._between, extremes.take(noted, metrics))

    def _find_metrics(self) -> dict[str, Any]:
        values = (self.values or {}).copy()
        for one in (self._results, *(beside.values or {} for beside in tuple(self.beside))):
            for name, value in one.copy().items():
                values.setdefault(name, value)
        for name, amount in self._system.items():
            values.setdefault(name, amount)
        return to_metrics(values)
