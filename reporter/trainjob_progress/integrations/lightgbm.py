"""LightGBM: `lightgbm.train(…, callbacks=[ReportProgress()])`, or a scikit-learn estimator's `fit`."""

from __future__ import annotations

from typing import Any

from . import Callback, quietly


class ReportProgress(Callback):
    """Reports boosting rounds and the latest evaluation results, named `valid_0-binary_logloss`.

    LightGBM tells callbacks nothing when early stopping ends a run: call `finish()` after `train`.
    """

    order = 25  # before early_stopping (30), which ends a run in the middle of a round's callbacks
    before_iteration = False

    @quietly
    def __call__(self, env: Any) -> None:
        """Called by LightGBM after each round with its CallbackEnv."""
        # Rounds of an init_model count: begin_iteration is where this run goes on.
        reporter = self._reporter or self._begin(env.end_iteration, initial_step=env.begin_iteration)
        metrics = {f"{item[0]}-{item[1]}": item[2] for item in env.evaluation_result_list or ()}
        reporter.update(step=env.iteration + 1, metrics=metrics)
        if env.iteration + 1 >= env.end_iteration:
            self.finish()

    def finish(self) -> None:
        """The run is over: it was completed, or stopped early because it was good enough."""
        if self._reporter is not None:
            self._reporter.finish()
            self._reporter = None
