"""What a training loop calls: `report`, `track`, `current` and `report_metrics`."""

from __future__ import annotations

import os
import sys
import threading

from . import live_run, open_runs, settings, termination
from .call_site import Home, find_loop_code, find_loops, find_place, find_way_out
from .flows import Flow
from .levels import Level, Position, find_position
from .live_run import LiveRun
from .rank import find_rank, is_helper_process
from .reporter import Reporter
from .values import show, to_amount, to_count, to_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable, Generic, Iterable, Iterator, Mapping, Optional, Sequence, TypeVar

    from .call_site import Loop, WayOut
    from .live_run import Extreme
    from .sinks import Sink
    from .values import Metric

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

_last: Optional[LiveRun] = None  # that was begun
# Of beginning, by process: threads that begin at once must see each other, and a fork in the meantime, also
# one in C, hands on what another thread holds. Re-entrant for signal handlers; waited for TURN_S at most.
_turns = {os.getpid(): threading.RLock()}
TURN_S = 0.5
_newest: Optional[Reporter] = None  # for code that has no handle on one


def report(
    total_steps: Optional[int] = None,
    *,
    total_epochs: Optional[float] = None,
    initial_step: Optional[int] = 0,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
    wait_s: Optional[float] = None,
    name: Optional[str] = None,
    best: Optional[Mapping[str, Extreme]] = None,
) -> Reporter:
    """A reporter that has started: `with report(total_steps=N) as r: r.step(loss=loss)`.

    `initial_step`: steps done before, when training resumes from a checkpoint; None where nobody knows yet.
    `rank`: which process this is (default: found); only rank 0 writes. `sinks`: where to (default: what the
    environment asks for; an empty list: nowhere, and what was not finished before is left as it stands).
    `bar`: a bar on the terminal too. `wait_s`: how long the end may wait for slow sinks (default: 0.12 s).
    `name`: of this run, where a process has several ("fold 2"); the message has it, and how those before it
    ended. `best`: metrics whose best value so far is shown too: `{"accuracy": "max", "loss": "min"}`.
    Inside a loop that is tracked, or another reporter's `with` block, it counts that one's steps. Beside one,
    in another thread or task, its steps are shown in the message only, and one warning says so. Never raises.
    """
    reporter = Reporter()
    reporter._wait_s = wait_s
    begin(
        reporter, total_steps, total_epochs=total_epochs, initial_step=initial_step, rank=rank, sinks=sinks,
        bar=bar, name=name, best=best,
    )  # fmt: skip
    return reporter


def current() -> Reporter:
    """The reporter in use, for functions that were not given one; without one, one that reports nowhere."""
    open_runs.prune()
    run = open_runs.find_around()
    if run is None:
        last, is_own = open_runs.find_last()
        if last is not None and last.takes_results and (is_own or not open_runs.is_any_begun_after(last)):
            return _make_handle(last)
        run = open_runs.runs[-1] if open_runs.runs else None
    innermost = run.levels[-1] if run is not None and run.levels else None
    if isinstance(innermost, Reporter):
        return innermost
    return _newest if _newest is not None else Reporter()


def report_metrics(
    metrics: Optional[Mapping[str, Metric]] = None, timeout: float = 3.0, **named: Metric
) -> None:
    """Report some numbers, as Katib's `report_metrics` does; but never raise.

    Uses the reporter that is in use, or was last, or makes one. `timeout`: seconds at most that this call may
    take; it waits for nothing, so it is there for the signature's sake.
    """
    del timeout
    (current() if _newest is not None else report()).update(metrics, metrics=named)


def track(
    iterable: Iterable[T],
    *,
    epochs: int = 1,
    total: Optional[int] = None,
    desc: Optional[str] = None,
    initial_step: int = 0,
    accumulate: int = 1,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
    wait_s: Optional[float] = None,
    best: Optional[Mapping[str, Extreme]] = None,
) -> Track[T]:
    """Iterates over `iterable`, `epochs` times, and counts a step whenever the loop's body has run.

    The total is `len(iterable) * epochs`, or unknown where there is no len; `total`: in place of that len.
    `desc`: what the loop does; the message has it. `best`: as of `report`. With `epochs` of 0 or less there
    is no item, as in `range(0)`. `initial_step`: steps done before. `accumulate`: items for each optimizer
    step. Tracked loops may be nested: outer iterations are epochs, inner ones steps. Of loops that run at
    once and not inside of each other (threads, tasks, `zip`), the first counts steps; the others are shown in
    the message, and one warning says so. For metrics call `report_metrics` in the loop, or take the handle:
    `with track(loader) as t`, and `t.update(loss=…)`. No argument changes what the loop yields or raises.
    """
    made: Track[T] = Track(iterable, epochs, initial_step, accumulate)
    made._wait_s = wait_s
    made._total = total
    made._options = {"rank": rank, "sinks": sinks, "bar": bar, "name": desc, "best": best}
    return made


