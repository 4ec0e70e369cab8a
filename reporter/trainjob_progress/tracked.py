"""A loop that is tracked: a reporter that counts by what its iterator (`items.py`) is asked for."""

from __future__ import annotations

import sys
import time

from . import termination
from .around import Around
from .beginning import begin, retire, settle
from .call_site import is_by_hand
from .items import Items, Over
from .levels import Level
from .positions import find_rounds_before
from .reporter import Reporter
from .values import show, to_count, to_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Iterable, Iterator, Optional, TypeVar

    from .call_site import Home
    from .live_run import LiveRun
    from .positions import Position

    T = TypeVar("T")
else:
    T = None

SKIPPING_S = 1.0  # iterations before the first that trains are skipped in less


class Track(Reporter, Over[T]):
    """A loop that counts its own steps, and a reporter for what happens in it."""

    __slots__ = (
        "_accumulate", "_began_s", "_by_hand", "_doubts", "_epochs", "_first", "_home", "_is_in_body",
        "_is_started", "_items", "_iterable", "_options", "_stand_in", "_total",
    )  # fmt: skip

    def __init__(
        self, iterable: Iterable[T], epochs: int = 1, initial_step: int = 0, accumulate: int = 1
    ) -> None:
        super().__init__()
        self._iterable = iterable
        self._doubts: dict[str, str] = {}  # of arguments: what is said once it is known to whom
        self._epochs = max(self._take_whole("epochs", epochs), 0)
        self._accumulate = self._take_whole("accumulate", accumulate)
        self._began_s = 0.0
        # In which run a round ended for which no `for` asked, and where.
        self._by_hand: Optional[tuple[LiveRun, Position]] = None
        self._first: Optional[int] = initial_step
        self._home: Optional[Home] = None  # the loop that asks for items
        self._is_started = False
        self._is_in_body = False  # it has given an item, and was not asked for the next one yet
        self._is_loop = True
        self._items: Optional[Items[T]] = None
        self._options: dict[str, Any] = {}
        self._stand_in: Optional[Track[Any]] = None  # in its run, once it was left
        self._total: Optional[int] = None  # items of an epoch, as they were given

    def __reduce__(self) -> Any:
        return _make_inactive_track, (self._iterable, self._epochs)

    def _take_whole(self, name: str, given: object) -> int:
        whole = to_whole(given)
        if whole is not None and (whole > 0 or name == "epochs"):
            return whole
        above = "" if name == "epochs" else " above 0"
        self._doubts[name] = f"{name}={show(given)} is no whole number{above}: 1 is used"
        return 1

    def __len__(self) -> int:
        return len(self._iterable) * self._epochs  # type: ignore[arg-type]  # raises as the iterable's own does

    def __bool__(self) -> bool:
        return True  # a loop over nothing is still a loop

    def __iter__(self) -> Iterator[T]:
        self._start()
        items = Items(self)
        items.begin(is_by_hand=is_by_hand(sys._getframe(1)))
        return items

    def __next__(self) -> T:
        if self._items is None:
            self._start()
            self._items = Items(self)
        return next(self._items)

    def __enter__(self) -> Track[T]:
        self._start()
        self._settle()
        self._is_entered = True
        return self

    def update(self, given: Any = None, /, **named: Any) -> None:
        self._return()
        super().update(given, **named)

    def finish(self, state: Any = None, message: Optional[str] = None, *, wait_s: Any = None) -> None:
        self._return()
        super().finish(state, message, wait_s=wait_s)

    def step(self, n: Any = 1, metrics: Any = None, /, **named: Any) -> None:
        """The loop counts by itself: what is given is taken as metrics."""
        try:
            _, named = self._understand(n, metrics, named)
            self._say("track step", "a tracked loop counts by itself: step() in it only reports metrics")
            self.update(named)
        except Exception as error:
            self._run.warn(error)

    def _start(self) -> None:
        self._return()
        if self._is_started:
            is_untouched = self._step == self._initial_step
            if self._is_iterating or (is_untouched and self._is_entered):
                return
            if is_untouched and self in self._run.levels[:1]:
                self._run.abandon()  # what it has given was a sample: it begins now
            elif self._is_entered or self in self._run.levels:
                self._total_steps = self._total_epochs = None  # once more over the same: how often, who knows
                self._inner_round, self._is_short, self._is_cut = None, False, False
                return
            wait_s = self._wait_s  # it has left its run: like another one over the same
            super().__init__()
            self._is_loop, self._is_in_body, self._wait_s = True, False, wait_s
        self._is_started = True
        self._began_s = time.monotonic()
        items = to_count(self._total)
        if items is None and self._total is not None:
            self._doubts["total"] = f"total={show(self._total)} is no number of items: the length is used"
        has_before = items is not None and self._epochs == 1  # as in tqdm, where total has what was done
        try:
            if items is None:
                items = len(self._iterable)  # type: ignore[arg-type]  # asked, not known
        except Exception as error:
            termination.let_through(error)
            items = None  # a stream; torch's IterableDataset raises its own kind of error here
        steps = None if items is None else -(-items // self._accumulate) * self._epochs
        done = to_count(self._first) or 0
        if steps is not None and not (has_before and done < steps):
            steps += done
        begin(
            self, steps, total_epochs=self._epochs, doubts=self._doubts,
            initial_step=0 if self._first is None else self._first, is_sample=True, **self._options,
        )  # fmt: skip

    def _settle(self) -> None:
        if not self._is_sample or self not in self._run.levels:
            return
        settle(self, self._loops)  # type: ignore[arg-type]
        by_hand, self._by_hand = self._by_hand, None
        around = self._run.levels[0]
        if by_hand is not None and isinstance(around, Around) and by_hand[0] is not self._run:
            # The rounds of a loop that began it outside.
            around._absorb(by_hand[1], self._key, has_failed=False)
            self._run.go_on_from(by_hand[0])
        done = to_count(self._first) or 0
        if done and self in self._run.levels[1:] and self._counts:
            self._hand_on(done)

    def _hand_on(self, done: int) -> None:
        """The first round has the steps done before, for all of them; said twice, they count once."""
        levels = self._run.levels
        outer = levels[levels.index(self) - 1]
        if not outer._is_loop:
            return
        each = (self._total_steps or done) - done
        if done < find_rounds_before(outer) * each:
            return  # too few for the rounds before: they are of this one
        if not any(level._has_taken for level in levels):
            outer._take_before(done)
        self._step = self._initial_step = 0
        if self._total_steps is not None:
            self._total_steps -= done

    def _begin_inside(self) -> None:
        """What was done before is in steps, unless it is the round with which a range begins."""
        before = self._initial_step or 0
        rounds = self._iterable.start if type(self._iterable) is range else 0
        if before and before != rounds:
            rounds = rounds if 0 < rounds < before else 0
            self._step -= before - rounds
            self._initial_step = rounds
            if self._total_steps is not None:
                self._total_steps -= before - rounds
            self._inner_done, self._inner_epochs, self._rounds_before = before, rounds, 0

    @property
    def _is_waiting(self) -> bool:  # type: ignore[override]
        return self._is_iterating and not self._is_in_body

    @property
    def _has_just_begun(self) -> bool:  # type: ignore[override]
        return time.monotonic() - self._began_s < SKIPPING_S

    def _is_left(self, stacks: dict[int, dict[int, FrameType]]) -> bool:
        return self._home is not None and self._home.is_left(self._flow, stacks)

    def _close(self, *, has_failed: bool = False, is_fault: bool = False) -> None:
        """The loop has come to its end, or was left. `has_failed`: by an exception, `is_fault`: surely so."""
        self._is_iterating = self._is_in_body = False
        self._items = self._home = None
        if has_failed:
            self._run.is_through = self._run.was_left = False  # a loop inside of it was
        retire(self)
        if self._is_entered or self not in self._run.levels:
            return
        if self._run.levels[0] is not self:
            if self._is_sample:
                self._run.levels.remove(self)
            else:
                self._leave(has_failed=has_failed)
        elif self._run.main is not None:
            self._run.finish(None, 0)
        else:
            self._run.has_failed, self._run.is_fault = has_failed, is_fault

    def _leave_inside(self, *, has_run: bool) -> None:
        """Loops inside are left with this one. `has_run`: their bodies have."""
        levels = self._run.levels
        for level in reversed(levels[levels.index(self) + 1 :] if self in levels else ()):
            if isinstance(level, Track) and level._is_iterating:  # Python 3.13 drops the outer one first
                level._close_early(has_run=has_run)

    def _close_early(self, *, has_run: bool) -> None:
        if has_run and self._is_in_body and self._accumulate == 1 and not self._leave_round():
            self._step += 1
        self._is_cut = True
        self._close()

    def _close_behind(self) -> bool:
        """Where the loop around is in another round by now, this one was left, and its body has run."""
        levels = self._run.levels
        outer = levels[levels.index(self) - 1] if self in levels[1:] else None
        begun, now = (None, None) if outer is None else (outer._begun_round, outer._step)
        if outer is None or not outer._is_loop or begun is None or begun == now:
            return False
        outer._step = begun  # it counts for the round in which it was
        self._close_early(has_run=True)
        outer._step = now
        return True

    def _let_go(self) -> None:
        """The loop was left, and its run goes on: what it went over is the program's alone."""
        if self._is_entered or self not in self._run.levels[:1]:
            return
        self._stand_in = _make_inactive_track((), self._epochs)
        for name in Level.__slots__:
            setattr(self._stand_in, name, getattr(self, name))
        self._run.levels[0] = self._stand_in

    def _return(self) -> None:
        """The program has kept the loop, and goes on with it."""
        levels, stand_in = self._run.levels, self._stand_in
        if stand_in is not None and stand_in in levels:
            levels[levels.index(stand_in)] = self
        self._stand_in = None

    def _close_left(self) -> None:
        """The program has left the loop, and something keeps its iterator."""
        if not self._close_behind():
            is_normal = self._home is not None and not self._home.is_guarded
            if is_normal:
                self._run.was_left = self._is_cut = True
            self._close(has_failed=not is_normal)
        self._let_go()

    def _end_loop(self) -> None:
        levels = self._run.levels
        if self in levels[:-1]:
            for level in reversed(levels[levels.index(self) + 1 :]):
                if isinstance(level, Track) and level._is_iterating and not level._close_behind():
                    level._close_early(has_run=True)
        self._close()
        if not self._is_entered and self in self._run.levels:
            self._conclude()
        elif self._run.levels and isinstance(self._run.levels[0], Around):
            self._run.was_left = False
            self._run.is_through = True

    def _fail(self, error: BaseException) -> None:
        is_alone = not self._is_entered and self in self._run.levels[:1]
        items = self._items
        self._close(has_failed=True, is_fault=True)
        self._items = items
        if is_alone:
            self._end(error)


def _make_inactive_track(iterable: Any, epochs: int) -> Any:
    made: Any = Track(iterable, epochs)
    made._is_started = True
    return made
