"""The iterator of a tracked loop: gives what the program goes over, and notes what it is asked for."""

from __future__ import annotations

import sys
from time import monotonic

from . import open_runs, termination
from .beginning import begin
from .call_site import Home, find_loop_code, find_way_out, is_by_hand
from .positions import find_position
from .waits import Meter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable, Generic, Iterator, Optional, TypeVar

    from .call_site import WayOut
    from .levels import Level
    from .tracked import Track

    T = TypeVar("T")

    class Over(Generic[T]):
        """Over items of one type."""

        __slots__ = ()
else:

    class Over:
        """`typing.Generic` takes too long to import."""

        __slots__ = ()

        def __class_getitem__(cls, _: object) -> type:
            return cls

    T = None


class Items(Over[T]):
    """The iterator of a tracked loop. Keeps no item: a batch is the loop's own."""

    __slots__ = (
        "_epoch", "_epochs_before", "_is_new", "_is_over", "_is_pending", "_items", "_loop", "_meter",
        "_micro", "_outer", "_raised_at", "_round", "_track",
    )  # fmt: skip

    def __init__(self, track: Track[T]) -> None:
        self._track = track
        self._epoch = 0
        self._epochs_before = int(track._epoch or 0) if track._step else 0
        self._meter = Meter()
        self._micro = 0
        self._is_pending = False
        self._is_new = True  # no item of this epoch was asked for yet
        self._is_over = False
        self._raised_at: Optional[int] = None  # the step at which the source has raised
        self._items: Optional[Iterator[T]] = None
        self._loop: Optional[CodeType] = None  # whose `for` goes over this
        track._is_iterating = True
        self._outer: Optional[Level] = None
        self._round: Optional[int] = None  # of that one, in which all of this loop runs
        if not track._is_sample:
            self._settle()

    def __reduce__(self) -> Any:
        track = self._track.__reduce__()
        return _make_inactive_items, (track, self._items, self._epoch, self._is_over)

    def __copy__(self) -> Any:
        from copy import copy

        make, (track, items, epoch, is_over) = self.__reduce__()
        return make(track, copy(items), epoch, is_over)

    def __iter__(self) -> Items[T]:
        self._track._home = None  # another loop goes on with it: nobody knows which until it begins anew
        return self

    def begin(self, *, is_by_hand: bool) -> None:
        """Ask what is tracked for its items, when the program asks us."""
        if not is_by_hand:
            self._guard(self._settle)
        if self._track._epochs == 0:
            return
        try:
            self._items = self._measure(iter, self._track._iterable)
        except BaseException as error:
            self._guard(self._track._fail, error)
            raise
        if hasattr(self._items, "send"):
            self.__class__ = Answers
        self._guard(self._go_on_after_fork)

    def __next__(self) -> T:
        if self._is_over:
            if self._items is None:
                raise StopIteration
            return next(self._items)  # some go on after their end, as a file that grows
        track = self._track
        if not track._is_iterating:
            self._guard(self._go_on)
        if self._is_pending:
            self._is_pending = track._is_in_body = False
            if track._is_sample:
                self._guard(self._settle)
            self._count()
        if track._epochs == 0:
            self._is_over = True
            self._guard(track._end_loop)
            raise StopIteration
        while True:
            try:
                if self._is_new:
                    if self._items is None:
                        self._items = self._measure(iter, track._iterable)
                        self._guard(self._go_on_after_fork)
                    caller = sys._getframe(1)
                    by_hand = is_by_hand(caller, track._loops)
                    around = track._loops if by_hand else ()
                    self._loop, track._home = find_loop_code(caller), Home(caller, around)
                    if track._is_sample and not by_hand:
                        self._guard(self._settle)
                    del caller
                    self._is_new = False
                meter = self._meter
                if meter.left:
                    meter.left -= 1
                    item = next(self._items)  # type: ignore[arg-type]  # there are some by now
                else:
                    item = self._measure(next, self._items)
            except StopIteration:
                if not self._end_epoch():
                    raise
                continue
            except BaseException as error:  # some go on when they are asked again, as a DataLoader does
                self._raised_at = track._step
                self._guard(track._fail, error)
                raise
            self._is_pending = track._is_in_body = True
            return item

    def _measure(self, ask: Callable[[Any], Any], whom: Any) -> Any:
        """What it gives, and how long the run waits for that, unless another loop runs meanwhile."""
        run = self._track._run
        marks = run.marks
        if marks is None or run.main is not None or run.beside:
            return ask(whom)
        state, begun = marks.state, run.begun_beside
        began_s = marks.waiting_since_s = monotonic()
        try:
            return ask(whom)
        finally:
            self._meter.note(marks, began_s, state if run.begun_beside == begun else None)

    def close(self) -> None:
        """Leave the loop: what `break` does, and the end of a generator that yields from this."""
        is_clear = find_way_out(None) != "unknown"
        self._leave("break" if is_clear else "unknown")

    def __del__(self) -> None:
        try:
            if not self._is_over:
                self._leave(find_way_out(self._loop))
        except Exception:  # noqa: S110 — at the interpreter's end much is gone
            pass

    def _guard(self, do: Callable[..., object], *arguments: object) -> None:
        """Nothing that goes wrong here changes what the loop yields or raises."""
        try:
            do(*arguments)
        except Exception as error:
            self._track._run.warn(error)

    def _count(self) -> None:
        try:
            track = self._track
            if self._outer is not None and self._outer._step != self._round:
                self._outer = None
                open_runs.part(track)
            self._micro += 1
            if self._micro < track._accumulate:
                return
            self._micro = 0
            track._step += 1
            run = track._run
            if run.due:
                run.collect()
        except Exception as error:
            self._track._run.warn(error)

    def _end_epoch(self) -> bool:
        """Whether there is another one."""
        track = self._track
        self._is_new = True
        if self._micro:  # gradients that were left over still make a step
            self._micro = track._accumulate
            self._count()
        self._epoch += 1
        track.update(epoch=self._epochs_before + self._epoch)
        if self._epoch < track._epochs:
            self._items = None
            return True
        self._is_over = True
        if track._total_steps is not None and self._raised_at != track._step:
            track._total_steps = track._step  # a len is a guess of some data sets; now it is known
        if self._loop is None:
            track._by_hand = track._run, find_position([track])
        self._guard(track._end_loop)
        return False

    def _go_on_after_fork(self) -> None:
        """A loader may have made its workers: what they are to give may never come, and our threads rest."""
        if self._track._run.due:
            self._track._run.collect()

    def _go_on(self) -> None:
        """This loop was taken for one that is over, and is not."""
        track, before = self._track, self._track._run
        track._is_iterating = True
        track._return()
        if track in before.levels:
            return
        begin(
            track, track._total_steps, total_epochs=track._total_epochs, initial_step=track._step,
            goes_on=True, place=track._place if self._outer is not None and track._counts else None,
            **track._options,
        )  # fmt: skip
        if before.is_over:
            track._run.go_on_from(before)
        self._settle()

    def _settle(self) -> None:
        self._track._settle()
        self._outer = _find_outer(self._track)
        self._round = None if self._outer is None else self._outer._step

    def _leave(self, how: WayOut) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._items = self._outer = None
        track = self._track
        if not track._is_iterating:
            return  # that was noticed before
        try:
            if how in ("break", "end"):
                track._leave_inside(has_run=how == "break")
                if self._is_pending and how == "break" and not track._leave_round():
                    self._count()  # the body has run
                track._run.was_left = track._is_cut = True
            elif termination.is_leaving():
                (track._run.main or track._run).is_announced = True
            track._close(has_failed=how in ("failed", "unknown"), is_fault=how == "failed")
            track._let_go()
            track._run.hasten()
        except Exception as error:
            track._run.warn(error)


