"""The values that came shortly before those of a document, for readers that come rarely.

A sink that is written to often keeps one, on its publisher's thread: the training loop pays nothing for it.
The form and its limits are docs/document.md's.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .document import Snapshot

    # When (microseconds since 1970), step, epoch, and the metrics that were new then.
    Row = tuple[int, Optional[int], Optional[float], dict[str, Any]]

# Two thirds of them, twice a second, reach over 18 s, more than the usual 15 s between two probes. The rest
# is thinned: it reaches back over hours, the coarser the farther. Not more: each probe reads them all.
MAX_ROWS = 54
MAX_METRICS = 24  # the first named; more would hardly fit
DIGITS = 7  # what a curve shows, and all that a float of 32 bits has


class Tail:
    """Rows of earlier values, oldest first. One thread writes and reads it."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: list[Row] = []
        self._row: Optional[Row] = None  # of `_latest`
        self._latest: Optional[Snapshot] = None

    def follow(self, snapshot: Snapshot) -> None:
        """`snapshot` is the newest; the one before becomes a row, if its numbers were others."""
        before = self._latest
        if before is not None and not _has_moved(snapshot, before):
            return
        at_us = int(snapshot.timestamp * 1_000_000)  # as document.format_time has it
        known = before.metrics if before is not None else {}
        new = {}
        for name in tuple(snapshot.metrics)[:MAX_METRICS]:
            value = snapshot.metrics[name]
            if known.get(name) != value:
                new[name] = value
        if self._row is not None:
            self._rows.append(self._row)
            if at_us < self._row[0]:  # the clock was set back: what was before has no place beside this
                self._rows = []
        if len(self._rows) > self._max_rows:
            whole = self._max_rows * 2 // 3
            self._rows[:-whole] = thin(self._rows[:-whole])
        self._row, self._latest = (at_us, snapshot.step, snapshot.epoch, new), snapshot

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
    """Half of them: of each four the two that matter most.

    What is the only one of its metric, or not finite, comes first; then the least and the greatest of the
    metric that was named first, then of the next.
    """
    weights: dict[str, float] = {}
    for row in rows:
        for name in row[3]:
            weights.setdefault(name, 2.0 ** -len(weights))
    kept = []
    for at in range(0, len(rows), 4):
        group = rows[at : at + 4]
        merit = [0.0] * len(group)
        for name, weight in weights.items():
            cells = [(_number(row[3][name]), place) for place, row in enumerate(group) if name in row[3]]
            for value, place in cells:
                if len(cells) == 1 or not math.isfinite(value):
                    merit[place] += 4
            if cells:
                merit[min(cells)[1]] += weight
                merit[max(cells)[1]] += weight
        best = sorted(range(len(group)), key=lambda place: -merit[place])[:2]
        kept += [group[place] for place in sorted(best)]
    return kept


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
