"""Lightning: `Trainer(callbacks=[ReportProgress()])`, from `lightning` or from `pytorch_lightning`."""

from __future__ import annotations

import math
import sys
from typing import Any, Mapping

from trainjob_progress.marks import EVALUATION, RESTORE, SAVE

from . import Callback as ReportingCallback, mark, quietly

# Both packages may be installed, and a Trainer takes callbacks of its own package: follow the one in use.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning.callbacks import Callback
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback


class ReportProgress(ReportingCallback, Callback):
    """Reports optimizer steps, epochs, and the metrics that the module logs.

    Marks validations, the waits for batches, and what `Trainer.save_checkpoint` and the strategy's
    `load_checkpoint` take: callbacks are told of the beginnings of these alone.
    """

    @quietly
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        mark(type(trainer), "save_checkpoint", SAVE, _find_saving)
        mark(type(trainer.strategy), "load_checkpoint", RESTORE)

    @quietly
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        steps, epochs = trainer.estimated_stepping_batches, trainer.max_epochs
        self._begin(
            int(steps) if math.isfinite(steps) and steps > 0 else None,
            total_epochs=epochs if epochs and epochs > 0 else None,  # -1 = until something else ends it
            initial_step=trainer.global_step,
            rank=trainer.global_rank,
        )

    @quietly
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._wait()

    @quietly
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._go_on()

    @quietly
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._reporter is not None:
            # Asking Lightning for its metrics costs more than everything else here.
            metrics = trainer.callback_metrics if self._reporter.is_due else None
            self._reporter.update(step=trainer.global_step, metrics=metrics)
            self._wait()

    @quietly
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._go_on()
        # Called at the end of an epoch that was cut short as well.
        self._update(trainer, epoch=trainer.current_epoch + 1 if trainer.is_last_batch else None)

    @quietly
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._open(EVALUATION)

    @quietly
    def on_validation_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._reporter is not None:
            self._reporter.message("validating")  # a sign of life, however long it takes

    @quietly
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._close(EVALUATION)
        self._update(trainer, message="")

    @quietly
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._update(trainer)  # a test after the training belongs to its run

    @quietly
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._reporter is not None:
            if getattr(trainer, "received_sigterm", False):
                self._reporter.finish("preempted")
            elif isinstance(exception, KeyboardInterrupt):
                self._reporter.finish("stopped", "KeyboardInterrupt")  # Lightning's own word: interrupted
            else:
                self._reporter._end(exception)

    @quietly
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._update(trainer)
        if self._reporter is not None:
            self._reporter.finish()

    def _update(self, trainer: Any, **fields: Any) -> None:
        if self._reporter is not None:
            metrics: Mapping[str, Any] = trainer.callback_metrics
            self._reporter.update(step=trainer.global_step, metrics=metrics, **fields)


def _find_saving(trainer: Any) -> list[Any]:
    """By which a checkpoint of AsyncCheckpointIO is complete: its thread takes one task at a time."""
    saving = trainer.strategy.checkpoint_io
    executor = getattr(saving, "_executor", None)
    return [executor.submit(_raise_error, saving)] if executor is not None else []


def _raise_error(saving: Any) -> None:
    """Of a save that has failed: it keeps that instead of raising."""
    error = getattr(saving, "_error", None)
    if error is not None:
        raise error
