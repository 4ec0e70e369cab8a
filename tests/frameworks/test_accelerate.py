"""Accelerate's tracker: the document says what `accelerator.log` was given."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Progress

accelerate = pytest.importorskip("accelerate")
import torch  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from trainjob_progress.integrations.accelerate import ReportProgress  # noqa: E402


def train(tracker: ReportProgress, *, first: int, last: int, wait: Any = None) -> tuple[Any, float]:
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits", config={"lr": 0.01})
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x[:640], dtype=torch.float32) / 16, torch.tensor(y[:640]))
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=32))
    if wait is not None:
        wait()
    step, loss = first, torch.tensor(0.0)
    while step < last:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            accelerator.log({"loss": loss.detach()}, step=step)
            if step == last:
                break
    return accelerator, float(loss.detach())


def test_steps_and_metrics_are_what_was_logged(progress: Progress) -> None:
    accelerator, loss = train(ReportProgress(total_steps=40), first=0, last=40)
    accelerator.end_training()
    assert progress.numbers == ("completed", 40, 40, 100)
    assert progress.last["metrics"] == {"loss": pytest.approx(loss)}
    progress.check_order()


def test_a_resumed_run_goes_on_where_it_was(progress: Progress) -> None:
    train(ReportProgress(total_steps=40), first=0, last=25)
    progress.wait()
    progress.begin_anew()
    accelerator, _ = train(
        ReportProgress(total_steps=40, initial_step=25), first=25, last=40, wait=progress.wait
    )
    accelerator.end_training()
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (25, 40)
    assert progress.numbers == ("completed", 40, 40, 100)


def test_the_reporter_is_there_for_what_has_no_place_in_a_log(progress: Progress) -> None:
    accelerator, _ = train(ReportProgress(), first=0, last=5)
    accelerator.get_tracker("trainjob_progress").tracker.epoch(1, 2)
    accelerator.end_training()
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (1, 2)
