"""How long a loop waits for its items: measured at each step, or of quick steps at some.

A clock is read twice where a wait is measured. Where steps are quicker than a millisecond one of several is
measured, at random, and stands for the others.
"""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Optional

    from .marks import Marks
    from .sections import HasRun

QUICK_S = 0.001  # a step, below which not each is measured
PAUSE_S = 0.02  # a longer wait stands for itself alone
AT_LEAST = 256  # quick steps in a row before some are left out
MOST = 1 << 20
MOST_SKIPPED = 256


class Meter:
    """Of one loop. `left`: the items to come that are not measured."""

    __slots__ = ("_every", "_needed", "_quick", "_read_at_s", "_seed", "_stands_for", "left")

    def __init__(self) -> None:
        self.left = 0
        self._stands_for = 1  # the next one that is measured, for those before it
        self._every = 1  # of so many one is measured
        self._quick = 0  # steps in a row
        self._needed = AT_LEAST  # of those, until some are left out; doubled by each pause that shows
        self._read_at_s: Optional[float] = None
        self._seed = 1

    def note(self, marks: Marks, began_s: float, state: object) -> None:
        """A wait that began then, when `marks` had that state, is over."""
        ended_s = monotonic()
        marks.waiting_since_s = None
        wait_s, steps = ended_s - began_s, self._stands_for
        whole_s = wait_s if self._read_at_s is None else ended_s - self._read_at_s
        self._read_at_s = ended_s
        if marks.state is state and not marks.state[1]:  # a section in the wait, or around it, has the time
            marks.loading_s += wait_s * steps if wait_s < PAUSE_S else wait_s
        if whole_s >= QUICK_S * steps or whole_s >= PAUSE_S:
            if self._every > 1 and whole_s >= PAUSE_S:
                self._needed = min(2 * self._needed, MOST)  # what was left out may have been a wait
            self._quick, self._every = 0, 1
        else:
            self._quick += steps
            if self._quick >= self._needed:
                self._every = (
                    max(1, min(int(QUICK_S * steps / whole_s), MOST_SKIPPED)) if whole_s > 0 else MOST_SKIPPED
                )
        if self._every > 1:
            self._seed = (self._seed * 1103515245 + 12345) & 0x7FFFFFFF
            self.left = (self._seed >> 8) % (2 * self._every - 1)
            self._stands_for = self.left + 1
        else:
            self._stands_for = 1


class Waits:
    """Goes over what it is given, and measures how long the run waits for it. Counts no steps."""

    __slots__ = ("_iterable", "_iterator", "_reporter")

    def __init__(self, reporter: HasRun, iterable: Iterable[Any]) -> None:
        self._reporter = reporter
        self._iterable = iterable
        self._iterator: Optional[Iterator[Any]] = None

    def __reduce__(self) -> Any:  # noqa: ANN401
        return Waits, (self._reporter, self._iterable)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises as the iterable's own does

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        marks = self._reporter._run.marks
        if marks is None:
            return iter(self._iterable)
        meter = Meter()
        began_s, state = monotonic(), marks.state
        items = iter(self._iterable)
        meter.note(marks, began_s, state)
        return _Items(self._reporter, items, meter)

    def __next__(self) -> Any:  # noqa: ANN401
        if self._iterator is None:
            self._iterator = iter(self)
        return next(self._iterator)


class _Items:
    """Keeps no item: a batch is the loop's own."""

    __slots__ = ("_items", "_meter", "_reporter")

    def __init__(self, reporter: HasRun, items: Iterator[Any], meter: Meter) -> None:
        self._reporter = reporter
        self._items = items
        self._meter = meter

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        meter = self._meter
        if meter.left:
            meter.left -= 1
            return next(self._items)
        marks = self._reporter._run.marks
        if marks is None or not marks.is_here:
            return next(self._items)
        state = marks.state
        began_s = marks.waiting_since_s = monotonic()
        try:
            return next(self._items)
        finally:
            meter.note(marks, began_s, state)

    def __reduce__(self) -> Any:  # noqa: ANN401
        return iter, (self._items,)
