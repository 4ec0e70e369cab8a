"""Which steps and epochs a document shows of reporters inside reporters. Pure: no clock, no I/O.

The innermost level counts steps. A loop around it counts epochs: its iterations.
"""

from __future__ import annotations

from .values import to_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from .levels import Key, Level


class Position:
    """How far a run has come; None = not known."""

    __slots__ = ("epoch", "habits", "inside", "is_cut", "key", "step", "total_epochs", "total_steps")

    def __init__(
        self,
        step: Optional[int] = None,
        total_steps: Optional[int] = None,
        epoch: Optional[float] = None,
        total_epochs: Optional[float] = None,
    ) -> None:
        self.step = step
        self.total_steps = total_steps
        self.epoch = epoch
        self.total_epochs = total_epochs
        self.is_cut = False  # a loop that was left here, before its end, without an exception
        self.habits: tuple[int, int, Optional[int]] = (0, 0, None)  # of that loop: Level._habits
        self.inside: Optional[Position] = None  # of what ran in it last
        self.key: Optional[Key] = None  # of a loop that has ended: what it was to the one around it

    @property
    def is_at_end(self) -> bool:
        """Whether what was planned is done; steps count before epochs."""
        if self.total_steps:
            return (self.step or 0) >= self.total_steps
        return bool(self.total_epochs) and (self.epoch or 0) >= (self.total_epochs or 0)


def find_counted(levels: Sequence[Level]) -> Sequence[Level]:
    """Of the open levels those whose steps and epochs are shown."""
    counted = []
    for level in tuple(levels):
        if not level._counts:
            break
        counted.append(level)
    return counted


def find_position(levels: Sequence[Level]) -> Position:
    """Where the open `levels`, outermost first, have come to together."""
    level, inside = levels[0], levels[1:]
    counts_itself = not level._is_loop and level._step != level._initial_step
    if level.stands_for_loop and not inside and level._inner is None:
        return Position(0, None, None, level._total_steps)
    if counts_itself or (not inside and (level._inner is None or level._has_evaluations)):
        return Position(to_count(level._step), _sane(level), level._epoch, level._total_epochs)
    inner = find_position(inside) if inside else None
    known = inner or level._inner or Position()
    before = level._inner_done + find_rounds_before(level) * (known.total_steps or 0)
    step = before + ((inner.step or 0) if inner is not None else 0)
    if inner is not None and inside[0].stands_for_loop and level._total_epochs is not None:
        return _find_in_block(level, inner, step)  # the loop's rounds are those of the block
    total = _plan(level, inner, before)
    if total is not None and level._is_mostly_cut and (inner is not None or level._unfinished):
        total = max(total, step + 1)  # this round is longer than most, and not over
    position = Position(step, total, *_epochs(level, inner, known))
    position.inside = known
    return position


def _find_in_block(block: Level, inner: Position, step: int) -> Position:
    total = block._total_steps
    if total is None and inner.total_steps is not None:
        is_through = (block._epoch or 0) >= (block._total_epochs or 0)  # the program has said so
        total = step if is_through else block._inner_done + inner.total_steps
    epoch = max(block._inner_epochs + (inner.epoch or 0), block._epoch or 0)
    position = Position(step, total, epoch, block._total_epochs)
    position.inside = inner
    return position


def find_rounds_before(level: Level) -> int:
    """Rounds that were done before a loop began: in each there was as much as in the first one inside it."""
    if not level._is_loop:
        return 0
    return (level._initial_step if level._rounds_before is None else level._rounds_before) or 0


def _plan(level: Level, inner: Optional[Position], before: int) -> Optional[int]:
    """Steps planned in all: those behind, and for each round that is left as many as in this one."""
    if not level._is_loop and level._total_steps is not None:
        return level._total_steps
    last = inner or level._inner
    planned = level._planned_rounds
    if last is None or last.total_steps is None:
        return None
    unfinished = level._unfinished if inner is None else None
    if unfinished is not None:
        before -= unfinished.step or 0
    if planned is None:  # nothing is planned around it: what is inside is all that is known of the end
        is_inside = (inner is not None or unfinished) and not level._is_loop
        return before + last.total_steps if is_inside else None
    each = last.total_steps if level._is_loop else last.total_steps / max(last.total_epochs or 1, 1)
    if level._is_mostly_cut and level._inner_round is None and level._inner is not None:
        each = level._inner.step or each  # as in the same loop before
    return _foresee(level, before, each, is_between=inner is None and unfinished is None)


def _foresee(level: Level, done: float, each: float, *, is_between: bool) -> int:
    """What it will have been in all, steps or epochs: what is `done`, and `each` for the rounds to come.

    `is_between`: no round is open inside. Where most rounds are left before their end, those to come have as
    much as those before.
    """
    behind = level._rounds
    left = max((level._planned_rounds or 0) - behind, 0)
    if is_between and level._inner_round == behind:
        left = max(left - 1, 0)  # this round has had its steps, though it is not over yet
        behind += 1
    if level._is_mostly_cut and behind and done and level._is_loop:
        each = done / behind
    return round(done + each * left)


def _epochs(
    level: Level, inner: Optional[Position], known: Position
) -> tuple[Optional[float], Optional[float]]:
    planned = level._planned_rounds
    if not level._is_loop and level._epoch is None:  # it leaves its epochs to what is inside
        is_whole = planned is None and (known.total_steps or 0) >= (level._total_steps or 0)
        if is_whole or (planned is None and known.total_epochs is None):
            return known.epoch, known.total_epochs
        return level._rounds + ((inner.epoch or 0) if inner is not None else 0), planned
    rounds: Optional[float] = level._rounds if level._is_loop else level._epoch
    if not known.total_epochs or (inner is None and not level._is_loop):
        return rounds, planned
    if not level._is_loop:
        done = (rounds or 0) * known.total_epochs
        return done + (known.epoch or 0), planned * known.total_epochs if planned else None
    unfinished = level._unfinished if inner is None else None
    is_between = inner is None and unfinished is None
    if known.total_epochs == 1:  # each round is one, whatever it had
        is_done = is_between and level._inner_round == level._rounds
        return level._rounds + ((inner.epoch or 0) if inner is not None else is_done), planned
    before = level._inner_epochs + find_rounds_before(level) * known.total_epochs
    at = before + ((inner.epoch or 0) if inner is not None else 0)
    if unfinished is not None:
        before -= unfinished.epoch or 0
    if not planned:
        return at, None
    return at, max(_foresee(level, before, known.total_epochs, is_between=is_between), at)


def _sane(level: Level) -> Optional[int]:
    total = level._total_steps
    return None if not total or (to_count(level._step) or 0) > total else total  # a reader would drop it too
