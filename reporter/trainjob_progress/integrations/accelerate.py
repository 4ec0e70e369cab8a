"""Accelerate: `Accelerator(log_with=ReportProgress(total_steps=N))`, then `accelerator.log(…, step=…)`."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import accelerate
from accelerate.tracking import GeneralTracker, on_main_process

from trainjob_progress import Reporter
from trainjob_progress.marks import RESTORE, SAVE

from . import Callback, mark, quietly

mark(accelerate.Accelerator, "save_state", SAVE)
mark(accelerate.Accelerator, "load_state", RESTORE)


class ReportProgress(Callback, GeneralTracker):
    """Reports the steps and values that `accelerator.log` is given, until `accelerator.end_training()`.

    Saves and restores are those of `accelerator.save_state` and `load_state`.

    `total_steps`: what is planned; `initial_step`: what was done before. Accelerate knows neither.
    """

    name = "trainjob_progress"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, total_steps: Optional[int] = None, *, initial_step: int = 0) -> None:
        super().__init__()
        self._total = total_steps
        self._initial_step = initial_step

    @property
    def tracker(self) -> Optional[Reporter]:
        """The reporter, for what has no place in `accelerator.log`: epochs, messages."""
        return self._reporter

    @on_main_process
    @quietly
    def start(self) -> None:
        self._begin(self._total, initial_step=self._initial_step, rank=0)

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Hyperparameters are not progress."""

    @on_main_process
    @quietly
    def log(self, values: Mapping[str, Any], step: Optional[int] = None, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.update(step=step, metrics=values)

    @on_main_process
    @quietly
    def finish(self) -> None:
        if self._reporter is not None:
            self._reporter.finish()