class Answers(Items[T]):
    """The items of a generator: `yield from` sends to it, and throws into it. A class of its own, because
    `__getattr__` in the other would double what each item costs."""

    __slots__ = ()

    def send(self, value: object) -> T:
        return self._ask("send", value)

    def throw(self, *error: Any) -> T:
        return self._ask("throw", *error)

    def _ask(self, name: str, *given: Any) -> T:
        items = self._items
        self._items = asked = _Asked(getattr(items, name), given)
        try:
            return next(self)
        finally:
            if self._items is asked:
                self._items = items


class _Asked:
    """Items of a generator, the next of which is asked for in another way than by `next`."""

    def __init__(self, ask: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self._ask, self._given = ask, given

    def __iter__(self) -> _Asked:
        return self

    def __next__(self) -> Any:
        return self._ask(*self._given)


def _find_outer(track: Level) -> Optional[Level]:
    levels = track._run.levels
    place = levels.index(track) if track in levels else 0
    outer = levels[place - 1] if place else None
    return outer if outer is not None and outer._is_loop and not outer.stands_for_loop else None


def _make_inactive_items(track: Any, items: Any, epoch: int, is_over: bool) -> Any:
    make, arguments = track
    made: Any = Items(make(*arguments))
    made._items, made._epoch, made._is_over, made._is_new = items, epoch, is_over, items is None
    return made