class Track(Reporter, Over[T]):
    """A loop that counts its own steps, and a reporter for what happens in it."""

    __slots__ = (
        "_accumulate", "_by_hand", "_doubts", "_epochs", "_first", "_home", "_is_in_body", "_is_started",
        "_items", "_iterable", "_options", "_stand_in", "_total",
    )  # fmt: skip

    def __init__(
        self, iterable: Iterable[T], epochs: int = 1, initial_step: int = 0, accumulate: int = 1
    ) -> None:
        super().__init__()
        self._iterable = iterable
        self._doubts: dict[str, str] = {}  # of arguments: what is said once it is known to whom
        self._epochs = max(self._take_whole("epochs", epochs), 0)
        self._accumulate = self._take_whole("accumulate", accumulate)
        self._by_hand: Optional[Position] = None  # where a round ended for which no `for` asked
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
        items.begin()
        return items

    def __next__(self) -> T:
        if self._items is None:
            self._start()
            self._items = Items(self)
        return next(self._items)

    def __enter__(self) -> Track[T]:
        self._start(is_entered=True)
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

    def _start(self, *, is_entered: bool = False) -> None:
        self._return()
        before: Optional[LiveRun] = None
        if self._is_started:
            if self._is_iterating or self._step == self._initial_step:
                return
            if self._is_entered or self in self._run.levels:
                self._total_steps = self._total_epochs = None  # once more over the same: how often, who knows
                return
            wait_s = self._wait_s  # it has left its run: like another one over the same
            before = self._run
            super().__init__()
            self._is_loop, self._is_in_body, self._wait_s = True, False, wait_s
        self._is_started = True
        items = to_count(self._total)
        if items is None and self._total is not None:
            self._doubts["total"] = f"total={show(self._total)} is no whole number: the length is used"
        try:
            if items is None:
                items = len(self._iterable)  # type: ignore[arg-type]  # asked, not known
        except Exception as error:
            termination.let_through(error)
            items = None  # a stream; torch's IterableDataset raises its own kind of error here
        steps = None if items is None else -(-items // self._accumulate) * self._epochs
        begin(
            self, steps, total_epochs=self._epochs, is_alone=not is_entered, doubts=self._doubts,
            initial_step=0 if self._first is None else self._first, **self._options,
        )  # fmt: skip
        around = self._run.levels[0] if self._run.levels else None
        if self._by_hand is not None and isinstance(around, Around) and before not in (None, self._run):
            around._absorb(self._by_hand, has_failed=False)  # the rounds of a loop that began it outside
            around._step += 1
            self._run.go_on_from(before)
        self._by_hand = None
        if isinstance(around, Around) and around._inner_done:
            self._step = self._initial_step = 0  # the first round has had the steps done before
        if self._initial_step and self._total_steps is not None:
            self._total_steps += self._initial_step

    @property
    def _is_left(self) -> bool:
        return self._home is not None and self._home.is_left(self._flow)

    def _close(self, *, has_failed: bool = False, is_fault: bool = False) -> None:
        """The loop has come to its end, or was left. `has_failed`: by an exception, `is_fault`: surely so."""
        self._is_iterating = self._is_in_body = False
        self._items = self._home = None
        _retire(self)
        if self._is_entered or self not in self._run.levels:
            return
        if self._run.levels[0] is not self:
            outer = self._run.levels[self._run.levels.index(self) - 1]
            self._leave(has_failed=has_failed)
            if isinstance(outer, Around) and self._counts and not has_failed:
                outer._step += 1
        elif self._run.main is not None:
            self._run.finish(None, 0)
        else:
            self._run.has_failed, self._run.is_fault = has_failed, is_fault

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
        is_normal = self._home is not None and not self._home.is_guarded
        if is_normal:
            self._run.was_left = True
        self._close(has_failed=not is_normal)
        self._let_go()

    def _end_loop(self) -> None:
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


class Around(Reporter):
    """Stands for a loop that is not tracked, around one that is: nobody knows how often it will go round."""

    __slots__ = ()
    stands_for_loop = True

    def __init__(self) -> None:
        super().__init__()
        self._is_loop = True
        self._is_iterating = True


class Items(Over[T]):
    """The iterator of a tracked loop. Keeps no item: a batch is the loop's own."""

    __slots__ = (
        "_epoch", "_epochs_before", "_is_new", "_is_over", "_is_pending", "_items", "_loop", "_micro",
        "_outer", "_raised_at", "_round", "_track",
    )  # fmt: skip

    def __init__(self, track: Track[T]) -> None:
        self._track = track
        self._epoch = 0
        self._epochs_before = int(track._epoch or 0) if track._step else 0
        self._micro = 0
        self._is_pending = False
        self._is_new = True  # no item of this epoch was asked for yet
        self._is_over = False
        self._raised_at: Optional[int] = None  # the step at which the source has raised
        self._items: Optional[Iterator[T]] = None
        self._loop: Optional[CodeType] = None  # whose `for` goes over this
        track._is_iterating = True
        self._outer = _find_outer(track)
        self._round = None if self._outer is None else self._outer._step  # in which all of this loop runs

    def __reduce__(self) -> Any:
        track = self._track
        return _make_inactive_items, (track._iterable, track._epochs, self._items, self._epoch, self._is_over)

    def __iter__(self) -> Items[T]:
        self._track._home = None  # another loop goes on with it: nobody knows which until it begins anew
        return self

    def begin(self) -> None:
        """Ask what is tracked for its items, when the program asks us."""
        if self._track._epochs == 0:
            return
        try:
            self._items = iter(self._track._iterable)
        except BaseException as error:
            self._guard(self._track._fail, error)
            raise

    def __next__(self) -> T:
        if self._is_over:
            raise StopIteration
        track = self._track
        if not track._is_iterating:
            self._guard(self._go_on)
        if self._is_pending:
            self._is_pending = track._is_in_body = False
            self._count()
        if track._epochs == 0:
            self._is_over = True
            self._guard(track._end_loop)
            raise StopIteration
        while True:
            try:
                if self._is_new:
                    if self._items is None:
                        self._items = iter(track._iterable)
                    caller = sys._getframe(1)
                    self._loop, track._home = find_loop_code(caller), Home(caller)
                    del caller
                    self._is_new = False
                item = next(self._items)  # type: ignore[arg-type]  # there are some by now
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
        self._items, self._is_new = None, True
        if self._micro:  # gradients that were left over still make a step
            self._micro = track._accumulate
            self._count()
        self._epoch += 1
        track.update(epoch=self._epochs_before + self._epoch)
        if self._epoch < track._epochs:
            return True
        self._is_over = True
        if track._total_steps is not None and self._raised_at != track._step:
            track._total_steps = track._step  # a len is a guess of some data sets; now it is known
        if self._loop is None:
            track._by_hand = find_position([track])
        self._guard(track._end_loop)
        return False

    def _go_on(self) -> None:
        """This loop was taken for one that is over, and is not."""
        track, before = self._track, self._track._run
        track._is_iterating = True
        track._return()
        if track in before.levels:
            return
        begin(
            track, track._total_steps, total_epochs=track._total_epochs, initial_step=track._step,
            place=track._place if self._outer is not None and track._counts else None,
            **track._options,
        )  # fmt: skip
        if before.is_over:
            track._run.go_on_from(before)
        self._outer = _find_outer(track)
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
                if self._is_pending and how == "break":
                    self._count()  # the body has run
                track._run.was_left = True
            track._close(has_failed=how in ("failed", "unknown"), is_fault=how == "failed")
            track._let_go()
            track._run.hasten()
        except Exception as error:
            track._run.warn(error)


def begin(
    reporter: Reporter,
    total_steps: Optional[int] = None,
    *,
    total_epochs: Optional[float] = None,
    initial_step: Optional[int] = 0,
    rank: Optional[int] = None,
    sinks: Optional[Sequence[Sink]] = None,
    bar: bool = False,
    without_push: bool = False,
    is_alone: bool = False,
    is_quiet: bool = False,
    doubts: Optional[Mapping[str, str]] = None,
    name: object = None,
    best: Optional[Mapping[str, Extreme]] = None,
    place: object = None,
) -> None:
    """Start `reporter`: as a level of the run that is open, or as a run of its own.

    `without_push`: somebody else pushes already. `is_alone`: a loop without a `with` block around it.
    `is_quiet`: no warning when it replaces one that was not finished: a framework tries again. `doubts`: what
    is to be said of other arguments. A wrong one is named in one warning, with what is used in its place.
    `place`: in the code, of a loop that was begun before.
    """
    global _newest
    try:
        said = dict(doubts or {})
        if rank is not None and to_count(rank) is None:
            said["rank"] = f"rank={show(rank)} is no rank: the one that is found is used"
            rank = None
        sinks, doubt = settings.check_sinks(sinks)
        if doubt:
            said["sinks"] = doubt
        try:
            bar = bool(bar)
        except Exception as error:
            termination.let_through(error)
            said["bar"] = f"bar={show(bar)} is neither true nor false: no bar is shown"
            bar = False
        counts = {"initial_step": initial_step, "total_steps": total_steps, "total_epochs": total_epochs}
        reporter._step = None if initial_step is None else to_count(initial_step) or 0
        reporter._initial_step = reporter._step
        reporter._total_steps = to_count(total_steps)
        reporter._total_epochs = to_amount(total_epochs)
        reporter._name = name if name is None or isinstance(name, str) else show(name)
        reporter._flow = Flow()
        place = place or find_place()
        loops = find_loops() if is_alone or total_steps is None else []
        turn = _turns.setdefault(os.getpid(), threading.RLock())
        is_alone_here = turn.acquire(timeout=TURN_S)
        try:
            _end_left()
            run = _find_run(reporter, loops, is_quiet=is_quiet) if sinks is None else None
            if run is not None and run.levels:
                _join(reporter, run, place, loops if is_alone else [])
            else:
                if run is not None:
                    reporter._run, run.levels = run, [reporter]
                else:
                    _begin_run(reporter, rank, sinks, bar=bar, without_push=without_push)
                if is_alone and loops:
                    reporter._run.levels = [_make_around(reporter, place, _choose(loops)), reporter]
            reporter._loops = loops
            open_runs.enter(reporter._run)
        finally:
            if is_alone_here:
                turn.release()
        _newest = reporter
        for about, given in counts.items():
            understood = to_amount(given) if about == "total_epochs" else to_count(given)
            if given is not None and understood is None:
                said[about] = f"{about}={show(given)} is left out: a number from 0 to 2^53 is needed"
        if reporter._wait_s is not None:
            wait_s = to_amount(reporter._wait_s)
            if wait_s is None:
                used_s = termination.FLUSH_TIMEOUT_S
                said["wait_s"] = (
                    f"wait_s={show(reporter._wait_s)} is no number of seconds: {used_s:g} is used"
                )
            reporter._wait_s = wait_s
        said.update(reporter._run.follow_best(best))
        for about, text in said.items():
            reporter._say(about, text)
    except Exception as error:
        reporter._run.warn(error)


def abandon_all() -> None:
    """Leave every run as it stands: for tests, which share a process."""
    global _newest
    live_run.earlier = (0, ())
    open_runs.abandon(open_runs.runs)
    _newest = None


def _begin_run(
    reporter: Reporter,
    rank: Optional[int],
    sinks: Optional[Sequence[Sink]],
    *,
    bar: bool,
    without_push: bool,
) -> None:
    global _last
    run = LiveRun()
    run.levels = [reporter]
    reporter._run = run
    after, _last = _last, run
    if after is not None and not after.is_over:
        if after.has_any_of(sinks or ()):
            after.abandon()
        else:
            after = None  # it has places of its own
    if sinks is not None and not sinks:
        open_runs.abandon(
            [other for other in open_runs.runs if not other.is_entered and open_runs.is_around(other)]
        )
    is_helper = False
    if rank is None:
        rank = find_rank()
        is_helper = is_helper_process()
    if rank or is_helper:
        return
    places = settings.find_sinks(bar=bar, without_push=without_push) if sinks is None else sinks
    if places:
        run.start(places, rank, after)
        open_runs.runs.append(run)


def _find_run(reporter: Reporter, loops: Sequence[Loop], *, is_quiet: bool) -> Optional[LiveRun]:
    """The run that a new reporter becomes a level of. A run that it cannot belong to is ended.

    `loops`: of the program, that are around it and not tracked.
    """
    open_runs.prune()
    run = open_runs.find_around()
    if run is None or run.later is not None:
        return open_runs.begin_beside(run or open_runs.find_main())
    root = run.levels[0]
    if isinstance(root, Around) and len(run.levels) == 1 and root._loops != [_choose(loops)]:
        run.end_unsaid()  # that loop is behind us
        return None
    while run.levels:
        level = run.levels[-1]
        if isinstance(level, Around) and level is not root and level._loops[0] not in loops:
            level._leave()  # that loop is behind us
            continue
        if isinstance(level, Track) and level._is_iterating and not level._is_in_body:
            return open_runs.begin_beside(run)  # begun, and waiting for an item: not inside of it
        if open_runs.holds(level):
            return run
        if len(run.levels) == 1:
            break
        level._leave()
    if run.was_left or find_position(run.levels).is_at_end:
        run.end_unsaid()
    elif run.has_failed:
        run.fail()  # it is tried again
    elif isinstance(reporter, Track):
        return run  # some loop inside of a training: not a training that follows it
    else:
        if not is_quiet:
            run.say(
                "replaced",
                "a second report() replaces one that was not finished: call its finish(), or use `with`",
            )
        run.abandon()
    open_runs.prune()
    return None


def _end_left() -> None:
    """End loops that an exception has left, though a traceback or a variable keeps what they go over."""
    for run in tuple(open_runs.runs):
        for one in (run, *tuple(run.beside)):
            levels = one.levels
            left = next((level for level in levels if isinstance(level, Track) and level._is_left), None)
            for level in reversed(levels[levels.index(left) :] if left is not None else ()):
                if isinstance(level, Track):
                    level._close_left()
                else:
                    level._leave(has_failed=True)


def _find_outer(track: Reporter) -> Optional[Track[Any]]:
    levels = track._run.levels
    place = levels.index(track) if track in levels else 0
    outer = levels[place - 1] if place else None
    return outer if isinstance(outer, Track) else None


def _join(reporter: Reporter, run: LiveRun, place: object, loops: Sequence[Loop]) -> None:
    outer = run.levels[-1]
    inside = [loop for loop in loops if loop not in outer._loops]
    plan = outer._total_steps or outer._total_epochs
    if inside and not (outer._is_loop or plan or outer._step != outer._initial_step):
        around = _make_around(reporter, place, _choose(inside))
        around._run = run
        run.levels.append(around)
        outer = around
    reporter._run = run
    run.is_through = False
    reporter._counts = _does_count(reporter, run, outer, place)
    if reporter._counts:
        outer._try_again()
    run.levels.append(reporter)


def _does_count(reporter: Reporter, run: LiveRun, outer: Level, place: object) -> bool:
    """Whether the steps of a new, inner reporter are the run's steps."""
    if not outer._counts:
        return False
    if any(flow.is_around for _, flow in run.phases):
        return False
    if outer._is_loop:
        return outer._takes_in(reporter, place)
    planned = outer._total_steps
    is_untouched = outer._step == outer._initial_step
    if is_untouched and (planned is None or (reporter._total_steps or planned + 1) <= planned):
        return True
    run.say(
        "nested",
        "a reporter inside another one, which counts steps itself: its steps are shown as a message only",
    )
    return False


def _make_around(track: Reporter, place: object, loop: Optional[Loop]) -> Around:
    """`track` runs in a loop that nobody tracks: its end is not the run's, and the run's end is not known."""
    around = Around()
    around._run, around._flow = track._run, Flow()
    around._inner_key = place
    around._loops = [loop]
    return around


def _choose(loops: Sequence[Loop]) -> Optional[Loop]:
    """The one that goes through the whole training: the nearest of the outermost function that has some."""
    return next((loop for loop in loops if loop[0] is loops[-1][0]), None)


def _retire(track: Reporter) -> None:
    """`track` has ended: keep its run for results that come later, not what it loops over."""
    global _newest
    if _newest is track:
        _newest = _make_handle(track._run)


def _make_handle(run: LiveRun) -> Reporter:
    """For results that come after the end of `run`."""
    made = Reporter()
    made._run = run
    return made


def _make_inactive_track(iterable: Any, epochs: int) -> Any:
    made: Any = Track(iterable, epochs)
    made._is_started = True
    return made


def _make_inactive_items(iterable: Any, epochs: int, items: Any, epoch: int, is_over: bool) -> Any:
    made: Any = Items(_make_inactive_track(iterable, epochs))
    made._items, made._epoch, made._is_over, made._is_new = items, epoch, is_over, items is None
    return made
