"""Reporters inside reporters: what each has counted itself, and what levels inside it have, once they end.

Pure: no clock, no I/O. What a document shows of them is `positions.py`'s.
"""

from __future__ import annotations

import math

from .positions import find_rounds_before
from .values import to_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional, Sequence

    from .positions import Position

    Key = tuple[object, Optional[str]]  # of a loop inside another one: its place in the code, its name


EVALUATION = None, "evaluation"  # for a key: of loops that do not come in most iterations


class Level:
    """One reporter's own counts. The base of `Reporter`, so that its hot loop has one object to look at."""

    __slots__ = (
        "_begins_at", "_begun_round", "_counts", "_cut_steps", "_earliest", "_epoch", "_epochs_before",
        "_extras", "_failed", "_flow", "_gaps", "_in_a_row", "_initial_step", "_inner", "_inner_done",
        "_inner_epochs", "_inner_key", "_inner_round", "_inner_rounds", "_is_cut", "_is_entered",
        "_is_iterating", "_is_long", "_is_loop", "_is_sample", "_is_short", "_key", "_loops", "_more_cut",
        "_name", "_percentage", "_place", "_rounds_before", "_run", "_step", "_total_epochs",
        "_total_steps", "_without_before",
    )  # fmt: skip
    stands_for_loop = False  # one that nobody tracks, around one that is tracked
    # Of a loop that is tracked: it has no item yet; it may have passed over all of them until now.
    _is_waiting = _has_just_begun = False

    def __init__(self) -> None:
        self._run: Any = None  # the LiveRun that it is a part of
        self._name: Optional[str] = None  # what it does, for the message
        self._flow: Any = None  # the Flow in which it began
        self._is_entered = False  # in a `with` block
        self._is_iterating = False  # a loop, between its first item and its end
        self._inner_key: Optional[Key] = None  # of the loop that counts steps inside this one
        self._step: Any = 0
        self._begins_at: Any = None  # the step that was set before anything was reported
        self._initial_step: Optional[int] = 0
        self._total_steps: Optional[int] = None
        self._epoch: Optional[float] = None
        self._epochs_before = 0  # that were done before this block, as far as what runs inside has shown
        self._total_epochs: Optional[float] = None
        self._percentage: Optional[float] = None
        self._is_loop = False  # its steps are the iterations of a loop, which may hold other loops
        self._counts = True  # for the level around it; if not, only a message is made of it
        self._is_sample = False  # a loop that was asked for one item at most, and by no `for`
        self._rounds_before: Optional[int] = None  # whose steps nobody has said; None: _initial_step
        self._inner_done = 0  # steps of levels inside that have ended
        self._inner_epochs: float = 0  # the same in epochs
        self._inner: Optional[Position] = None  # where the last one of them ended
        self._earliest: Optional[Position] = None  # in a block: where the first one ended, if it counts
        self._inner_round: Optional[float] = None  # the iteration in which it ended
        self._inner_rounds = 0  # iterations that had one
        self._begun_round: Optional[float] = None  # the last iteration in which one began
        self._in_a_row = 0  # iterations that had one, as the one before
        self._gaps = 0  # how often one came after iterations without
        self._without_before = 0  # iterations without one, of the same loop in the round before this one
        self._is_long = False  # the first of them has more iterations than are planned here
        self._loops: Sequence[object] = ()  # that are around it and not tracked, or that it stands for
        self._place: object = None  # in the code, where it was begun
        self._key: Key = EVALUATION  # what it is to the level around it
        self._extras: dict[Key, int] = {}  # of loops inside that do not count: their steps
        self._failed: Optional[Position] = None  # of `_inner_done`: where the last one ended, if it failed
        self._is_cut = False  # a loop that was left before its end, without an exception
        self._more_cut = 0  # iterations in which the loop inside was, more than those in which it was not
        self._cut_steps: Optional[int] = None  # of each of these; 0: they differ
        self._is_short = False  # the last one was, and that is not usual here

    def _absorb(self, inner: Position, key: Key, *, has_failed: bool) -> None:
        """A level inside this one has ended at `inner`. `key`: what it was to this one."""
        before = find_rounds_before(self)
        if self._inner is None:
            self._earliest = inner
        self._inner, inner.key = inner, key
        self._inner_done += before * (inner.total_steps or 0) + (inner.step or 0)
        self._inner_epochs += before * (inner.total_epochs or 0) + (inner.epoch or 0)
        self._rounds_before = 0
        self._note_cut(inner)
        self._note_end(inner, has_failed=has_failed or (self._is_short and not self._is_loop))
        self._failed = inner if has_failed else None
        if not self._is_loop:
            self._keep_to_plan(key)

    def _keep_to_plan(self, key: Key, rounds: float = 0, steps: int = 0) -> None:
        """What ran in a block before its rounds, such as a loading of data, was none if they fill the plan.
        `rounds`, `steps`: of the loop inside, whose key is `key`, that are not counted here yet."""
        first, epochs, planned = self._earliest, self._total_epochs or math.inf, self._total_steps or math.inf
        is_within = self._inner_rounds + rounds <= epochs and self._inner_done + steps <= planned
        if first is None or first.key == key or is_within:
            return
        self._earliest = None
        self._inner_done -= first.step or 0
        self._inner_epochs -= first.epoch or 0
        self._inner_rounds -= max(int(first.epoch or 0), 1)

    def _takes_part(self, inner: Level) -> bool:
        """Whether what begins in a block counts. What follows all that is planned does not: a test."""
        last, key = self._inner, inner._set_key(inner._place)
        if last is None or last.key == key or not (self._total_epochs or self._total_steps):
            return True
        return self._rounds < (self._total_epochs or 0) or self._inner_done < (self._total_steps or 0)

    def _note_cut(self, inner: Position) -> None:
        """Whether this round has all its steps, though what ran inside was left before its end. Mostly it has
        not: then the loop around is left too, or not counted on. Where most rounds are left so, it has."""
        is_usual = self._is_mostly_cut and not (inner.step or 0) < (self._cut_steps or 0)
        self._is_short = inner.is_cut and not is_usual
        if self._inner_round == self._rounds and self._is_loop:
            return
        self._more_cut += 1 if inner.is_cut else -1
        if inner.is_cut:
            self._cut_steps = inner.step if self._cut_steps in (None, inner.step) else 0

    @property
    def _is_mostly_cut(self) -> bool:
        return self._more_cut > 0

    def _begin_round(self) -> None:
        """Something that counts begins inside: a round before it is over, whatever it had."""
        if self._is_short and not self._is_loop:
            self._inner_rounds += 1
        self._is_short = False

    def _leave_round(self) -> bool:
        """The loop is left by `break` or `return`. Whether its last round is not done: the loop inside of it
        was left as well, or had not begun. The round before is not done either if it was left in that one."""
        rounds = self._rounds
        if self._inner_round == rounds:
            return self._is_short
        if self._inner is None or self._has_evaluations:
            return False
        if self._is_short and self._inner_round == rounds - 1:
            self._step -= 1
        return True

    def _expect(self, inner: Level) -> None:
        """In a loop that begins inside, the same will run as in the one before it, and be left as early."""
        last = self._inner
        if inner._is_loop and inner._inner is None and last is not None and last.key == inner._key:
            inner._inner = last.inside
            inner._without_before, inner._more_cut, inner._cut_steps = last.habits

    @property
    def _habits(self) -> tuple[int, int, Optional[int]]:
        return self._without, self._more_cut, self._cut_steps

    def _set_key(self, place: object) -> Key:
        """By what the level around it knows it again: `epoch 1` and `epoch 2` are one."""
        self._place = place
        name = self._name and "".join(character for character in self._name if not character.isdecimal())
        self._key = place, name
        return self._key

    def _begin_inside(self) -> None:
        """The first level begins inside that counts."""

    def _take_before(self, steps: int) -> None:
        """What begins inside goes on from there, in its first round."""
        self._inner_done = self._inner_done or steps
        self._rounds_before = 0

    @property
    def _is_untouched(self) -> bool:
        """Whether this block has counted no step itself."""
        return self._step in (self._initial_step, self._begins_at)

    @property
    def _has_taken(self) -> bool:
        """Whether what was done before this block is counted in what runs inside."""
        return not self._is_loop and bool(self._initial_step) and self._inner_done > 0

    def _hand_in(self, inner: Level, *, is_round: bool) -> None:
        """What was done before this block goes to the first that counts in it, unless that says so itself.
        `is_round`: it is one of a loop that is not tracked."""
        if self._is_loop or self._inner is not None or self._inner_done or inner._initial_step:
            return
        if self._is_untouched:
            self._initial_step = self._step
        steps, planned, each = self._initial_step or 0, self._total_epochs or 0, inner._total_steps or 0
        rounds = int(self._epoch or 0)
        if steps and self._epoch is None:
            if self._total_steps:
                rounds = int(steps * planned // self._total_steps)
            elif is_round:
                rounds = steps // each if each and not steps % each else 0
            else:
                makes = int(inner._total_epochs or 0)
                rounds = max(int(planned) - (makes if makes > 1 else each), 0)
        self._inner_done = steps or (rounds * each if is_round else 0)
        self._inner_rounds = self._inner_epochs = self._epochs_before = rounds

    def _note_end(self, inner: Position, *, has_failed: bool = False) -> None:
        rounds = self._rounds
        if self._inner_round != rounds if self._is_loop else not has_failed:
            self._inner_rounds += max(int(inner.epoch or 0), 1)  # a handle may stay for several
        self._inner_round = rounds

    def _absorb_extra(self, key: Key, inner: Position, *, has_failed: bool) -> None:  # noqa: ARG002 — as above
        """A level inside this one, which did not count, has ended at `inner`."""
        if key in self._extras:
            self._extras[key] += inner.step or 0
        if key is EVALUATION:
            self._note_end(inner)

    def _note_begin(self) -> bool:
        """Something begins inside. Whether it is the first in this iteration."""
        before, self._begun_round = self._begun_round, self._rounds
        if before == self._rounds:
            return False
        if before is not None:
            self._in_a_row += self._rounds == before + 1
            self._gaps += self._rounds > before + 1
        return True

    def _takes_in(self, inner: Level, place: object) -> bool:
        """Whether what begins at `place` in the code counts the steps of this loop. The first that runs in an
        iteration does; where most iterations have none, it is an evaluation, as any other."""
        key = inner._set_key(place)
        if self._begun_round is None:
            self._is_long = self._has_just_begun and 0 < (self._total_steps or 0) < (inner._total_steps or 0)
        is_first = self._note_begin()
        if self._has_evaluations:
            if self._inner_key is not EVALUATION:
                self._extras[EVALUATION] = self._inner_done
            self._inner_key, self._inner, self._inner_done = EVALUATION, None, 0
        elif self._inner_key is EVALUATION and is_first:  # others were skipped, as a resumed run does
            self._inner_key, self._inner_done = key, self._extras.pop(EVALUATION, 0)
        if self._inner_key is EVALUATION:
            inner._key = EVALUATION if is_first else key
            return False
        if self._inner_key is None:
            self._inner_key = key
            self._begin_inside()
        elif key != self._inner_key:
            if self._inner_round == self._rounds:
                self._extras.setdefault(key, 0)
            elif key not in self._extras:
                self._inner_key = key
            elif self._inner_rounds == 1:
                # What came before it, in the first iteration alone, was no training.
                self._inner_done, self._inner = self._extras.pop(key), None
                self._extras[self._inner_key] = 0
                self._inner_key = key
        return self._inner_key == key

    @property
    def _has_evaluations(self) -> bool:
        """Whether what ran inside was no round of steps: half of the iterations had none, or more, and it
        came now and then. Epochs come one after the other, though some may be skipped. While one alone has
        come, it is an epoch if it is longer than the loop around it, and that has just begun."""
        if not self._is_loop or self.stands_for_loop or self._in_a_row >= max(self._gaps, 1):
            return False
        if self._is_long and not self._gaps and self._rounds - (self._begun_round or 0) <= 1:
            return False
        return self._without + self._without_before >= max(self._inner_rounds, 1)

    @property
    def _without(self) -> int:
        return int(self._rounds) - (self._initial_step or 0) - self._inner_rounds

    def _try_again(self) -> None:
        """A level begins inside this one: steps of one that failed in this round do not count."""
        if self._inner_round == self._rounds and self._failed is not None:
            self._inner_done -= self._failed.step or 0
            self._inner_epochs -= self._failed.epoch or 0
        self._failed = None

    def _forget_counts(self) -> None:
        """What was counted belongs to an attempt that is over."""
        self._step, self._total_steps, self._epoch, self._total_epochs = 0, None, None, None
        self._percentage = self._inner = self._inner_round = self._inner_key = self._begun_round = None
        self._inner_done = self._inner_rounds = self._in_a_row = self._gaps = self._more_cut = 0
        self._inner_epochs = self._without_before = 0
        self._failed = self._cut_steps = self._earliest = None
        self._is_short = self._is_long = False

    def _settle(self) -> None:
        """It is a loop, and no sample: from now on it counts for the level around."""

    def _is_left(self, stacks: dict[int, dict[int, FrameType]]) -> bool:  # noqa: ARG002 — of a tracked loop
        """Whether the program has left it, though its iterator is kept."""
        return False

    def _close_left(self) -> None:
        """The program has left it, or what it was in."""
        self._leave(has_failed=True)

    def _leave(self, *, has_failed: bool = False) -> None:
        """What it counts is behind the caller: a `Reporter` takes itself out of its run."""

    @property
    def _rounds(self) -> float:
        """Iterations, or epochs, that are behind this level."""
        if self._is_loop:
            return to_count(self._step) or 0
        return self._inner_rounds if self._epoch is None else int(self._epoch)

    @property
    def _unfinished(self) -> Optional[Position]:
        """Where what ran inside in this round has ended, if the round is not over, as far as is known."""
        if self._inner_round != self._rounds:
            return None
        return self._inner if self._is_short else self._failed

    @property
    def _planned_rounds(self) -> Optional[float]:
        return self._total_steps if self._is_loop else self._total_epochs
