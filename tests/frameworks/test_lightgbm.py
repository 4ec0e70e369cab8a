"""LightGBM trains for real; the document says what LightGBM says."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Preempted, Progress

lightgbm = pytest.importorskip("lightgbm")
from sklearn.datasets import load_breast_cancer  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from trainjob_progress.integrations.lightgbm import ReportProgress  # noqa: E402

PARAMS = {"objective": "binary", "metric": ["binary_logloss", "auc"], "verbosity": -1, "num_threads": 1}


def datasets() -> tuple[Any, Any]:
    x, y = load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(x, y, random_state=0)
    train = lightgbm.Dataset(train_x, train_y, free_raw_data=False)
    return train, train.create_valid(valid_x, valid_y)


def test_rounds_and_metrics_are_lightgbms_own(progress: Progress) -> None:
    train, valid = datasets()
    evals: dict[str, Any] = {}
    callbacks = [lightgbm.record_evaluation(evals), ReportProgress()]
    model = lightgbm.train(PARAMS, train, 200, valid_sets=[valid], valid_names=["valid"], callbacks=callbacks)
    assert progress.numbers == ("completed", model.current_iteration(), 200, 100)
    assert progress.last["metrics"] == {
        "valid-binary_logloss": evals["valid"]["binary_logloss"][-1],
        "valid-auc": evals["valid"]["auc"][-1],
    }
    progress.check_order()


def test_a_preempted_run_goes_on_where_it_was(progress: Progress) -> None:
    def preempt(env: Any) -> None:
        if env.iteration == 59:
            raise Preempted

    train, valid = datasets()
    with pytest.raises(Preempted):
        lightgbm.train(PARAMS, train, 100, valid_sets=[valid], callbacks=[ReportProgress(), preempt])
    first = lightgbm.train(PARAMS, train, 60)
    progress.begin_anew()
    lightgbm.train(
        PARAMS, train, 40, valid_sets=[valid], init_model=first, callbacks=[ReportProgress(), progress.wait]
    )
    assert (progress.seen[0]["step"] in (60, 61), progress.seen[0]["totalSteps"]) == (True, 100)
    assert progress.numbers == ("completed", 100, 100, 100)


def test_early_stopping_is_a_stopped_run(progress: Progress) -> None:
    train, valid = datasets()
    report_progress = ReportProgress()
    evals: dict[str, Any] = {}
    record = lightgbm.record_evaluation(evals)
    callbacks = [report_progress, lightgbm.early_stopping(3, verbose=False), record]
    lightgbm.train({**PARAMS, "learning_rate": 0.9}, train, 500, valid_sets=[valid], callbacks=callbacks)
    report_progress.finish()
    _, step, total, _ = progress.numbers
    assert (progress.is_stopped, total) == (True, 500)
    assert step == len(evals["valid_0"]["auc"]) < 500
    assert progress.last["metrics"]["valid_0-auc"] == evals["valid_0"]["auc"][-1]


def test_a_scikit_learn_estimator_reports_too(progress: Progress) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = lightgbm.LGBMClassifier(n_estimators=30, verbosity=-1, n_jobs=1)
    model.fit(x, y, eval_set=[(x, y)], callbacks=[ReportProgress()])
    assert progress.numbers == ("completed", 30, 30, 100)
    assert progress.last["metrics"] == {
        "training-binary_logloss": model.evals_result_["training"]["binary_logloss"][-1]
    }
