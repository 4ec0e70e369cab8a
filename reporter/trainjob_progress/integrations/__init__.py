"""Callbacks for training frameworks: each module imports its framework, and nothing imports the modules.

They translate a framework's events into the reporter's verbs and decide nothing themselves.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, TypeVar, cast

from trainjob_progress import Reporter
from trainjob_progress.beginning import begin
from trainjob_progress.publisher import warn
from trainjob_progress.termination import let_through

F = TypeVar("F", bound=Callable[..., Any])
_warned: set[str] = set()


class Callback:
    """What all callbacks have: a reporter while training runs, which a copy or a pickle of them has not.

    Models and estimators hold their callbacks: they must be saved, cloned and sent to workers as without us.
    """

    _reporter: Optional[Reporter] = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reporter"}

    def _begin(self, total_steps: Optional[int] = None, **options: Any) -> Reporter:
        """Begin to report; a training that broke off before is left as it stands."""
        if self._reporter is not None:
            self._reporter.abandon()
        reporter = Reporter()
        begin(reporter, total_steps, is_quiet=True, **options)
        self._reporter = reporter
        return reporter


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
