"""How a reporter begins: as a level of a run that is open, as a run of its own, or beside one."""

from __future__ import annotations

import os
import threading

from . import open_runs, settings, termination
from .around import Around
from .call_site import find_loops, find_place
from .flows import Flow
from .levels import Level
from .live_run import LiveRun
from .positions import find_position
from .rank import find_rank, has_no_peers, is_helper_process
from .reporter import Reporter
from .values import show, to_amount, to_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Mapping, Optional, Sequence

    from .best import Extreme
    from .call_site import Loop
    from .sinks import Sink

_last: Optional[LiveRun] = None  # that was begun
# Of beginning, by process: threads that begin at once must see each other, and a fork in the meantime, also
# one in C, hands on what another thread holds. Re-entrant for signal handlers; waited for TURN_S at most.
_turns = {os.getpid(): threading.RLock()}
TURN_S = 0.5
newest: Optional[Reporter] = None  # for code that has no handle on one


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
    is_quiet: bool = False,
    goes_on: bool = False,
    is_sample: bool = False,
    doubts: Optional[Mapping[str, str]] = None,
    name: object = None,
    best: Optional[Mapping[str, Extreme]] = None,
    place: object = None,
) -> None:
    """Start `reporter`: as a level of the run that is open, or as a run of its own.

    `without_push`: somebody else pushes already. `is_quiet`: no warning when it replaces one that was not
    finished: a framework tries again. `goes_on`: a loop that was begun before; `place`: where, in the code.
    `is_sample`: perhaps; `settle` follows when it is none.
    `doubts`: what is to be said of other arguments. A wrong one is named in one warning, with what is used in
    its place.
    """
    global newest
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
        reporter._place = place or find_place()
        reporter._loops = loops = find_loops() if reporter._is_loop or total_steps is None else []
        reporter._is_sample = True
        turn = _turns.setdefault(os.getpid(), threading.RLock())
        is_alone_here = turn.acquire(timeout=TURN_S)
        try:
            _end_left()
            run = _find_run(reporter, loops, is_quiet=is_quiet) if sinks is None else None
            if run is None:
                _begin_run(reporter, rank, sinks, bar=bar, without_push=without_push)
            else:
                if run.levels:
                    run.levels[-1]._settle()
                    reporter._counts = False
                reporter._run = run
                run.levels.append(reporter)
            if not is_sample:
                settle(reporter, loops if reporter._is_loop and not goes_on else [])
            open_runs.enter(reporter._run)
        finally:
            if is_alone_here:
                turn.release()
        newest = reporter
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
        run = reporter._run
        said.update((run.main or run)._best.follow(best))
        for about, text in said.items():
            reporter._say(about, text)
    except Exception as error:
        reporter._run.warn(error)


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
    if is_helper:
        return
    path = settings.find_rank_file() if sinks is None else None  # first: afterwards this process is the owner
    places = sinks or ()
    if rank:
        places = ()
    elif sinks is None:
        places = settings.find_sinks(bar=bar, without_push=without_push)
    if places:
        run.start(places, rank, after)
    if path is not None and (rank or places):
        from .accelerators import find_accelerators
        from .heartbeat import Heartbeat

        beat = Heartbeat(run, path, rank or 0, is_alone=not rank and has_no_peers())
        run.start_beat(beat, find_accelerators(run, path=path, rank=rank or 0), after)
    if places or (path is not None and rank):
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
        if level._is_waiting:
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
    elif reporter._is_loop:
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
    stacks: dict[int, dict[int, FrameType]] = {}
    try:
        for run in tuple(open_runs.runs):
            for one in (run, *tuple(run.beside)):
                levels = one.levels
                left = next((level for level in levels if level._is_left(stacks)), None)
                for level in reversed(levels[levels.index(left) :] if left is not None else ()):
                    level._close_left()
    finally:
        for stack in stacks.values():
            stack.clear()  # frames in it hold it


def settle(reporter: Reporter, loops: Sequence[Loop]) -> None:
    """It counts from now on. `loops`: of the program, that are around it and not tracked."""
    run = reporter._run
    place = run.levels.index(reporter)
    if place > 0:
        _join(reporter, run, place, loops)
    elif loops:
        outer = Around(run, _choose(loops))  # the run's end is not this loop's
        outer._takes_in(reporter, reporter._place)
        run.levels = [outer, *run.levels]
    reporter._is_sample = False


def _join(reporter: Reporter, run: LiveRun, place: int, loops: Sequence[Loop]) -> None:
    outer = run.levels[place - 1]
    inside = [loop for loop in loops if loop not in outer._loops]
    if inside and not outer._is_loop and _has_room(outer, reporter):
        outer._hand_in(reporter, is_round=True)
        planned = outer._total_epochs
        around = Around(run, _choose(inside), None if planned is None else max(planned - outer._rounds, 0))
        around._counts = outer._takes_part(around)
        outer = around
        run.levels.insert(place, outer)
    run.is_through = run.is_announced = False
    reporter._counts = _does_count(reporter, run, outer)
    if reporter._counts:
        outer._hand_in(reporter, is_round=False)
        outer._try_again()
        outer._begin_round()
        if outer._is_loop:
            outer._expect(reporter)


def _does_count(reporter: Reporter, run: LiveRun, outer: Level) -> bool:
    """Whether the steps of a new, inner reporter are the run's steps."""
    if not outer._counts or any(flow.is_around for _, flow in run.phases):
        return False
    if run.marks is not None and run.marks.is_open_here:
        return False
    place_of_block = run.levels.index(outer) - outer.stands_for_loop
    block = run.levels[place_of_block] if place_of_block >= 0 else outer
    if not block._is_loop and not _has_room(block, reporter):
        run.say(
            "nested",
            "a loop or reporter inside a run that counts steps itself: its steps are shown as a message only",
        )
        return False
    if not outer._is_loop:
        return outer._takes_part(reporter)
    counts = outer._takes_in(reporter, reporter._place)
    if counts and isinstance(outer, Around) and block is not outer:
        rounds = block._inner_rounds
        block._keep_to_plan(outer._key, outer._step + 1, outer._inner_done + (reporter._total_steps or 0))
        if outer._total_steps is not None:
            outer._total_steps += rounds - block._inner_rounds
    return counts


def _has_room(block: Level, reporter: Reporter) -> bool:
    """Whether a block's steps may be those of `reporter`: it has counted none, and has planned as many."""
    planned = block._total_steps
    return block._is_untouched and (planned is None or (reporter._total_steps or planned + 1) <= planned)


def _choose(loops: Sequence[Loop]) -> Optional[Loop]:
    """The one that goes through the whole training: the nearest of the outermost function that has some."""
    return next((loop for loop in loops if loop[0] is loops[-1][0]), None)


def retire(track: Reporter) -> None:
    """`track` has ended: keep its run for results that come later, not what it loops over."""
    global newest
    if newest is track:
        newest = make_handle(track._run)


def make_handle(run: LiveRun) -> Reporter:
    """For results that come after the end of `run`."""
    made = Reporter()
    made._run = run
    return made
