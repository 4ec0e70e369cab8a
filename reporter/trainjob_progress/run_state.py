"""What one training run has said so far, and the snapshot that is made of it: values and positions.

Shared by the reporters that are nested in one run; what a call means is `reporter.py`'s.
"""

from __future__ import annotations

import os
import time

from . import extremes, marks, message, termination
from .best import Best
from .document import Snapshot, now_s
from .estimate import Pace, find_percentage
from .positions import find_counted, find_position
from .publisher import warn
from .values import Held, Latest, read_held, to_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .extremes import Spans
    from .flows import Flow
    from .levels import Level
    from .message import Earlier
    from .values import Number

lost: set[str] = set()  # kinds of errors that were said: one that meets a run meets the next one too
STATES = {"finished": "completed", "stopped": "completed", "preempted": "running", "failed": "failed"}


class RunState:
    """Of one run; a `LiveRun` writes it."""

    __slots__ = (
        "__weakref__", "_attempt", "_before", "_best", "_between", "_pace", "_pid", "_queues", "_rank",
        "_results", "_start_time", "_system", "_warned", "begun_beside", "beside", "device_metrics",
        "devices", "due", "ended", "ending", "is_over", "later", "levels", "main", "marks", "message",
        "message_before", "phases", "ranks", "remaining_s", "seen", "snapshot", "values",
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
        self.beside: list[Any] = []  # of LiveRun; several threads append to it and remove from it
        self.main: Any = None  # the LiveRun that this one is beside
        self._results: dict[str, Any] = {}  # the metrics of those beside it that have ended
        self.later: Optional[str] = None  # how it has ended itself, while one beside it has not
        self.remaining_s: Optional[float] = None  # as it was given
        self.marks: Optional[marks.Marks] = None  # of its time; None: nobody asks
        self.ranks: Optional[dict[str, Any]] = None  # how all ranks get on, as columns; not changed
        self.ending: Optional[str] = None
        self.ended: Optional[int] = None  # the moment (flows.count_moment)
        self.is_over = False
        self.snapshot: Optional[Snapshot] = None
        self._queues: list[Any] = []  # of sinks that want each snapshot, and not the newest alone
        self.devices: list[dict[str, Any]] = []  # what the accelerators do; replaced, never changed
        self.device_metrics: dict[str, float] = {}  # the same by name
        self._system: dict[str, float] = {}  # as they were when the loop came by last
        self._warned: set[str] = set()
        self._pace = Pace()
        self._pid = os.getpid()
        self._rank: Optional[int] = None
        self._attempt: Optional[int] = None
        self._best = Best()
        self._start_time = now_s()
        self._before: Earlier = (0, ())  # runs of this process

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
    def is_entered(self) -> bool:
        """Whether some level is in its `with` block."""
        return any(level._is_entered for level in self.levels)

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

    def say(self, about: str, text: str) -> None:
        """One warning on stderr about each thing; a reporter that writes nothing is silent."""
        if self.main is not None:
            self.main.say(about, text)
            return
        if about not in self._warned and (self.values is not None or about == "trouble"):
            self._warned.add(about)
            warn(text)

    def warn(self, error: Exception) -> None:
        """A report could not be made. What is the program's own is raised again."""
        termination.let_through(error)
        kind = type(error).__name__
        if kind not in lost:
            lost.add(kind)
            self.say("trouble", f"a report was lost, training goes on: {kind}: {error}")

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
