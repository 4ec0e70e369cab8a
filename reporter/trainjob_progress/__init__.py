"""Progress of a training run, for whoever asks: three lines in a loop, no dependency, no cost.

from trainjob_progress import report

with report(total_steps=1000) as r:
    for batch in loader:
        r.step(loss=train_on(batch))
"""

# `typing` is imported for type checkers alone, here as in every module that all this needs: it would take a
# third of the time that importing the package may take.
from .loops import checkpointing, current, evaluating, report, report_metrics, restoring, track
from .reporter import Reporter
from .tracked import Track

__all__ = [
    "Reporter",
    "Track",
    "checkpointing",
    "current",
    "evaluating",
    "report",
    "report_metrics",
    "restoring",
    "track",
]
