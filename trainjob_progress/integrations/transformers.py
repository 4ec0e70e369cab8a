"""Hugging Face Transformers, and TRL: `Trainer(…, callbacks=[ReportProgress])`."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from transformers import TrainerCallback

from trainjob_progress import Reporter, report
from trainjob_progress.settings import find_sinks

from . import quietly

MAX_STEPS = 2**53  # the Trainer plans with sys.maxsize where it knows no end


class ReportProgress(TrainerCallback):
    """Reports optimizer steps, epochs and what the Trainer logs, under its own names."""

    def __init__(self) -> None:
        self._reporter: Optional[Reporter] = None

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        environ = dict(os.environ)
        if "kubeflow" in (args.report_to or ()):
            # The Trainer pushes by itself, and two would take turns: each push replaces the one before it.
            environ.pop("KUBEFLOW_TRAINER_SERVER_URL", None)
        self._reporter = report(
            state.max_steps if 0 < state.max_steps < MAX_STEPS else None,
            total_epochs=state.num_train_epochs if 0 < state.num_train_epochs < MAX_STEPS else None,
            initial_step=state.global_step,
            rank=0,
            sinks=find_sinks(environ),
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
            self._reporter = None
