"""CatBoost trains for real; the document says what CatBoost says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Progress

catboost = pytest.importorskip("catboost")
from sklearn.datasets import load_breast_cancer  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from trainjob_progress.integrations.catboost import ReportProgress  # noqa: E402


def fit(iterations: int, callbacks: list[Any], **options: Any) -> Any:
    x, y = load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(x, y, random_state=0)
    model = catboost.CatBoostClassifier(
        iterations=iterations, depth=4, thread_count=1, random_seed=0, verbose=False, custom_metric=["AUC"],
        **options,
    )  # fmt: skip
    return model.fit(train_x, train_y, eval_set=(valid_x, valid_y), callbacks=callbacks, use_best_model=False)


def test_iterations_and_metrics_are_catboosts_own(progress: Progress) -> None:
    model = fit(120, [ReportProgress(total_iterations=120)])
    evals = model.get_evals_result()
    assert progress.numbers == ("completed", model.tree_count_, 120, 100)
    metrics = progress.last["metrics"]
    assert metrics["learn-Logloss"] == pytest.approx(evals["learn"]["Logloss"][-1])
    assert metrics["validation-Logloss"] == pytest.approx(evals["validation"]["Logloss"][-1])
    assert metrics["validation-AUC"] == pytest.approx(evals["validation"]["AUC"][-1])
    progress.check_order()


def test_a_stopped_run_goes_on_from_its_snapshot(progress: Progress, tmp_path: Path) -> None:
    class StopAt60:
        def after_iteration(self, info: Any) -> bool:
            return bool(info.iteration < 60)

    class Wait:
        def after_iteration(self, info: Any) -> bool:
            progress.wait()
            return True

    snapshot = {"save_snapshot": True, "snapshot_file": str(tmp_path / "snapshot"), "snapshot_interval": 0}
    fit(100, [ReportProgress(100), StopAt60()], **snapshot)
    progress.begin_anew()
    model = fit(100, [ReportProgress(100), Wait()], **snapshot)
    assert progress.seen[0]["step"] in (60, 61)
    assert progress.numbers == ("completed", model.tree_count_, 100, 100)


def test_the_overfitting_detectors_end_is_a_stopped_run(progress: Progress) -> None:
    report_progress = ReportProgress(1000)
    model = fit(1000, [report_progress], learning_rate=0.9, early_stopping_rounds=3)
    report_progress.finish()
    assert (progress.is_stopped, progress.last["step"]) == (True, model.tree_count_)
    assert model.tree_count_ < 1000
