"""Callbacks for training frameworks: each module imports its framework, and nothing imports the modules.

They translate a framework's events into the reporter's verbs and decide nothing themselves.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Iterable, Optional, TypeVar, cast

from trainjob_progress import Reporter, current
from trainjob_progress.beginning import begin
from trainjob_progress.marks import LOADING, RESTORE, Marks
from trainjob_progress.publisher import warn
from trainjob_progress.sections import Section
from trainjob_progress.termination import let_through

F = TypeVar("F", bound=Callable[..., Any])
_warned: set[str] = set()
_restored_s = 0.0  # before there was a run


class Callback:
    """What all callbacks have: a reporter while training runs, which a copy or a pickle of them has not.

    Models and estimators hold their callbacks: they must be saved, cloned and sent to workers as without us.
    """

    _reporter: Optional[Reporter] = None
    _section: Optional[Section] = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_reporter", "_section")}

    def _begin(self, total_steps: Optional[int] = None, **options: Any) -> Reporter:
        """Begin to report; a training that broke off before is left as it stands."""
        if self._reporter is not None:
            self._reporter.abandon()
        reporter = Reporter()
        begin(reporter, total_steps, is_quiet=True, **options)
        self._reporter, self._section = reporter, None
        marks = self._marks
        if marks is not None:
            global _restored_s
            marks.add(RESTORE, _restored_s)
            _restored_s = 0.0
        return reporter

    @property
    def _marks(self) -> Optional[Marks]:
        run = self._reporter._run if self._reporter is not None else None
        return run.marks if run is not None and not run.is_over else None

    def _open(self, kind: int) -> None:
        """Training waits for this from now on; for another section no more."""
        self._close()
        if self._marks is not None and self._reporter is not None:
            self._section = Section(self._reporter, kind).__enter__()

    def _close(self, kind: Optional[int] = None) -> bool:
        """The open section has ended, if it is of that kind. One of another kind was none."""
        section, self._section = self._section, None
        if section is None:
            return False
        is_so = section._kind == kind
        section._close(is_sound=is_so, counts=is_so)
        return is_so

    def _wait(self) -> None:
        """Training waits for its next batch from now on, but for sections in between."""
        marks = self._marks
        if marks is not None and marks.is_here:
            marks.close(self)
            marks.open(self, LOADING)

    def _go_on(self) -> None:
        """The batch is there."""
        marks = self._marks
        if marks is not None:
            marks.close(self)


def mark(
    owner: Any, name: str, kind: int, find_futures: Optional[Callable[[Any], Iterable[Any]]] = None
) -> None:
    """From now on a framework's method is a section of the run that is open. A second call does nothing.

    For what a framework has no hooks for. `find_futures`: of the object whose method it is, those by which
    the checkpoint is complete that it has begun to save.
    """
    method = getattr(owner, name, None)
    if method is None or hasattr(method, "_is_marked"):
        return

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        reporter = current()
        began_s = time.monotonic()
        with Section(reporter, kind) as section:
            result = method(*args, **kwargs)
            if find_futures is not None:
                _until(section, find_futures, args[0])
        if kind == RESTORE and not reporter.is_active:
            global _restored_s
            _restored_s += time.monotonic() - began_s
        return result

    run._is_marked = True  # type: ignore[attr-defined]  # a function takes any attribute
    setattr(owner, name, run)


def quietly(hook: F) -> F:
    """A hook that returns None instead of raising into the framework, with one line on stderr the first time.

    The reporter raises nothing; reading a framework's attributes may, when a new version has moved them.
    """

    @functools.wraps(hook)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except Exception as error:
            let_through(error)
            if hook.__module__ not in _warned:
                _warned.add(hook.__module__)
                warn(f"{hook.__qualname__} failed, training goes on: {type(error).__name__}: {error}")
            return None

    return cast(F, run)


@quietly
def _until(section: Section, find_futures: Callable[[Any], Iterable[Any]], whose: Any) -> None:
    section.until(*find_futures(whose))
