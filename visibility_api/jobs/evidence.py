"""What the reports of a job show for its account."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from visibility_api.reports.document import Progress

from .ledger import MOST_S, Seconds
from .observation import Addition
from .record import Record

UNITS = ("step", "progress_percentage", "epoch")  # of positions

WARM_ROWS = 3  # steps seen until what one takes is known: the first are slower, for compilation
PAUSE_LEAST_S = 0.5
SHRUNK_S = 1.0  # a section may have been counted until so long after its end

Row = tuple[float, float]  # when a position was reached by our clock, and the position


def rows_of(addition: Addition, unit: int) -> Iterator[Row]:
    """What came with a report."""
    if addition.is_clock_set:
        return
    for point in addition.points:
        position = point.step if unit == 0 else point.epoch if unit == 2 else None
        if position is not None:
            yield point.timestamp.timestamp() - addition.ahead_s, float(position)


def position_of(report: Progress | None) -> tuple[int, float | None]:
    """How far a run has come, and in which of UNITS."""
    for unit, name in enumerate(UNITS):
        position = getattr(report, name, None)
        if position is not None:
            return unit, float(position)
    return 0, None


def marked_until(report: Progress, at: float, record: Record) -> list[float]:
    """What the attempt has marked until `at`."""
    marks = report.marks
    found = list(marks.spent_s)
    is_open = not report.is_final and not is_stalled(record)  # one that never ends is no section
    if is_open and marks.section is not None and marks.section_at is not None:
        found[marks.section] += max(0.0, at - marks.section_at.timestamp() + record.clock.ahead_s)
    return found


def begin_marked(marked: Seconds, at: float, record: Record, base: float, position: float) -> Seconds:
    """Of what a report marks the part that was before `at`, in the first steps: the report may be later.
    `base`, `position`: of the first one seen, and of the one at that time.

    Restores were before the steps, and waits for data at each of them. The rest was after them, as far as
    there was time.
    """
    reported_at, end = record.reported_at, position_of(record.report)[1]
    if reported_at is None or end is None or not end > position:  # NaN too
        return marked
    later_s = max(0.0, reported_at.timestamp() - at)
    share = (position - base + 1) / (end - base + 1) if later_s else 1.0
    loading_s, save_s, restore_s, evaluation_s = marked
    return [loading_s * share, max(0.0, save_s - later_s), restore_s, max(0.0, evaluation_s - later_s)]


def have_shrunk(given: Seconds, report: Progress | None) -> bool:
    """Whether it marks less than was marked before: it is of another process."""
    totals = report.marks.spent_s if report is not None else given
    return any(total < before - SHRUNK_S for total, before in zip(totals, given, strict=True))


def is_stalled(record: Record) -> bool:
    for each in record.conditions:  # the first ones
        if each.type == "Stalled":
            return each.status == "True"
    return False


def checksum(text: str) -> int:
    return zlib.crc32(text.encode())


def seconds_a_unit(took_s: float, units: float) -> float:
    """Seconds a step; an epoch may have advanced by next to nothing."""
    return took_s / units if took_s < MOST_S * units else MOST_S


def is_steady(warm: int, usual: float, units: float, took_s: float) -> bool:
    """Whether so many steps took what they usually take, so that there was no pause among them."""
    return warm >= WARM_ROWS and units > 0 and took_s - units * usual <= PAUSE_LEAST_S
