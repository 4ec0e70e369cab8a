"""Progress of a training run, for whoever asks: three lines in a loop, no dependency, no cost.

from trainjob_progress import report

with report(total_steps=1000) as r:
    for batch in loader:
        r.step(loss=train_on(batch))
"""

# `typing` is imported for type checkers alone, here as in every module that all this needs: importing takes
# as little time as it may. So `typing.get_type_hints` finds no hints, in place of a NameError.
from .loops import adopt, checkpointing, current, evaluating, report, report_metrics, restoring, track
from .reporter import Reporter
from .tracked import Track

__all__ = [
    "Reporter",
    "Track",
    "adopt",
    "checkpointing",
    "current",
    "evaluating",
    "report",
    "report_metrics",
    "restoring",
    "track",
]

for _name in __all__:
    for _one in (globals()[_name], *vars(globals()[_name]).values()):
        if callable(_one):
            _one.__no_type_check__ = True
del _name, _one
