"""Callbacks for training frameworks: each module imports its framework, and nothing imports the modules.

They translate a framework's events into the reporter's verbs and decide nothing themselves.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, cast

from trainjob_progress.publisher import warn

F = TypeVar("F", bound=Callable[..., Any])
_warned: set[str] = set()


def quietly(hook: F) -> F:
    """A hook that returns None instead of raising into the framework, with one line on stderr the first time.

    The reporter raises nothing; reading a framework's attributes may, when a new version has moved them.
    """

    @functools.wraps(hook)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except Exception as error:
            if hook.__module__ not in _warned:
                _warned.add(hook.__module__)
                warn(f"{hook.__qualname__} failed, training goes on: {type(error).__name__}: {error}")
            return None

    return cast(F, run)
