"""What a run spends its time on beside training: seconds by kind, the open section, the last checkpoint.

Only what training waits for counts. The kinds are disjoint: a section inside another one interrupts it. The
training thread changes what is here, and publishers' threads read it: what belongs together is replaced at
once.
"""

from __future__ import annotations

import os
from _thread import get_ident
from time import monotonic

from .document import TIMES, now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Open = tuple[tuple[object, int], ...]  # sections, the innermost last: whose each is, and its kind
    Seconds = tuple[float, ...]

LOADING, SAVE, RESTORE, EVALUATION = range(len(TIMES))
SHOWN_S = 1.0  # a shorter wait for data is not shown while it lasts
_NOTHING: Seconds = (0.0,) * len(TIMES)
_newest: Optional[tuple[int, Marks]] = None  # and the process that it is of


class Marks:
    """Of one run. The seconds go on from those of the run before it: readers know the process alone."""

    __slots__ = ("_shown", "changed_at", "checkpoint", "loading_s", "state", "threads", "waiting_since_s")

    def __init__(self) -> None:
        global _newest
        before = _newest[1] if _newest is not None and _newest[0] == os.getpid() else None
        spent = before.read(is_over=True)[0] if before is not None else _NOTHING
        # Seconds by kind; sections that are open; since when the innermost counts: monotonic, Unix seconds.
        self.state: tuple[Seconds, Open, float, float] = (spent, (), 0.0, 0.0)
        self.loading_s = 0.0  # measured by tracked loops
        self.waiting_since_s: Optional[float] = None  # of a tracked loop
        self._shown: tuple[Optional[float], float] = (
            None,
            0.0,
        )  # such a wait, and since when, in Unix seconds
        self.checkpoint: Optional[tuple[int, float]] = None  # step, Unix seconds
        self.changed_at = 0.0  # Unix seconds
        self.threads = (get_ident(), get_ident())  # on which the run was begun, and that reported last
        _newest = os.getpid(), self

    @property
    def is_here(self) -> bool:
        """Whether training waits for the caller: on another thread it does not."""
        return get_ident() in self.threads

    @property
    def is_open_here(self) -> bool:
        """Whether the caller runs in a section that the program has marked."""
        return any(kind != LOADING for _, kind in self.state[1]) and self.is_here

    def open(self, whose: object, kind: int) -> None:
        """A section begins. Close it with the same `whose`."""
        spent, sections, since_s, _ = self.state
        at_s, at = monotonic(), now_s()
        if sections:
            spent = _add(spent, sections[-1][1], at_s - since_s)
        self.state = spent, (*sections, (whose, kind)), at_s, at
        if kind != LOADING:
            self.changed_at = at

    def close(self, whose: object, *, counts: bool = True) -> bool:
        """A section ends; `counts`: whether it was one. Returns whether it was open."""
        spent, sections, since_s, since_at = self.state
        found = [one for one in sections if one[0] is whose]
        if not found:
            return False
        left = tuple(one for one in sections if one[0] is not whose)
        if sections[-1] is found[-1]:
            at_s, at = monotonic(), now_s()
            if counts:
                spent = _add(spent, found[-1][1], at_s - since_s)
            since_s, since_at = at_s, at
            if found[-1][1] != LOADING:
                self.changed_at = at
        self.state = spent, left, since_s, since_at
        return True

    def add(self, kind: int, seconds: float) -> None:
        """Of a section that is over."""
        spent, *others = self.state
        self.state = (_add(spent, kind, seconds), *others)  # type: ignore[assignment]

    def complete(self, step: int) -> None:
        """A restart could go on from a checkpoint of this step. On any thread."""
        self.checkpoint = step, now_s()
        self.changed_at = self.checkpoint[1]

    def read(self, *, is_over: bool = False) -> tuple[Seconds, Optional[tuple[str, float]]]:
        """Seconds by kind, and the section that is open with its beginning. `is_over`: none is any more."""
        waiting_s = self.waiting_since_s  # first: what ends meanwhile is not read twice
        spent, sections, since_s, since_at = self.state
        spent = _add(spent, LOADING, self.loading_s)
        at_s = monotonic()
        if sections:
            kind = sections[-1][1]
            if is_over:
                return _add(spent, kind, at_s - since_s), None
            if kind != LOADING or at_s - since_s >= SHOWN_S:
                return spent, (TIMES[kind], since_at)
        elif waiting_s is not None and at_s - waiting_s >= SHOWN_S and not is_over:
            if self._shown[0] != waiting_s:
                self._shown = waiting_s, now_s() - (at_s - waiting_s)
                self.changed_at = max(self.changed_at, self._shown[1])
            return spent, (TIMES[LOADING], self._shown[1])
        return spent, None


def forget() -> None:
    """In a child, and for tests, which share a process: nothing was spent yet."""
    global _newest
    _newest = None


def _add(spent: Seconds, kind: int, seconds: float) -> Seconds:
    return (*spent[:kind], spent[kind] + seconds, *spent[kind + 1 :])
