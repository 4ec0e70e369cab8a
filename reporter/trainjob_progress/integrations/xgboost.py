"""XGBoost: `xgboost.train(…, num_boost_round=N, callbacks=[ReportProgress(total_rounds=N)])`."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import xgboost

from . import Callback, quietly


class ReportProgress(Callback, xgboost.callback.TrainingCallback):
    """Reports boosting rounds and the latest evaluation results, named `validation-rmse`.

    `total_rounds`: what `num_boost_round` (or `n_estimators`) is; XGBoost does not tell its callbacks.
    """

    def __init__(self, total_rounds: Optional[int] = None) -> None:
        super().__init__()
        self._total = total_rounds
        self._first = 0

    def before_training(self, model: Any) -> Any:
        self._start(model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        self._report(epoch, evals_log)
        return False  # True would stop the training

    def after_training(self, model: Any) -> Any:
        if self._reporter is not None:
            self._reporter.finish()
        return model

    @quietly
    def _start(self, model: Any) -> None:
        rank = xgboost.collective.get_rank() if xgboost.collective.is_distributed() else None
        # A model to go on from has its rounds already; in `cv` there are several, and none of them has.
        self._first = model.num_boosted_rounds() if hasattr(model, "num_boosted_rounds") else 0
        total = None if self._total is None else self._first + self._total
        self._begin(total, initial_step=self._first, rank=rank)

    @quietly
    def _report(self, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
        if self._reporter is None:
            return
        metrics = {
            f"{data}-{name}": _latest(values)
            for data, log in evals_log.items()
            for name, values in log.items()
        }
        self._reporter.update(step=self._first + epoch + 1, metrics=metrics)


def _latest(values: Any) -> Any:
    value = values[-1]
    return value[0] if isinstance(value, tuple) else value  # in `cv`: mean and standard deviation
