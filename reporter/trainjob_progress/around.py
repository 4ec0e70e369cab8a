"""A loop that is not tracked, around loops that are. Nobody says which of them trains."""

from __future__ import annotations

from .flows import Flow
from .reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .call_site import Loop
    from .levels import Key, Level
    from .live_run import LiveRun
    from .positions import Position


class Around(Reporter):
    """Stands for it. Of the loops inside, the one that comes most often counts; while none has come twice,
    those at one place in the code, which may be data sets or folds."""

    __slots__ = ("_before", "_begun", "_counted", "_done", "_failed_one", "_inside", "_names")
    stands_for_loop = True

    def __init__(self, run: LiveRun, loop: Optional[Loop], rounds: Optional[float] = None) -> None:
        """`rounds`: planned by the block that it is in."""
        super().__init__()
        self._total_steps = None if rounds is None else int(rounds)
        self._is_loop = True
        self._is_iterating = True
        self._run, self._flow = run, Flow()
        self._loops, self._place = [loop], loop
        self._before = 0  # steps done before all of them
        self._begun: dict[Key, int] = {}  # how often each of them has begun, in their order
        self._done: dict[Key, tuple[int, int]] = {}  # their steps, and how often each came to its end
        self._counted: list[Key] = []
        self._failed_one: Optional[tuple[Key, Optional[str], Position]] = None  # the last one, if it failed
        self._inside: Optional[str] = None  # its name, as it was given
        self._names: set[Optional[str]] = set()  # of those that have counted, and did not fail

    def _takes_in(self, inner: Level, place: object) -> bool:
        key = inner._set_key(place)
        self._begun[key] = self._begun.get(key, 0) + 1
        self._done.setdefault(key, (0, 0))
        most = max(self._begun, key=lambda one: self._begun[one])
        counted = [most] if self._begun[most] > 1 else [one for one in self._begun if one[0] == most[0]]
        if counted != self._counted:
            self._counted = counted
            self._inner_done = self._before + sum(self._done[one][0] for one in counted)
            self._step = sum(self._done[one][1] for one in counted)
        elif key in counted:
            self._step += self._is_short
        if key in counted:
            self._inside, self._name = inner._name, None
        return key in counted

    def _take_before(self, steps: int) -> None:
        self._before = self._before or steps
        self._inner_done = self._inner_done or steps

    def _absorb(self, inner: Position, key: Key, *, has_failed: bool) -> None:
        super()._absorb(inner, key, has_failed=has_failed)
        self._failed_one = (key, self._inside, inner) if has_failed else None
        if not has_failed:
            self._names.add(self._inside)
        self._name = self._inside if self._names <= {self._inside} else None  # until the next one
        self._absorb_extra(key, inner, has_failed=has_failed)
        self._step += not has_failed and not self._is_short

    def _absorb_extra(self, key: Key, inner: Position, *, has_failed: bool) -> None:
        steps, ends = self._done.get(key, (0, 0))
        self._done[key] = steps + (inner.step or 0), ends + (not has_failed)

    def _try_again(self) -> None:
        if self._failed_one is not None and self._inner_round == self._rounds:
            key, name, position = self._failed_one
            self._run.note_attempt(name, "failed", position)
            steps, ends = self._done[key]
            self._done[key] = steps - (position.step or 0), ends
        super()._try_again()
