"""scikit-learn in a `partial_fit` loop: most of its estimators call nobody back."""

from __future__ import annotations

import warnings

import pytest

from trainjob_progress import report

from .conftest import Progress

pytest.importorskip("sklearn")
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier


def test_a_partial_fit_loop_reports_its_loss_and_score(progress: Progress) -> None:
    x, y = load_digits(return_X_y=True)
    model = MLPClassifier((32,), random_state=0)
    with report(total_steps=20) as r:
        for _ in range(20):
            model.partial_fit(x[:1400], y[:1400], classes=range(10))
            r.step(loss=model.loss_, accuracy=model.score(x[1400:], y[1400:]))
    assert progress.numbers == ("completed", model.t_ // 1400, 20, 100)  # t_: samples seen
    assert progress.last["metrics"] == {"loss": model.loss_, "accuracy": model.score(x[1400:], y[1400:])}
    assert progress.last["metrics"]["accuracy"] > 0.7


def test_a_resumed_run_goes_on_where_it_was(progress: Progress) -> None:
    x, y = load_digits(return_X_y=True)
    model = SGDClassifier(random_state=0)
    first = report(total_steps=20)
    for _ in range(8):
        model.partial_fit(x, y, classes=range(10))
        first.step()
    progress.wait()
    progress.begin_anew()
    with warnings.catch_warnings(), report(total_steps=20, initial_step=8) as r:
        progress.wait()
        for _ in range(12):
            model.partial_fit(x, y)
            r.step()
    assert progress.seen[0]["step"] == 8
    assert progress.numbers == ("completed", 20, 20, 100)
