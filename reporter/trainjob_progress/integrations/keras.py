"""Keras 3: `model.fit(…, callbacks=[ReportProgress()])`."""

from __future__ import annotations

import threading
from typing import Any, Mapping, Optional

import keras

from trainjob_progress.marks import EVALUATION, RESTORE, SAVE

from . import Callback, mark, quietly

# A callback is not told of what others save.
mark(keras.Model, "save", SAVE)
mark(keras.Model, "save_weights", SAVE)
mark(keras.callbacks.BackupAndRestore, "_load_model", RESTORE)

_turn = threading.Lock()  # of batches that have ended; not the callback's own, which may be copied


class ReportProgress(Callback, keras.callbacks.Callback):
    """Reports batches, epochs and Keras's own logs. A step is a batch, as in Keras.

    Give `model.fit` its `initial_epoch` when training resumes, and the count goes on from there.
    """

    # Batches may end on threads of Keras's and in another order, as they do without a callback, and with a
    # lone one that is in no list. Else each step would wait until its numbers are there.
    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self._first = 0  # steps done before this epoch
        self._step = 0

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._reporter = None  # the first epoch starts it: only then is it known where this run begins

    @quietly
    def on_epoch_begin(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        if self._reporter is None:
            self._step = epoch * steps if steps else 0
            total = epochs * steps if epochs and steps else None
            self._begin(total, total_epochs=epochs, initial_step=self._step)
        self._first = self._step

    @quietly
    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            # Not one more: with steps_per_execution several end at once, and Keras rounds their number up.
            step = self._first + min(batch + 1, self.params.get("steps") or batch + 1)
            with _turn:
                if step >= self._step:
                    self._step = step
                    self._reporter.update(step=step, metrics=logs)

    @quietly
    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            total = (
                epochs * steps if epochs and steps else None
            )  # a dataset's length is known after one epoch
            # Called at the end of an epoch that was cut short as well.
            is_cut = steps and self._step - self._first < steps
            self._reporter.update(epoch=None if is_cut else epoch + 1, total_steps=total, metrics=logs)

    @quietly
    def on_test_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._open(EVALUATION)

    @quietly
    def on_test_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._reporter.message("evaluating")  # a sign of life, however long it takes

    @quietly
    def on_test_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._close(EVALUATION)
        if self._reporter is None:
            return
        if self._reporter.is_active:
            self._reporter.message("")
        else:  # an evaluation after the training
            self._reporter.update({f"eval_{name}": value for name, value in (logs or {}).items()})

    @quietly
    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._reporter.finish()
