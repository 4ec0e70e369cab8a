"""Keras trains for real; the document says what Keras says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Preempted, Progress

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
from sklearn.datasets import load_digits  # noqa: E402

from trainjob_progress.integrations.keras import ReportProgress  # noqa: E402


def digits() -> tuple[Any, Any]:
    x, y = load_digits(return_X_y=True)
    return x[:640].astype("float32") / 16, y[:640]


def network() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def test_batches_epochs_and_logs_are_kerass_own(progress: Progress) -> None:
    x, y = digits()
    history = network().fit(
        x, y, batch_size=32, epochs=3, validation_split=0.2, verbose=0, callbacks=[ReportProgress()]
    )
    steps = history.params["steps"] * history.params["epochs"]
    assert progress.numbers == ("completed", steps, steps, 100)
    assert steps == 16 * 3
    assert (progress.last["epoch"], progress.last["totalEpochs"]) == (3, 3)
    expected = {name: pytest.approx(values[-1]) for name, values in history.history.items()}
    assert progress.last["metrics"] == expected
    assert set(expected) == {"accuracy", "loss", "val_accuracy", "val_loss"}
    progress.check_order()


def test_batches_that_end_on_kerass_threads_never_count_down(progress: Progress) -> None:
    callback = ReportProgress()
    assert callback.async_safe  # with [it], Keras dispatches as without us; a lone callback it never asks
    callback.set_params({"steps": 44, "epochs": 1})
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(2, {"loss": 0.3})
    callback.on_train_batch_end(1, {"loss": 0.5})
    callback.on_train_end()
    assert (progress.last["step"], progress.last["metrics"]) == (3, {"loss": 0.3})


@pytest.mark.parametrize("is_list", [True, False])
def test_no_document_of_a_training_on_threads_counts_down(progress: Progress, is_list: bool) -> None:
    x, y = digits()
    callback = ReportProgress()
    callbacks = [callback] if is_list else callback
    network().fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    assert progress.numbers == ("completed", 640, 640, 100)
    progress.check_order()


def test_a_preempted_run_goes_on_where_it_was(progress: Progress, tmp_path: Path) -> None:
    class Preempt(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            progress.wait()
            if epoch == 2:
                raise Preempted

    x, y = digits()
    checkpoint = str(tmp_path / "model.keras")
    save = keras.callbacks.ModelCheckpoint(checkpoint)
    with pytest.raises(Preempted):
        network().fit(x, y, batch_size=64, epochs=4, verbose=0, callbacks=[ReportProgress(), save, Preempt()])
    progress.begin_anew()
    model = keras.saving.load_model(checkpoint)
    wait = keras.callbacks.LambdaCallback(on_epoch_begin=progress.wait)
    model.fit(x, y, batch_size=64, epochs=4, initial_epoch=2, verbose=0, callbacks=[ReportProgress(), wait])
    assert (progress.seen[0]["step"], progress.seen[0]["totalSteps"]) == (20, 40)
    assert progress.numbers == ("completed", 40, 40, 100)


def test_a_dataset_of_unknown_length_has_a_total_after_its_first_epoch(progress: Progress) -> None:
    x, y = digits()

    class Wait(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                progress.wait()

    def batches() -> Any:
        for start in range(0, 640, 64):
            yield x[start : start + 64], y[start : start + 64]

    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return batches()

    model = network()
    model.fit(
        DataLoader(Stream(), batch_size=None), epochs=2, verbose=0, callbacks=[ReportProgress(), Wait()]
    )
    assert "totalSteps" not in progress.seen[0]
    state, step, _, percentage = progress.numbers
    assert (state, step, percentage) == ("completed", 20, 100)


def test_early_stopping_is_a_stopped_run(progress: Progress) -> None:
    x, y = digits()
    stop = keras.callbacks.EarlyStopping("loss", min_delta=100, patience=0)
    history = network().fit(x, y, epochs=50, verbose=0, callbacks=[stop, ReportProgress()])
    _, step, total, _ = progress.numbers
    assert (progress.is_stopped, total) == (True, 1000)
    assert step == len(history.epoch) * 20 < 1000


def test_an_epoch_that_was_cut_short_is_not_counted(progress: Progress) -> None:
    """Seen: Keras calls its end all the same."""

    class StopWithinAnEpoch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 3

    x, y = digits()
    callbacks = [ReportProgress(), StopWithinAnEpoch()]
    network().fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=callbacks)
    assert (progress.last["step"], progress.last["ending"]) == (4, "stopped")
    assert "epoch" not in progress.last


def test_several_steps_an_execution_are_all_counted(progress: Progress) -> None:
    x, y = digits()
    model = network()
    model.compile("adam", "mse", steps_per_execution=4)
    model.fit(x, keras.ops.one_hot(y, 10), batch_size=64, epochs=1, verbose=0, callbacks=[ReportProgress()])
    assert progress.numbers == ("completed", 10, 10, 100)
