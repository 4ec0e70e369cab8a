"""The reporter: three verbs (start, update, finish), and `step` for the hot loop.

It never raises into training and never blocks it. `step` counts, remembers and reads one flag: no clock, no
lock, no system call. The publishers' threads raise that flag when they are ready for news; only then are
numbers taken from tensors, on the training thread, because reading a device from another thread can
break a CUDA graph that is being captured.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from queue import Empty, SimpleQueue

from . import settings, termination
from .document import MAX_MESSAGE, MAX_METRICS, Snapshot
from .estimate import Pace, find_share
from .publisher import Publisher, warn
from .rank import find_rank, is_helper_process
from .values import is_plain, to_amount, to_count, to_metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Mapping, Optional, Sequence, Type, Union

    from .sinks import Sink

FLUSH_TIMEOUT_S = 3.0  # of a pod's 30 s grace period; a sink that has not answered by then will not
PATIENCE_S = 0.25  # how long a due report waits for the loop to come by


class Reporter:
    """Says how far this process's training has come. Make one with `report()`."""

    __slots__ = (
        "__weakref__", "_attempt", "_due", "_due_since_s", "_epoch", "_final", "_fresh",
        "_has_warned", "_is_over", "_message", "_metrics", "_pace", "_percentage", "_pid",
        "_publishers", "_rank", "_remaining_s", "_snapshot", "_start_time", "_state", "_step",
        "_total_epochs", "_total_steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self._state = "running"
        self._step: Any = 0
        self._total_steps: Optional[int] = None
        self._epoch: Optional[float] = None
        self._total_epochs: Optional[float] = None
        self._percentage: Optional[float] = None
        self._remaining_s: Optional[float] = None
        self._message: Optional[str] = None
        self._fresh: dict[str, Any] = {}  # as handed over since the last snapshot; may hold tensors
        self._metrics: dict[str, Union[int, float, str]] = {}  # of the last snapshot
        self._due = False  # set by a publisher's thread, cleared by the training thread
        self._due_since_s = 0.0
        self._snapshot: Optional[Snapshot] = None
        self._publishers: list[Publisher] = []
        self._is_over = False
        self._final: Optional[Snapshot] = None  # what is written once it is over; None: nothing
        self._has_warned = False
        self._pace = Pace()
        self._pid = os.getpid()
        self._rank: Optional[int] = None
        self._attempt: Optional[int] = None
        self._start_time = time.time()

    def start(
        self,
        total_steps: Optional[int] = None,
        *,
        total_epochs: Optional[float] = None,
        initial_step: int = 0,
        rank: Optional[int] = None,
        sinks: Optional[Sequence[Sink]] = None,
        bar: bool = False,
        after: Optional[Reporter] = None,
    ) -> None:
        """Begin to report, if this process is rank 0: to `sinks`, by default those the environment asks for.

        `bar`: a bar on the terminal as well. `after`: the one whose place this takes; nothing is written
        while it may still be writing.
        """
        try:
            self._step = to_count(initial_step) or 0
            self._total_steps = to_count(total_steps)
            self._total_epochs = to_amount(total_epochs)
            self._attempt = settings.find_attempt()
            if rank is None:
                rank = find_rank()
                if is_helper_process():
                    return
            self._rank = rank
            if rank:
                return
            places = settings.find_sinks(bar=bar) if sinks is None else sinks
            if places:
                self._pace.observe(time.monotonic(), self._step)
                self._snapshot = self._take(self._metrics)
                wait = after.join if after is not None else None
                self._publishers = [Publisher(sink, self._latest, wait) for sink in places]
                os.environ[settings.OWNER_VARIABLE] = str(self._pid)
                atexit.register(self._exit)
                termination.watch(self.flush)
        except Exception as error:
            self._warn(error)

    @property
    def is_active(self) -> bool:
        """Whether this process writes documents: rank 0, with somewhere to write, and not finished."""
        return bool(self._publishers) and not self._is_over and self._pid == os.getpid()

    @property
    def is_due(self) -> bool:
        """Whether a report is due: what costs something to find out is worth it only then, or at the end."""
        return self._due

    def step(self, n: int = 1, /, **metrics: object) -> None:
        """`n` more steps are done. Metrics: numbers, text, or tensors, read when a report is due."""
        try:
            self._step += n
            if metrics:
                self._remember(metrics)
            if self._due:
                self._collect()
        except Exception as error:
            self._warn(error)

    def update(
        self,
        *,
        step: Optional[int] = None,
        total_steps: Optional[int] = None,
        epoch: Optional[float] = None,
        total_epochs: Optional[float] = None,
        percentage: Optional[float] = None,
        remaining_s: Optional[float] = None,
        message: Optional[str] = None,
        metrics: Optional[Mapping[str, object]] = None,
    ) -> None:
        """Set what is given, leave the rest.

        `step` is absolute. `percentage` (0 to 100) and `remaining_s` replace what would be worked out here.
        """
        try:
            if step is not None:
                self._step = step
            if total_steps is not None:
                self._total_steps = to_count(total_steps)
            if epoch is not None:
                self._epoch = to_amount(epoch)
            if total_epochs is not None:
                self._total_epochs = to_amount(total_epochs)
            if percentage is not None:
                self._percentage = to_amount(percentage)
            if remaining_s is not None:
                self._remaining_s = to_amount(remaining_s)
            if message is not None:
                self._message = str(message)[:MAX_MESSAGE]
            if metrics:
                self._remember(metrics)
            if self._due:
                self._collect()
        except Exception as error:
            self._warn(error)

    def epoch(
        self, epoch: Optional[float] = None, total: Optional[float] = None, /, **metrics: object
    ) -> None:
        """`epoch` epochs are done (default: one more); `total` are planned."""
        done = (self._epoch or 0) + 1 if epoch is None else epoch
        self.update(epoch=done, total_epochs=total, metrics=metrics)

    def message(self, text: str) -> None:
        """Say in a sentence what is being done: "evaluating", "saving checkpoint 12"."""
        self.update(message=text)

    def finish(self, state: str = "completed", message: Optional[str] = None) -> None:
        """Write the last document and wait for it, FLUSH_TIMEOUT_S at most. A second call does nothing.

        `state`: completed, failed, or running when the process ends without having said which.
        """
        try:
            if self._is_over or self._pid != os.getpid():
                return
            if message is not None:
                self._message = str(message)[:MAX_MESSAGE]
            self._state = state
            self._final = self._collect()
            self._is_over = True
            self._due = False
            self._await([publisher.flush(is_last=True) for publisher in self._publishers], FLUSH_TIMEOUT_S)
            self._close()
        except Exception as error:
            self._warn(error)

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Write what is known now and wait until every sink has tried, `timeout_s` at most.

        Tensors are left alone: this runs in a signal handler too, and a device that hangs would hang it.
        """
        try:
            if self.is_active:
                self._snapshot = self._take(self._plain_metrics())
                self._await([publisher.flush() for publisher in self._publishers], timeout_s)
            elif self._final is not None and self._pid == os.getpid():
                for publisher in self._publishers:  # SIGTERM in the middle of `finish`: let it get through
                    publisher.join(timeout_s)
        except Exception as error:
            self._warn(error)

    def abandon(self) -> None:
        """Stop without a last document: another reporter takes this one's place."""
        try:
            if self.is_active:
                self._is_over = True
                self._due = False
                self._close()
                for publisher in self._publishers:
                    publisher.flush(is_last=True)
        except Exception as error:
            self._warn(error)

    def join(self) -> None:
        """Wait until nothing is written any more, FLUSH_TIMEOUT_S at most. On a publisher's thread."""
        deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
        for publisher in self._publishers:
            publisher.join(max(deadline_s - time.monotonic(), 0))

    def __enter__(self) -> Reporter:  # noqa: PYI034 — typing.Self is younger than Python 3.9
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        else:
            self.finish("failed", describe(error))

    def _exit(self) -> None:
        """The process ends without `finish`: say only what is certain; the cluster knows its exit code."""
        error = getattr(sys, "last_value", None)  # set when an exception that nobody caught is printed
        if error is not None and not hasattr(sys, "ps1"):
            self.finish("failed", describe(error))
        else:
            step, total = to_count(self._step), self._total_steps
            is_done = step is not None and total is not None and step >= total
            self.finish("completed" if is_done else "running")

    def _close(self) -> None:
        termination.forget(self.flush)
        atexit.unregister(self._exit)
        if os.environ.get(settings.OWNER_VARIABLE) == str(self._pid):
            del os.environ[settings.OWNER_VARIABLE]

    def _await(self, outcomes: Sequence[SimpleQueue[bool]], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for outcome in outcomes:
            try:
                outcome.get(timeout=max(deadline_s - time.monotonic(), 0))
            except Empty:
                self._warn(TimeoutError(f"a sink has not taken the document within {timeout_s:g} s"))

    def _remember(self, metrics: Mapping[str, object]) -> None:
        fresh = self._fresh
        fresh.update(metrics)
        if len(fresh) > MAX_METRICS:  # names that change at every step: keep the newest, not all
            self._fresh = dict(metrics)

    def _plain_metrics(self) -> dict[str, Union[int, float, str]]:
        """The latest metrics, as far as they are known without asking a device. Changes nothing."""
        plain = {name: value for name, value in self._fresh.copy().items() if is_plain(value)}
        return to_metrics(plain, self._metrics)

    def _collect(self) -> Optional[Snapshot]:
        """On the training thread: turn what was handed over into numbers. Returns the newest snapshot."""
        self._due = False
        if not self._is_over:
            fresh, self._fresh = self._fresh, {}
            if self._pid == os.getpid():  # after a fork, threads and the right to write stay with the parent
                step = to_count(self._step)
                if step is not None:
                    self._pace.observe(time.monotonic(), step)
                self._metrics = to_metrics(fresh, self._metrics)
                self._snapshot = snapshot = self._take(self._metrics)
                return snapshot  # not what a publisher's thread may have put there meanwhile
        return self._snapshot

    def _latest(self) -> Optional[Snapshot]:
        """On a publisher's thread: the newest snapshot, and a request for the next one.

        When the loop has not come by for a while (a long step, an evaluation), what needs no device is taken
        here, so that the last of a burst of steps is not missing until the next one.
        """
        if self._is_over:
            return self._final
        seen, now_s = self._snapshot, time.monotonic()
        if not self._due:
            self._due_since_s = now_s
            self._due = True
        elif now_s - self._due_since_s > PATIENCE_S and is_plain(self._step):
            taken = self._take(self._plain_metrics())
            # The time of a report is when something moved: a hung run must look hung. And if the training
            # thread came by meanwhile, its own snapshot is better.
            if seen is not None and self._snapshot is seen and not taken.is_same_progress(seen):
                self._snapshot = taken
        return self._snapshot

    def _take(self, metrics: Mapping[str, Union[int, float, str]]) -> Snapshot:
        now_s = time.monotonic()
        step = to_count(self._step)
        total = self._total_steps
        if not total or (step or 0) > total:
            total = None  # the plan was wrong; a reader would drop it too
        rate = None if step is None else self._pace.steps_per_s(now_s, step)
        share = find_share(
            step=step,
            total_steps=total,
            epoch=self._epoch,
            total_epochs=self._total_epochs,
            percentage=self._percentage,
        )
        remaining_s = self._remaining_s
        if self._state == "completed" and share is not None:
            share, remaining_s = 1.0, 0.0
        elif remaining_s is None and rate and total:
            remaining_s = (total - (step or 0)) / rate
        return Snapshot(
            state=self._state,
            timestamp=time.time(),
            start_time=self._start_time,
            step=step,
            total_steps=total,
            epoch=self._epoch,
            total_epochs=self._total_epochs,
            percentage=None if share is None else int(100 * min(share, 1.0)),
            remaining_s=None if remaining_s is None else round(remaining_s),
            metrics=metrics,
            message=self._message,
            rank=self._rank,
            attempt=self._attempt,
        )

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(f"a report was lost, training goes on: {type(error).__name__}: {error}")


def describe(error: BaseException) -> str:
    """An exception's type and the first line of what it says, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
