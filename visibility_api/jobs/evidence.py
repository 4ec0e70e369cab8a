"""What the reports of a job show for its account."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from visibility_api.reports.document import Progress

from .observation import Addition

if TYPE_CHECKING:
    from .record import Record  # of which the saved account is a part

UNITS = ("step", "progress_percentage", "epoch")  # of positions


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


def is_stalled(record: Record) -> bool:
    return any(each.type == "Stalled" and each.status == "True" for each in record.conditions)


def declares(record: Record) -> bool:
    """Whether the job reports, or says where it would: else nothing shows that it is not at work."""
    rank0 = record.job.rank0 or record.rank0
    says = rank0 is not None and bool(rank0.declared) and record.job.hints.source != "none"
    return record.report is not None or says


def checksum(text: str) -> int:
    return zlib.crc32(text.encode())
