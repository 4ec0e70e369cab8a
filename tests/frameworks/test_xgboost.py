"""XGBoost trains for real; the document says what XGBoost says."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Preempted, Progress

xgboost = pytest.importorskip("xgboost")
from sklearn.datasets import load_breast_cancer  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from trainjob_progress.integrations.xgboost import ReportProgress  # noqa: E402

PARAMS = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"], "nthread": 1}


def matrices() -> tuple[Any, Any]:
    x, y = load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(x, y, random_state=0)
    return xgboost.DMatrix(train_x, train_y), xgboost.DMatrix(valid_x, valid_y)


def train(rounds: int, *, more: Any = (), **options: Any) -> tuple[Any, dict[str, Any]]:
    data, valid = matrices()
    evals: dict[str, Any] = {}
    callbacks = [ReportProgress(total_rounds=rounds), *more]
    model = xgboost.train(
        PARAMS, data, rounds, evals=[(valid, "valid")], evals_result=evals, verbose_eval=False,
        callbacks=callbacks, **options,
    )  # fmt: skip
    return model, evals


def test_rounds_and_metrics_are_xgboosts_own(progress: Progress) -> None:
    model, evals = train(150)
    assert progress.numbers == ("completed", model.num_boosted_rounds(), 150, 100)
    assert progress.last["metrics"] == {
        "valid-logloss": evals["valid"]["logloss"][-1],
        "valid-auc": evals["valid"]["auc"][-1],
    }
    progress.check_order()


def test_a_preempted_run_goes_on_where_it_was(progress: Progress) -> None:
    class Preempt(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch == 59:
                raise Preempted
            return False

    with pytest.raises(Preempted):
        train(100, more=[Preempt()])

    class Wait(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            progress.wait()
            return False

    first = xgboost.train(PARAMS, matrices()[0], 60)
    progress.begin_anew()
    model, _ = train(40, xgb_model=first, more=[Wait()])
    assert (progress.seen[0]["step"] in (60, 61), progress.seen[0]["totalSteps"]) == (True, 100)
    assert progress.numbers == ("completed", model.num_boosted_rounds(), 100, 100)


def test_early_stopping_is_a_stopped_run(progress: Progress) -> None:
    model, evals = train(500, early_stopping_rounds=3)
    _, step, total, _ = progress.numbers
    assert (progress.is_stopped, total) == (True, 500)
    assert step == model.num_boosted_rounds() < 500
    assert progress.last["metrics"]["valid-auc"] == evals["valid"]["auc"][-1]


def test_cross_validation_reports_the_mean_of_its_folds(progress: Progress) -> None:
    data, _ = matrices()
    table = xgboost.cv(PARAMS, data, 20, nfold=3, callbacks=[ReportProgress(20)], as_pandas=False)
    assert progress.numbers == ("completed", 20, 20, 100)
    assert progress.last["metrics"]["test-logloss"] == pytest.approx(table["test-logloss-mean"][-1])


def test_an_unknown_total_leaves_the_percentage_out(progress: Progress) -> None:
    model = xgboost.XGBClassifier(n_estimators=10, n_jobs=1, callbacks=[ReportProgress()])
    model.fit(*load_breast_cancer(return_X_y=True))
    assert progress.numbers == ("completed", 10, None, None)
