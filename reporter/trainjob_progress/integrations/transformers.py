"""Hugging Face Transformers, and TRL: `Trainer(…, callbacks=[ReportProgress])`."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from transformers import TrainerCallback

from . import Callback, quietly

MAX_STEPS = 2**53  # the Trainer plans with sys.maxsize where it knows no end


class ReportProgress(Callback, TrainerCallback):
    """Reports optimizer steps, epochs and what the Trainer logs, under its own names."""

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._begin(
            state.max_steps if 0 < state.max_steps < MAX_STEPS else None,
            total_epochs=state.num_train_epochs if 0 < state.num_train_epochs < MAX_STEPS else None,
            initial_step=state.global_step,
            rank=0,
            # The Trainer pushes by itself, and two would take turns: each push replaces the one before it.
            without_push="kubeflow" in (args.report_to or ()),
        )

    @quietly
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.update(step=state.global_step, epoch=state.epoch)

    @quietly
    def on_log(
        self, args: Any, state: Any, control: Any, logs: Optional[Mapping[str, Any]] = None, **_: Any
    ) -> None:
        if self._reporter is not None:
            metrics = {name: value for name, value in (logs or {}).items() if name != "epoch"}
            self._reporter.update(step=state.global_step, epoch=state.epoch, metrics=metrics)

    @quietly
    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.message("evaluating")  # a sign of life, however long it takes

    @quietly
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.message("")

    @quietly
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.finish()
