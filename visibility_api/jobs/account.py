"""What a job spends its time on, from what is known of it: docs/goodput.md has the rules.

The cluster shows when a job waits, is on its node, runs and has ended. Its reports show which steps it
has done by when, and what it marks of its time. Each fact settles the time until then. The time since the
last one is reckoned anew with each evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import add

from visibility_api.reports.document import Progress
from visibility_api.reports.marks import NO_MARKS

from .evidence import (
    PAUSE_LEAST_S,
    WARM_ROWS,
    Row,
    begin_marked,
    checksum,
    have_shrunk,
    is_stalled,
    is_steady,
    marked_until,
    position_of,
    seconds_a_unit,
)
from .ledger import (
    LOST_PROGRESS,
    MARKED,
    OTHER,
    PRODUCTIVE,
    PROGRAM_STARTUP,
    QUEUED,
    RECOVERY,
    STALLED,
    STARTING,
    Ledger,
    Seconds,
    none,
)
from .record import Record

# What a job is doing, as the cluster shows it. Unknown: what was before it was first seen, and after its end.
# Preparing: its initializers run, which hold no accelerators.
WAITING, PLACED, RUNNING, DOWN, UNKNOWN, ENDED, PREPARING = range(7)
_KIND_OF = {WAITING: QUEUED, PREPARING: STARTING, PLACED: STARTING, DOWN: RECOVERY}  # OTHER but for these

PAUSE_SHARE, PAUSE_DEVIATIONS = 0.5, 3.0  # beyond the usual time of its steps, at least
LEARNING = 0.1  # weight of a new value in what is usual
MOST_FRUITLESS = 255
NOWHERE = math.nan  # a position that is not known


class Account:
    """Of one job. `load_account`, let `settle` bring it up to date, and `save_account`."""

    __slots__ = (
        "base", "deviation", "doing", "fruitless", "given", "has_run", "highest", "is_changed", "least",
        "ledger", "mode", "pod", "position", "prepared_s", "row_at", "run", "tail", "unit", "usual", "warm",
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.tail: Seconds = []  # what is reckoned beyond the ledger's end; [] is nothing
        self.doing = OTHER  # the kind of what goes on
        self.is_changed = False  # since it was loaded
        self.mode = WAITING
        self.pod = self.run = 0  # checksums of the uid of rank 0's pod, and of its attempt
        self.prepared_s = 0.0  # of what is settled, by initializers
        self.has_run = False  # before this attempt, or before it began again; else `highest` is not known
        self.fruitless = 0  # attempts in a row without a step past `highest`
        self.highest = NOWHERE  # of all attempts before
        self.unit = 0  # of positions, in UNITS
        self.usual = self.deviation = 0.0  # seconds a step, and how far one is from that; 0: not known
        self._begin_run(ledger.until)

    def _begin_run(self, at: float) -> None:
        self.position = self.base = NOWHERE  # now, and the first one seen
        self.row_at = at  # when `position` was reached
        self.warm = 0  # steps seen, up to WARM_ROWS
        self.least = math.inf  # seconds a step, of these
        self.given = [0.0] * len(MARKED)  # what is settled of the marks

    def end_run(self, *, has_failed: bool) -> None:
        """The attempt is over."""
        self.has_run = True
        if self.position > self.highest or (math.isnan(self.highest) and not math.isnan(self.position)):
            self.highest, self.fruitless = self.position, 0
        elif has_failed:
            self.fruitless = min(MOST_FRUITLESS, self.fruitless + 1)

    def switch(self, mode: int, at: float, record: Record, run: int | None = None) -> None:
        """From then on it does something else; `run`: the attempt that begins."""
        is_over = self.mode == RUNNING and (mode != RUNNING or run is not None)
        at = max(at, self.ledger.until, self.row_at if is_over else 0.0)
        self.settle(at, record)
        if is_over:
            self.end_run(has_failed=mode in (DOWN, RUNNING))
        self.is_changed = True
        if run is not None:
            self.run = run
            self._begin_run(at)
        elif mode == RUNNING:
            self.row_at = max(self.row_at, at)  # the same process goes on
        self.mode = mode

    # --- what is settled

    def settle(self, at: float, record: Record) -> None:
        """All that was until `at` is known."""
        if at > self.ledger.until:
            self._add(self.reckon(at, record), at)

    def _add(self, seconds: Seconds, at: float) -> None:
        self.is_changed = True
        if self.mode == RUNNING:
            self.base = self.position
            for index, kind in enumerate(MARKED):
                self.given[index] += seconds[kind]
        elif self.mode == PREPARING:
            self.prepared_s += sum(seconds)
        self.ledger.add(seconds, at)

    def reckon(self, at: float, record: Record) -> Seconds:
        """What the time from the ledger's end to `at` was spent on, as far as is known."""
        left_s = at - self.ledger.until
        seconds = none()
        if self.mode != RUNNING:
            kind = _KIND_OF.get(self.mode, OTHER)
            self.doing = RECOVERY if kind == STARTING and self.has_run else kind
            seconds[self.doing] = left_s
            return seconds
        report = self._report(record)
        left_s = max(0.0, left_s - self._take_marked(seconds, left_s, at, record))
        since_s = max(0.0, at - max(self.row_at, self.ledger.until))  # the last step
        if self.warm < WARM_ROWS:
            begun_s = left_s if math.isnan(self.position) else max(0.0, left_s - since_s)
            kind = self._begin(seconds, begun_s, record)
            left_s -= begun_s
        if math.isnan(self.position):
            pass
        elif report is None or report.is_final:
            kind = OTHER
        elif is_stalled(record):
            kind = STALLED
        elif self.warm == 1:
            pass  # it has told where it begins: no step is seen yet
        elif since_s > record.fresh_limit_s:
            kind = OTHER
        else:
            kind = LOST_PROGRESS if self.position < self.highest else PRODUCTIVE
        seconds[kind] += left_s
        section = report.marks.section if report is not None and not report.is_final else None
        self.doing = MARKED[section] if section is not None and kind != STALLED else kind
        return seconds

    def _begin(self, seconds: Seconds, begun_s: float, record: Record) -> int:
        """What the time until the last of the first steps was spent on. Returns the kind of its beginning."""
        startup = PROGRAM_STARTUP if math.isnan(self.highest) else RECOVERY
        if math.isnan(self.position):
            report = self._report(record)
            is_expected = record.declares_progress if report is None else position_of(report)[1] is not None
            is_over = report is not None and report.is_final
            kind = startup if is_expected and not is_over else OTHER
            seconds[kind] += begun_s
            return kind
        unit_s = self.usual or (self.least if self.least < math.inf else 0.0)
        units = max(0.0, self.position - self.base)
        if not self.has_run and self.position * unit_s <= begun_s:
            units = self.position  # it began at 0: the first of them were done before they were seen
        work_s = min(begun_s, units * unit_s)
        lost = self._lost_share(self.position - units, self.position)
        seconds[LOST_PROGRESS] += work_s * lost
        seconds[PRODUCTIVE] += work_s * (1 - lost)
        seconds[startup] += begun_s - work_s
        return startup

    def _take_marked(self, seconds: Seconds, most_s: float, at: float, record: Record) -> float:
        """What the run marks of this time. What is more than has passed is left for later."""
        report = self._report(record)
        if report is None or report.marks == NO_MARKS:
            return 0.0
        totals = marked_until(report, at, record)
        marked = [max(0.0, total - given) for total, given in zip(totals, self.given, strict=True)]
        if self.warm < WARM_ROWS:
            marked = begin_marked(marked, at, record, self.base, self.position)
        total_s = sum(marked)
        share = min(1.0, most_s / total_s) if total_s > 0 else 0.0
        for kind, some in zip(MARKED, marked, strict=True):
            seconds[kind] += some * share
        return total_s * share

    def _report(self, record: Record) -> Progress | None:
        """The last one of the attempt that runs."""
        is_its = record.attempt in record.attempts or checksum(record.attempt) == self.run
        return record.report if is_its else None

    def _lost_share(self, before: float, after: float) -> float:
        """How much of the way from one position to another an earlier attempt had come already."""
        if not before < self.highest:  # NaN too
            return 0.0
        return 1.0 if after <= self.highest else (self.highest - before) / (after - before)

    # --- reports

    def follow(self, reached_at: float, rows: Iterable[Row], record: Record, now: float) -> None:
        """The attempt that runs has reported, at a time by our clock. `rows` came with it."""
        unit, position = position_of(record.report)
        if position is None:
            return
        if unit != self.unit:  # what was known is of another one
            self.highest = self.position = NOWHERE
            self.usual = self.deviation = self.warm = 0
            self.unit = unit
        was_stalled = is_stalled(record)
        self.is_changed = True
        self._note_process(reached_at, position, record, was_stalled=was_stalled)
        began, units, lost, paused_s = self.position, 0.0, 0.0, 0.0
        if is_steady(self.warm, self.usual, position - self.position, reached_at - self.row_at):
            rows = ()
        for told_at, reached in (*rows, (reached_at, position)):
            at = min(now, max(told_at, self.row_at))
            if reached <= self.position:
                continue
            if not reached <= self.highest:  # NaN too
                self.fruitless = 0
            if was_stalled and not math.isnan(self.position):
                self.settle(at, record)  # it stood still until then
                was_stalled, self.base = False, reached
            elif self.warm < WARM_ROWS:
                self._warm_up(reached, at, record)
                continue
            else:
                paused_s += self._learn(reached - self.position, at - self.row_at)
                lost += (reached - self.position) * self._lost_share(self.position, reached)
                units += reached - self.position
            self.position, self.row_at = reached, at
        if units:
            self._settle_steps(lost / units, paused_s, RECOVERY if began < self.highest else OTHER, record)

    def _note_process(self, at: float, position: float, record: Record, *, was_stalled: bool) -> None:
        """The attempt may have begun again, perhaps in another process, as torchrun's agent does it."""
        given = self.given
        if position < self.position:
            self.settle(max(at, self.row_at) if was_stalled else self.row_at, record)
            self.end_run(has_failed=False)  # or a log that counts the steps of an epoch were a crash loop
            self._begin_run(self.ledger.until)
            self.given = given
        if have_shrunk(given, record.report):
            self.given = [0.0] * len(MARKED)

    def note_reached(self, record: Record) -> None:
        """The last report of an attempt has come after its end was seen."""
        unit, position = position_of(record.report)
        if position is not None and unit == self.unit and not position <= self.highest:
            self.highest, self.fruitless, self.is_changed = position, 0, True

    def _warm_up(self, reached: float, at: float, record: Record) -> None:
        if math.isnan(self.position):
            self.base = reached
        elif at > self.row_at:
            self.least = min(self.least, seconds_a_unit(at - self.row_at, reached - self.position))
        self.position, self.row_at = reached, at
        if self.warm == WARM_ROWS - 1:
            self.settle(at, record)
            self.usual = self.usual or (self.least if self.least < math.inf else 0.0)
        self.warm += 1

    def _learn(self, units: float, took_s: float) -> float:
        """So many steps took so long. Returns how much of that was a pause."""
        unit_s = seconds_a_unit(took_s, units)
        if not self.usual:
            self.usual = unit_s
            return 0.0
        by_s = unit_s - self.usual
        beyond_s = max(PAUSE_SHARE * self.usual, PAUSE_DEVIATIONS * self.deviation)
        is_pause = by_s > beyond_s and by_s * units > PAUSE_LEAST_S
        if is_pause:  # but if it goes on, this is usual now
            by_s = beyond_s
        self.usual += LEARNING * by_s
        self.deviation += LEARNING * (abs(by_s) - self.deviation)
        return max(0.0, took_s - units * self.usual) if is_pause else 0.0

    def _settle_steps(self, lost: float, paused_s: float, pause: int, record: Record) -> None:
        """The time until `row_at`: steps, of which the share `lost` was done before; pauses; and what is
        marked, which explains pauses first."""
        left_s = self.row_at - self.ledger.until
        if left_s <= 0:
            return
        seconds = none()
        marked_s = self._take_marked(seconds, left_s, self.row_at, record)
        left_s = max(0.0, left_s - marked_s)
        unexplained_s = min(left_s, max(0.0, paused_s - marked_s))
        seconds[pause] += unexplained_s
        seconds[LOST_PROGRESS] += (left_s - unexplained_s) * lost
        seconds[PRODUCTIVE] += (left_s - unexplained_s) * (1 - lost)
        self._add(seconds, self.row_at)

    # --- what is read

    def spent(self) -> Seconds:
        """In all, with what is not settled."""
        return [*map(add, self.ledger.whole, self.tail)] if self.tail else self.ledger.whole

    def show(self) -> None:
        """Count what is not settled in the ledger. Nothing may be settled after it."""
        if self.mode == PREPARING:
            self.prepared_s += sum(self.tail)
        if self.tail:
            self.ledger.show(self.tail)
        self.tail = []
