"""How all ranks get on, as rank 0 has gathered it: columns of the document's field `ranks`.

A reader finds slow ranks by comparing them. Of many ranks the slowest are kept, and a selection of the others
that stands for all of them. The form and its limits are docs/document.md's.
"""

from __future__ import annotations

import math

from .document import MAX_RANKS, MAX_TEXT, format_time
from .values import to_amount, to_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence, Union

    PerRank = Union[Sequence[Any], Mapping[int, Any]]

SLOWEST = 8  # of more than MAX_RANKS
DIGITS = 6


def make_columns(
    at_s: float,
    step_seconds: Optional[PerRank],
    steps: Optional[PerRank],
    names: Optional[PerRank],
) -> Optional[dict[str, Any]]:
    """The columns, as of `at_s` (Unix seconds); None where nothing is known of any rank.

    Each argument has a value for each rank: a sequence in order of rank, or a mapping from rank. What is no
    number is not known. Raises TypeError for anything else.
    """
    seconds, counts, called = (_by_rank(each) for each in (step_seconds, steps, names))
    rows = []
    for rank in sorted({*seconds, *counts}):
        took_s, done = to_amount(seconds.get(rank)), to_count(counts.get(rank))
        if to_count(rank) is not None and (took_s or done is not None):
            name = called.get(rank)
            rows.append((rank, took_s or None, done, None if name is None else str(name)[:MAX_TEXT]))
    if not rows:
        return None
    columns: dict[str, Any] = {"timestamp": format_time(at_s)}
    kept = _select(rows)
    for place, (column, digits) in enumerate(
        (("rank", 0), ("stepSeconds", DIGITS), ("step", 0), ("name", 0))
    ):
        cells = [row[place] for row in kept]
        if any(cell is not None for cell in cells):
            columns[column] = [
                float(f"{cell:.{digits}g}") if digits and cell is not None else cell for cell in cells
            ]
    return columns


def _by_rank(given: Optional[PerRank]) -> Mapping[int, Any]:
    if given is None:
        return {}
    if hasattr(given, "items"):
        return given  # type: ignore[return-value]  # a mapping by its form
    if hasattr(given, "tolist"):
        given = given.tolist()  # an array, or a tensor in the host's memory
    if isinstance(given, (str, bytes)):
        raise TypeError("is text; a value for each rank is needed")
    return dict(enumerate(given))


def _select(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The slowest of them, and others evenly spread from slow to fast; in order of rank."""
    if len(rows) <= MAX_RANKS:
        return rows
    # Without a time of its own a rank is as slow as it is behind.
    slow_first = sorted(rows, key=lambda row: (-(row[1] or 0), row[2] if row[2] is not None else math.inf))
    rest, room = slow_first[SLOWEST:], MAX_RANKS - SLOWEST
    spread = [rest[place * len(rest) // room] for place in range(room)]
    return sorted(slow_first[:SLOWEST] + spread)
