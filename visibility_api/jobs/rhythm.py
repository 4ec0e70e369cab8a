"""How long a run may stand still without being stalled, as the pauses of this attempt show.

What each rule is worth: docs/decisions/0030.
"""

from __future__ import annotations

from visibility_api.reports.document import Progress
from visibility_api.reports.marks import EVALUATION, SECTIONS

from .estimate import Pace

# Pauses are about as long as before, seldom several times as long.
GAPS, LONG_GAPS, LONG_GAPS_FROM_S = 5.0, 3.0, 1500.0
# While its rhythm is not known a run loads and compiles; after its last step it evaluates and saves.
UNKNOWN_S = 1800.0
# A pause of a kind that was not seen yet (a first evaluation) may take as long as so many steps, or so large
# a share of the run so far.
UNSEEN_STEPS, UNSEEN_STEPS_SHARE = 500.0, 1 / 2
UNSEEN_SHARE, UNSEEN_LEAST_S, UNSEEN_MOST_S = 1 / 7, 300.0, 1800.0
# A quick rhythm is known sooner, once it was kept for many times as long as its longest pause.
QUICK_S, QUICK_TIMES, UNSEEN_LEAST_QUICK_S = 60.0, 20.0, 180.0
# Less once it has come through some epochs, or half of what there was to do: most kinds of pauses were seen.
# But half of three epochs may have shown only one evaluation.
SETTLED_EPOCHS, SETTLED_EPOCHS_OF_HALF = 3.0, 2.0
SETTLED_LEAST_S, SETTLED_MOST_S = 150.0, 1200.0
# Nearly all kinds of pauses were seen after some more; checkpoints may come in every fifth epoch only. So it
# is where the rhythm is quick and evaluations are marked.
MORE_EPOCHS, MORE_SHARE, MORE_LEAST_S, MORE_MOST_S = 6.0, 1 / 12, 120.0, 240.0
# In a section that is open, by its kind: an evaluation takes its time, and a loader belongs to the rhythm.
SECTIONS_S = {"evaluation": 86_400.0, "checkpointSave": 7200.0, "checkpointRestore": 7200.0}


def longest_pause_s(pace: Pace, report: Progress) -> float:
    """Seconds without an advance after `report`, the last one, that are no sign of a stall."""
    seen_s = _several_s(pace.longest_gap_s)
    position, end = pace.position, pace.end(report)
    if pace.forecast is None or position is None or (end is not None and position >= end):
        return max(seen_s, UNKNOWN_S)
    advanced_s = (pace.at - pace.origin).total_seconds() if pace.at and pace.origin else 0.0
    epochs = _epochs(pace, report)
    is_quick = pace.longest_gap_s <= QUICK_S and advanced_s >= QUICK_TIMES * pace.longest_gap_s
    if epochs >= MORE_EPOCHS or (is_quick and report.marks.spent_s[EVALUATION]):
        return max(seen_s, MORE_LEAST_S, min(MORE_MOST_S, MORE_SHARE * advanced_s))
    is_half_done = end is not None and position - pace.base >= end - position
    is_known_by_half = epochs >= SETTLED_EPOCHS_OF_HALF or report.epoch is None
    known_s = UNSEEN_SHARE * advanced_s
    if epochs >= SETTLED_EPOCHS or (is_half_done and is_known_by_half):
        return max(seen_s, SETTLED_LEAST_S, min(SETTLED_MOST_S, known_s))
    seen_s = max(seen_s, _several_s(pace.start_up_s))  # what loads long evaluates long
    least_s = UNSEEN_LEAST_QUICK_S if is_quick else UNSEEN_LEAST_S
    unseen_s = min(UNSEEN_STEPS * pace.forecast.unit_s, UNSEEN_STEPS_SHARE * advanced_s)
    return max(seen_s, least_s, min(UNSEEN_MOST_S, max(known_s, unseen_s)))


def section_s(report: Progress) -> float:
    """Seconds that the section may take which is open; 0 if none is."""
    section = report.marks.section
    return SECTIONS_S.get(SECTIONS[section], 0.0) if section is not None else 0.0


def _several_s(pause_s: float) -> float:
    several_s = GAPS * pause_s
    return several_s if several_s <= LONG_GAPS_FROM_S else max(LONG_GAPS_FROM_S, LONG_GAPS * pause_s)


def _epochs(pace: Pace, report: Progress) -> float:
    """How many the attempt has completed, as far as it reports epochs."""
    epoch, first = report.epoch, pace.base_epoch
    return epoch - first if epoch is not None and first is not None else 0.0
