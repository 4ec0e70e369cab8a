"""The values that came shortly before those of a document, for readers that come rarely.

A sink that is written to often keeps one, on its publisher's thread: the training loop pays nothing for it.
The form and its limits are docs/document.md's.
"""

from __future__ import annotations

import math

from .extremes import MAX_NAMES as MAX_METRICS, find_rows, is_given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .document import Snapshot
    from .extremes import Row

# Two thirds of them, twice a second, reach over 18 s, more than the usual 15 s between two probes. The rest
# is thinned: it reaches back over hours, the coarser the farther. Extremes between samples take rows as well,
# four for each sample at most: then fewer seconds are whole. Not more rows: each probe reads them all.
MAX_ROWS = 54
DIGITS = 7  # what a curve shows, and all that a float of 32 bits has


class Tail:
    """Rows of earlier values, oldest first. One thread writes and reads it."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: list[Row] = []
        self._row: Optional[Row] = None  # of `_latest`
        self._latest: Optional[Snapshot] = None
        self._seen_us = 0  # until when extremes between samples are known
        self._cells: dict[str, list[dict[str, Any]]] = {}  # the last metrics of rows that have each name

    def follow(self, snapshot: Snapshot) -> None:
        """`snapshot` is the newest; the one before becomes a row, if its numbers were others.

        What lay outside of both between them becomes rows as well.
        """
        before = self._latest
        at_us = int(snapshot.timestamp * 1_000_000)  # as document.format_time has it
        is_set_back = self._row is not None and at_us < self._row[0]
        since_us = at_us if is_set_back else self._seen_us
        between, seen_us = find_rows(before, snapshot, since_us, at_us)
        if before is not None and not between and not _has_moved(snapshot, before):
            return
        self._seen_us = max(seen_us, at_us)
        known = before.metrics if before is not None else {}
        new = {}
        for name in tuple(snapshot.metrics)[:MAX_METRICS]:
            value = snapshot.metrics[name]
            if known.get(name) != value or is_given(name, snapshot, since_us):
                new[name] = value
        if self._row is not None:
            self._rows.append(self._row)
        if is_set_back:  # what was before has no place beside this
            self._rows, self._cells = [], {}
        self._rows += between
        for row in between:
            self._join_equal(row[3])
        self._join_equal(new)
        if len(self._rows) > self._max_rows:
            whole = self._max_rows * 2 // 3
            self._rows[:-whole] = thin(self._rows[:-whole])
        self._row, self._latest = (at_us, snapshot.step, snapshot.epoch, new), snapshot

    def _join_equal(self, new: dict[str, Any]) -> None:
        """Of a value that stays the same keep the first, and the last two: `new`, and the one in the rows."""
        for name in new:
            cells = self._cells.setdefault(name, [])
            cells.append(new)
            if len(cells) == 4:
                if cells[0][name] == cells[1][name] == cells[2][name]:
                    del cells[1][name]
                    del cells[1]
                else:
                    del cells[0]

    def clear(self) -> None:
        """The rows are where they will be read: they are not needed again."""
        self._rows = []

    def columns(self, snapshot: Snapshot) -> Optional[dict[str, Any]]:
        """`recent` of the document of `snapshot`, the one followed last; None without rows."""
        rows, at_us = self._rows, int(snapshot.timestamp * 1_000_000)
        if not rows or at_us < rows[-1][0]:
            return None
        present = dict.fromkeys(name for row in rows for name in row[3])
        names = {**{name: None for name in snapshot.metrics if name in present}, **present}
        columns: dict[str, Any] = {
            "secondsBefore": [(at_us - row[0]) / 1_000_000 for row in rows],
            "step": [row[1] for row in rows],
            "epoch": [_shorten(row[2]) for row in rows],
            "metrics": {name: [_shorten(row[3].get(name)) for row in rows] for name in names},
        }
        return {
            name: column
            for name, column in columns.items()
            if (column if name == "metrics" else any(cell is not None for cell in column))
        }


def thin(rows: list[Row]) -> list[Row]:
    """Half of them, for as many metrics as that has room for, those named first before the others.

    The first value that is not finite, or the only one of its metric, comes first; then the least and the
    greatest of each metric; then, of each four, the rows whose values stand out most among those beside them.
    """
    room = (len(rows) + 1) // 2
    cells: dict[str, list[tuple[float, int]]] = {}
    for place, row in enumerate(rows):
        for name, value in row[3].items():
            cells.setdefault(name, []).append((_number(value), place))
    finite = {name: [one for one in cells[name] if math.isfinite(one[0])] for name in cells}
    kept: dict[int, None] = {}  # in the order in which they matter
    for each in cells.values():
        odd = next((place for value, place in each if not math.isfinite(value)), None)
        if odd is not None or len(each) == 1:
            kept[each[0][1] if odd is None else odd] = None
    for each in finite.values():
        if each:
            kept[min(each)[1]] = kept[max(each)[1]] = None
    merit = _weigh(len(rows), cells, finite)
    for rank in range(4):
        for at in range(0, len(rows), 4):
            group = sorted(range(at, min(at + 4, len(rows))), key=lambda place: -merit[place])
            if rank < len(group):
                kept.setdefault(group[rank])
    return [rows[place] for place in sorted(tuple(kept)[:room])]


def _weigh(
    length: int, cells: dict[str, list[tuple[float, int]]], finite: dict[str, list[tuple[float, int]]]
) -> list[float]:
    """How far each row stands out among its four: how far its extremes are from the others."""
    merit = [0.0] * length
    for order, name in enumerate(cells):
        for value, place in cells[name]:
            if not math.isfinite(value):
                merit[place] += 4
        values = [value for value, _ in finite[name]]
        reach = max(values) / 2 - min(values) / 2 if values else 0.0  # halves: a whole could be infinite
        groups: dict[int, list[tuple[float, int]]] = {}
        for one in finite[name]:
            groups.setdefault(one[1] // 4, []).append(one)
        for group in groups.values():
            group.sort()
            for at, beside in ((0, 1), (-1, -2)):
                value, place = group[at]
                apart = abs(value / 2 - group[beside][0] / 2) if len(group) > 1 else reach
                merit[place] += (apart / reach if reach else 0.0) + 2.0 ** -(order + 5)
    return merit


def _has_moved(snapshot: Snapshot, before: Snapshot) -> bool:
    return (
        snapshot.step != before.step or snapshot.epoch != before.epoch or snapshot.metrics != before.metrics
    )


def _number(value: Any) -> float:  # noqa: ANN401 — whatever the training gave
    try:
        return float(value)
    except (ValueError, OverflowError):  # text that is no number
        return 0.0


def _shorten(value: Any) -> Any:  # noqa: ANN401 — a number where it is one, else as it was
    return float(f"{value:.{DIGITS}g}") if type(value) is float else value
