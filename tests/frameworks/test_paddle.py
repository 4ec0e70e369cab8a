"""PaddlePaddle trains for real; the document says what Paddle says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Preempted, Progress

paddle = pytest.importorskip("paddle")
from sklearn.datasets import load_digits  # noqa: E402

from trainjob_progress.integrations.paddle import ReportProgress  # noqa: E402


def dataset() -> Any:
    x, y = load_digits(return_X_y=True)
    return paddle.io.TensorDataset(
        [paddle.to_tensor(x[:640].astype("float32") / 16), paddle.to_tensor(y[:640].reshape(-1, 1))]
    )


def network() -> Any:
    paddle.seed(0)
    model = paddle.Model(paddle.nn.Linear(64, 10))
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
    return model


class Record(paddle.callbacks.Callback):  # type: ignore[misc,name-defined]
    """What Paddle itself says last."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs = dict(logs)

    def on_eval_end(self, logs: Any = None) -> None:
        self.eval_logs = dict(logs)


def test_batches_epochs_and_logs_are_paddles_own(progress: Progress) -> None:
    record = Record()
    network().fit(
        dataset(), dataset(), batch_size=32, epochs=3, verbose=0, callbacks=[ReportProgress(), record]
    )
    assert progress.numbers == ("completed", 60, 60, 100)
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (3, 3)
    metrics = progress.last["metrics"]
    assert metrics["loss"] == pytest.approx(record.logs["loss"][0])
    assert metrics["acc"] == pytest.approx(record.logs["acc"])
    assert metrics["eval_loss"] == pytest.approx(record.eval_logs["loss"][0])
    assert metrics["eval_acc"] == pytest.approx(record.eval_logs["acc"])
    progress.check_order()


def test_a_preempted_run_goes_on_where_it_was(progress: Progress, tmp_path: Path) -> None:
    class Preempt(paddle.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                self.model.save(str(tmp_path / "checkpoint"))
                raise Preempted

    class Wait(paddle.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_begin(self, logs: Any = None) -> None:
            progress.wait()

    with pytest.raises(Preempted):
        network().fit(dataset(), batch_size=64, epochs=4, verbose=0, callbacks=[ReportProgress(), Preempt()])
    progress.begin_anew()
    model = network()
    model.load(str(tmp_path / "checkpoint"), reset_optimizer=True)
    callbacks = [ReportProgress(initial_epoch=2), Wait()]
    model.fit(dataset(), batch_size=64, epochs=2, verbose=0, callbacks=callbacks)
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (20, 40)
    assert progress.numbers == ("completed", 40, 40, 100)
    assert progress.last["epoch"] == 4
