"""For how long a run may stand still and still be about to go on, by what was seen of this attempt."""

from __future__ import annotations

from .document import Progress
from .estimate import Pace

# Pauses are about as long as before, seldom several times as long.
GAPS, LONG_GAPS, LONG_GAPS_FROM_S = 5.0, 3.0, 1500.0
# While nothing is known of its rhythm it loads and compiles; after its last step it evaluates and saves.
UNKNOWN_S = 1800.0
# A pause of a kind that was not seen yet (a first evaluation) may take as long as half of the run so far.
UNSEEN_SHARE, UNSEEN_LEAST_S, UNSEEN_MOST_S = 1 / 2, 300.0, 1800.0
# Less once it has come through some epochs, or half of what there was to do: most kinds of pauses were seen.
# Half of three epochs may have shown a single evaluation, though.
SETTLED_EPOCHS, SETTLED_EPOCHS_OF_HALF = 3.0, 2.0
SETTLED_SHARE, SETTLED_LEAST_S, SETTLED_MOST_S = 1 / 6, 120.0, 600.0
# Nothing is done in every tenth epoch only that takes many times as long as all other pauses.
KNOWN_EPOCHS, KNOWN_LEAST_S = 10.0, 90.0


def longest_pause_s(pace: Pace, report: Progress) -> float:
    """Seconds without an advance after `report`, the last one, that are no sign of a stall."""
    seen_s = GAPS * pace.longest_gap_s
    if seen_s > LONG_GAPS_FROM_S:
        seen_s = max(LONG_GAPS_FROM_S, LONG_GAPS * pace.longest_gap_s)
    position, end = pace.position, pace.end(report)
    if pace.forecast is None or position is None or (end is not None and position >= end):
        return max(seen_s, UNKNOWN_S)
    advanced_s = (pace.at - pace.origin).total_seconds() if pace.at and pace.origin else 0.0
    epochs = _epochs(pace, report)
    if epochs >= KNOWN_EPOCHS:
        return max(seen_s, KNOWN_LEAST_S)
    is_half_done = end is not None and position - pace.base >= end - position
    is_known_by_half = epochs >= SETTLED_EPOCHS_OF_HALF or report.epoch is None
    if epochs >= SETTLED_EPOCHS or (is_half_done and is_known_by_half):
        return max(seen_s, SETTLED_LEAST_S, min(SETTLED_MOST_S, SETTLED_SHARE * advanced_s))
    return max(seen_s, UNSEEN_LEAST_S, min(UNSEEN_MOST_S, UNSEEN_SHARE * advanced_s))


def _epochs(pace: Pace, report: Progress) -> float:
    """How many the attempt has come through, as far as it reports that."""
    epoch, first = report.epoch, pace.base_epoch
    return epoch - first if epoch is not None and first is not None else 0.0
