"""PaddlePaddle's high-level API: `model.fit(…, callbacks=[ReportProgress()])`."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import paddle

from trainjob_progress.marks import EVALUATION, RESTORE, SAVE

from . import Callback, mark, quietly

mark(paddle.Model, "save", SAVE)
mark(paddle.Model, "load", RESTORE)


class ReportProgress(Callback, paddle.callbacks.Callback):
    """Reports batches, epochs and Paddle's own logs; an evaluation's as `eval_acc`.

    `initial_epoch`: epochs done before, when training resumes from a checkpoint: Paddle counts from 0 again.
    """

    def __init__(self, initial_epoch: int = 0) -> None:
        super().__init__()
        self._initial_epoch = initial_epoch
        self._step = 0

    @quietly
    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        steps, epochs = self.params.get("steps"), self._initial_epoch + self.params["epochs"]
        self._step = self._initial_epoch * (steps or 0)
        rank = paddle.distributed.get_rank() or None  # 0 also where nothing is distributed: look further
        self._begin(
            epochs * steps if steps else None, total_epochs=epochs, initial_step=self._step, rank=rank
        )

    @quietly
    def on_train_batch_end(self, step: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._step += 1
            self._reporter.update(step=self._step, metrics=_flatten(logs) if self._reporter.is_due else None)

    @quietly
    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._reporter.update(epoch=self._initial_epoch + epoch + 1, metrics=_flatten(logs))

    @quietly
    def on_eval_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._open(EVALUATION)

    @quietly
    def on_eval_batch_end(self, step: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._reporter.message("evaluating")  # a sign of life, however long it takes

    @quietly
    def on_eval_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._close(EVALUATION)
        if self._reporter is not None:
            metrics = {f"eval_{name}": value for name, value in _flatten(logs).items()}
            self._reporter.update(message="", metrics=metrics)

    @quietly
    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        if self._reporter is not None:
            self._reporter.finish()


def _flatten(logs: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """Paddle's logs without its counters; a loss comes as a list of one."""
    return {
        name: value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
        for name, value in (logs or {}).items()
        if name not in ("step", "batch_size")
    }
