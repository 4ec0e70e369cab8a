"""The runs that are open, and which of them the caller runs in or beside.

Of runs in several threads or tasks the one that began first counts steps; another is beside it, and shown in
its message. What a new reporter becomes, in the run that is found here, is `beginning.py`'s.
"""

from __future__ import annotations

from _weakref import ref  # the part of weakref that takes no time to import
from contextvars import ContextVar

from . import flows
from .flows import Flow
from .live_run import LiveRun
from .positions import find_position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from .levels import Level

runs: list[LiveRun] = []  # newest last
_last: ContextVar[Optional[tuple[ref[LiveRun], Flow]]] = ContextVar("trainjob_progress.last", default=None)


def find_around() -> Optional[LiveRun]:
    """The open run, or the one beside it, whose innermost level the caller runs in; None without one.

    What a thread or task that has ended left open goes on in the caller, unless another has begun anew since.
    """
    open_ = [one for run in reversed(runs) for one in (run, *reversed(tuple(run.beside))) if one.levels]
    for how in ("is_inherited", "is_here"):
        for run in open_:
            if getattr(_find_flow(run), how):
                return run
    return open_[0] if open_ and _find_flow(open_[0]).is_over else None


def _find_flow(run: LiveRun, level: int = -1) -> Flow:
    flow: Flow = run.levels[level]._flow
    return flow


def find_last() -> tuple[Optional[LiveRun], bool]:
    """The run that was begun last in the caller's context, or in one that it was made in; and whether the
    caller runs where it was begun."""
    last = _last.get()
    return (None, False) if last is None else (last[0](), last[1].is_here)


def is_any_begun_after(ended: LiveRun) -> bool:
    """Whether some run that is open was begun when `ended` was over."""
    return any(run.levels and _find_flow(run, 0).number > (ended.ended or 0) for run in runs)


def is_around(run: LiveRun) -> bool:
    """Whether the caller runs inside of `run`, as far as that is still open."""
    return bool(run.levels) and _find_flow(run).is_around


def find_main() -> Optional[LiveRun]:
    """The newest open run, which other threads or tasks have begun; None where its plan is done."""
    if not runs:
        return None
    run = runs[-1]
    is_held = any(holds(level) for level in run.levels)
    if run.has_failed:
        run.fail()
        prune()
        return None
    if run.later is None and not is_held and (run.was_left or find_position(run.levels).is_at_end):
        run.end_unsaid()
        prune()
        return None
    return run


def begin_beside(run: Optional[LiveRun]) -> Optional[LiveRun]:
    """A run that is shown in another one's message alone."""
    if run is None:
        return None
    main = run.main or run
    for other in tuple(main.beside):
        level = next(reversed(other.levels), None)  # None: another thread is just beginning it
        if level is not None and (level._flow.is_over or (level._flow.is_here and level.stands_for_loop)):
            other.finish(None, 0)
    made = LiveRun()
    made.start_beside(main)
    main.say(
        "beside",
        "two loops or reporters run at once (threads, tasks, zip): the one that began first counts steps, "
        "the other is shown in the message only",
    )
    return made


def part(track: Level) -> None:
    """A loop goes on while one around it does as well: neither is inside of the other."""
    run = track._run
    if track not in run.levels[1:]:
        return
    made = begin_beside(run)
    if made is None:
        return
    place = run.levels.index(track)
    moved = run.levels[place:]
    for level in moved:
        level._run = made
        level._counts = True
    made.levels = moved
    run.levels[place - 1]._inner_key = None
    del run.levels[place:]


def enter(run: LiveRun) -> None:
    """The caller runs inside of `run` from now on."""
    levels = [*run.levels]
    if run.main is not None and is_around(run.main):
        levels += run.main.levels
    around = flows.find_numbers()
    phases = [flow for one in (run, run.main) if one is not None for _, flow in one.phases]
    numbers = [level._flow.number for level in levels]
    numbers += [flow.number for flow in phases if flow.number in around]
    flows.enter(tuple(numbers))
    _last.set((ref(run), Flow()))


def holds(level: Level) -> bool:
    """Whether a new reporter is one inside of this one, not one after it."""
    if level._is_iterating and not (level._flow.is_inherited or level._flow.is_here):
        return not level._flow.is_over
    if level._is_entered or (level._is_loop and level._is_iterating):
        return True
    return not level._is_loop and level._total_steps is None and level._step == level._initial_step


def prune() -> None:
    """Forget those that are over."""
    runs[:] = [run for run in runs if not run.is_over]


def abandon(unwanted: Sequence[LiveRun]) -> None:
    """Leave these as they stand."""
    for run in unwanted:
        run.abandon()
    prune()
