"""CatBoost: `model.fit(…, callbacks=[ReportProgress(total_iterations=N)])`, on CPUs only: CatBoost's rule."""

from __future__ import annotations

from typing import Any, Optional

from . import Callback, quietly


class ReportProgress(Callback):
    """Reports iterations and the latest metrics, named `validation-Logloss`.

    `total_iterations`: what `iterations` is; CatBoost does not tell its callbacks. Nor does it say when its
    overfitting detector ends a run: call `finish()` after `fit`.
    """

    def __init__(self, total_iterations: Optional[int] = None) -> None:
        self._total = total_iterations

    def after_iteration(self, info: Any) -> bool:
        self._report(info)
        return True  # False would stop the training

    @quietly
    def _report(self, info: Any) -> None:
        step = info.iteration  # of the run, counted from 1; goes on where a snapshot ended
        reporter = self._reporter or self._begin(self._total, initial_step=step - 1)
        metrics = {
            f"{data}-{name}": values[-1]
            for data, log in info.metrics.items()
            for name, values in log.items()
            if values
        }
        reporter.update(step=step, metrics=metrics)
        if self._total is not None and step >= self._total:
            self.finish()

    def finish(self) -> None:
        """The run is over: it was completed, or stopped early because it was good enough."""
        if self._reporter is not None:
            self._reporter.finish()
            self._reporter = None
