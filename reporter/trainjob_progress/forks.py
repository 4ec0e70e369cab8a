"""What is ours must not be there when a process forks: no thread, and so no lock that one could hold.

Before a fork our threads end, if they can within a moment; one that hangs in a write holds no lock of ours or
of the interpreter. Python 3.12 and later warn when a process with threads forks, and look right after it:
there they start again with the next call of the reporter, elsewhere at once. Covers every fork that Python
knows of.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from . import termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Forkable(Protocol):
        def pause(self) -> None:
            """In the parent, before a fork."""

        def resume(self) -> None:
            """In the parent, after a fork."""

        def forget(self) -> None:
            """In the child: nothing that was inherited may be used, or kept open."""


IS_WATCHED = sys.version_info >= (3, 12)  # Python itself looks for threads after a fork

_watched: list[Forkable] = []
_forking = 0
_masks: dict[int, object] = {}  # by thread that forks: the signals that it had blocked
_is_registered = False


def watch(one: Forkable) -> None:
    """Pause it before each fork from now on, and have it forgotten in the child."""
    global _is_registered
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
        _is_registered = True
    if one not in _watched:
        _watched.append(one)


def is_forking() -> bool:
    """Whether a fork is under way, on some thread: nothing may be started now."""
    return _forking > 0


def _before() -> None:
    global _forking
    _forking += 1
    _masks[get_ident()] = termination.hold_back()
    for one in tuple(_watched):
        try:  # noqa: SIM105 — contextlib takes its time to be imported
            one.pause()
        except Exception:  # noqa: S110 — the fork is the program's, and goes on
            pass


def _after_in_parent() -> None:
    global _forking
    _forking -= 1
    termination.give_back(_masks.pop(get_ident(), None))
    for one in tuple(_watched):
        try:  # noqa: SIM105
            one.resume()
        except Exception:  # noqa: S110 — the next call of the reporter tries again
            pass


def _after_in_child() -> None:
    global _forking
    _forking = 0
    for one in tuple(_watched):
        try:  # noqa: SIM105
            one.forget()
        except Exception:  # noqa: S110 — whatever is half done, the child must run
            pass
    _watched.clear()
    mask = _masks.get(get_ident())
    _masks.clear()
    termination.leave()
    termination.give_back(mask)
