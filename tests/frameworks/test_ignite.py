"""PyTorch Ignite trains for real; the document says what its engine says."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Preempted, Progress

pytest.importorskip("ignite")
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, RunningAverage
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from trainjob_progress.integrations.ignite import ReportProgress


def loader() -> DataLoader[Any]:
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x[:640], dtype=torch.float32) / 16, torch.tensor(y[:640]))
    return DataLoader(data, batch_size=32)


def trainer() -> tuple[Engine, torch.nn.Module]:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy), model


def test_iterations_epochs_and_metrics_are_the_engines_own(progress: Progress) -> None:
    engine, model = trainer()
    RunningAverage(output_transform=lambda loss: loss).attach(engine, "running_loss")
    reporter = ReportProgress(metrics_from=lambda loss: {"loss": loss}).attach(engine)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})

    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate() -> None:
        evaluator.run(loader())
        reporter.update(evaluator.state.metrics)

    state = engine.run(loader(), max_epochs=3)
    assert progress.numbers == ("completed", state.iteration, state.epoch_length * state.max_epochs, 100)
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (3, 3)
    assert progress.last["metrics"] == {
        "loss": pytest.approx(state.output),
        "running_loss": pytest.approx(state.metrics["running_loss"]),
        "accuracy": pytest.approx(evaluator.state.metrics["accuracy"]),
    }
    progress.check_order()


def test_an_exception_passes_through_and_a_resumed_run_goes_on(progress: Progress) -> None:
    engine, _ = trainer()
    ReportProgress().attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED(once=50), fail)
    with pytest.raises(Preempted):
        engine.run(loader(), max_epochs=4)
    progress.begin_anew()
    resumed, _ = trainer()
    ReportProgress().attach(resumed)
    resumed.add_event_handler(Events.STARTED, progress.wait)
    resumed.load_state_dict({"epoch_length": 20, "max_epochs": 4, "iteration": 40})
    state = resumed.run(loader())
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (40, 80)
    assert progress.numbers == ("completed", state.iteration, 80, 100)


def test_a_terminated_run_is_stopped(progress: Progress) -> None:
    engine, _ = trainer()
    ReportProgress().attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED(once=30), lambda e: e.terminate())
    engine.run(loader(), max_epochs=4)
    assert progress.is_stopped
    assert progress.numbers == ("completed", 30, 80, 37)


def fail(engine: Engine) -> None:
    raise Preempted
