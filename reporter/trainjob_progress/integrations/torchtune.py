"""torchtune: in a recipe's configuration, without a line of code,

    metric_logger:
      _component_: trainjob_progress.integrations.torchtune.ReportProgress
      total_steps: 1000

Follows torchtune's MetricLoggerInterface, a protocol: there is nothing to import.
"""

from __future__ import annotations

import sys
from typing import Any, Mapping, Optional

from trainjob_progress import Reporter
from trainjob_progress.marks import RESTORE, SAVE

from . import Callback, mark, quietly


class ReportProgress(Callback):
    """Reports the steps and values that a recipe logs.

    `total_steps`: optimizer steps planned. Without it the recipe's `max_steps_per_epoch` times `epochs` is
    taken where both are set.
    """

    def __init__(self, total_steps: Optional[int] = None, log_dir: Optional[str] = None, **_: Any) -> None:
        self._total = total_steps

    @quietly
    def log_config(self, config: Any) -> None:
        """What the recipe calls first, with all of its configuration."""
        _mark_checkpointers()
        steps, epochs = config.get("max_steps_per_epoch"), config.get("epochs")
        if self._total is None and steps and epochs:
            self._total = int(steps) * int(epochs)
        self._start(1).update(total_epochs=epochs)

    @quietly
    def log(self, name: str, data: Any, step: int) -> None:
        self._start(step).update(step=step, metrics={name: data})

    @quietly
    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        self._start(step).update(step=step, metrics=payload)

    @quietly
    def close(self) -> None:
        if self._reporter is not None:
            self._reporter.finish()

    def _start(self, step: int) -> Reporter:
        return self._reporter or self._begin(self._total, initial_step=max(step - 1, 0))


def _mark_checkpointers() -> None:
    for one in tuple(vars(sys.modules.get("torchtune.training", object)).values()):
        if isinstance(one, type) and hasattr(one, "save_checkpoint") and hasattr(one, "load_checkpoint"):
            mark(one, "save_checkpoint", SAVE)
            mark(one, "load_checkpoint", RESTORE)
