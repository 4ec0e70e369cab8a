"""Parts of a program for which training waits, and how they end: `with r.evaluating():`."""

from __future__ import annotations

from .marks import SAVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Optional, Protocol, Type

    from .live_run import LiveRun

    class HasRun(Protocol):
        """A reporter, as far as sections and waits need it."""

        _run: LiveRun

        def checkpointed(self, step: Optional[int] = None) -> None: ...


class Section:
    """A part of the program for which training waits, for as long as its block runs."""

    __slots__ = ("_futures", "_kind", "_open", "_reporter", "_step")

    def __init__(self, reporter: HasRun, kind: int, step: Optional[int] = None) -> None:
        self._reporter = reporter
        self._kind = kind
        self._step = step
        self._open: list[object] = []  # a block in a block of the same
        self._futures: list[Any] = []  # which say when a checkpoint is complete

    def __reduce__(self) -> Any:  # noqa: ANN401
        return Section, (self._reporter, self._kind, self._step)

    def __enter__(self) -> Section:  # noqa: PYI034 — typing.Self is younger than Python 3.9
        run = self._reporter._run
        try:
            marks = run.marks
            if marks is not None and not run.is_over:
                self._open.append(object())
                if marks.is_here:
                    marks.open(self._open[-1], self._kind)
                    if run.due:
                        run.collect()
        except Exception as error:
            run.warn(error)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._close(is_sound=error is None)

    def until(self, *futures: Any) -> Section:  # noqa: ANN401
        """The checkpoint is complete when these have a result, not when the block ends: an asynchronous save.

        Each is a `concurrent.futures.Future`, or has one's `add_done_callback`.
        """
        self._futures.extend(futures)
        return self

    def _close(self, *, is_sound: bool, counts: bool = True) -> None:
        run = self._reporter._run
        try:
            whose = self._open.pop() if self._open else None
            marks = run.marks
            if whose is None or marks is None:
                return
            marks.close(whose, counts=counts)
            if self._kind == SAVE and is_sound:
                step = run.find_step() if self._step is None else self._step
                futures, self._futures = self._futures, []
                self._complete(step, futures)
            if run.due and marks.is_here:
                run.collect()
        except Exception as trouble:
            run.warn(trouble)

    def _complete(self, step: Optional[int], futures: list[Any]) -> None:
        if step is None:
            return
        waiting = [one for one in futures if hasattr(one, "add_done_callback")]
        if len(waiting) < len(futures):
            run = self._reporter._run
            run.say("until", "until(…) needs futures: the checkpoint counts when its block ends")
        if not waiting:
            self._reporter.checkpointed(step)
            return
        left = set(map(id, waiting))

        def note(future: Any) -> None:  # noqa: ANN401
            try:
                if not future.cancelled() and future.exception() is None:
                    left.discard(id(future))
                    if not left:
                        self._reporter.checkpointed(step)
            except Exception as error:  # of a kind of its own
                self._reporter._run.warn(error)

        for one in waiting:
            one.add_done_callback(note)
