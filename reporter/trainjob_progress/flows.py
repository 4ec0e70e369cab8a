"""What runs at once, and what runs inside of what: threads, and tasks of an event loop.

A context variable says it: a task takes it over from whoever made the task. It has numbers, not what they
stand for: a context may live as long as the process. Code may run in a context that knows nothing of what was
begun before: the next cell of a notebook, after a task that has ended. Then the thread and the task decide.
"""

from __future__ import annotations

import sys
import threading
from _weakref import ref  # the part of weakref that takes no time to import
from contextvars import ContextVar
from itertools import count

from .termination import let_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_numbers = count(1)
_inside: ContextVar[tuple[int, ...]] = ContextVar("trainjob_progress", default=())


class Flow:
    """The thread, and the task of asyncio or trio if there is one, that something was begun in."""

    __slots__ = ("_task", "_thread_id", "number")

    def __init__(self) -> None:
        self.number = next(_numbers)  # of what was begun
        self._thread_id = threading.get_ident()
        task = _find_task()
        self._task: Optional[ref[Any]] = None if task is None else ref(task)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in it."""
        if self._thread_id != threading.get_ident():
            return False
        return _find_task() is (self._task() if self._task is not None else None)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs in it any more."""
        if self._thread_id not in sys._current_frames():
            return True
        if self._task is None:
            return False
        task = self._task()
        if task is None:
            return True
        is_done = getattr(task, "done", None)
        if is_done is not None:
            return bool(is_done())
        return getattr(getattr(task, "coro", None), "cr_frame", self) is None  # trio's

    @property
    def is_around(self) -> bool:
        """Whether the caller runs inside of what was begun, as far as that is still open."""
        return self.is_inherited or self.is_here or self.is_over

    @property
    def is_inherited(self) -> bool:
        """Whether the caller's context says that it runs inside of what was begun."""
        return self.number in _inside.get()


def enter(numbers: tuple[int, ...]) -> None:
    """From now on the caller, and tasks that it makes, run inside of what these stand for alone."""
    _inside.set(numbers)


def count_moment() -> int:
    """Later than the number of all that was begun before, and earlier than that of what comes after."""
    return next(_numbers)


def find_numbers() -> tuple[int, ...]:
    """Of what the caller's context says that it runs inside of."""
    return _inside.get()


def _find_task() -> Any:  # noqa: ANN401 — of asyncio or trio, neither of which is imported for this
    events = sys.modules.get("asyncio.events")
    has_loop = events is None or getattr(events, "_get_running_loop", object)() is not None
    for name in ("asyncio", "trio.lowlevel") if has_loop else ("trio.lowlevel",):  # an error takes longer
        module = sys.modules.get(name)
        try:
            task = None if module is None else module.current_task()
        except (AttributeError, RuntimeError) as error:  # half imported; no loop runs on this thread
            let_through(error)
            continue
        if task is not None:
            return task
    return None
