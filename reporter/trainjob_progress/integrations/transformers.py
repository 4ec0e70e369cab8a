"""Hugging Face Transformers, and TRL: `Trainer(…, callbacks=[ReportProgress])`."""

from __future__ import annotations

import sys
from typing import Any, Mapping, Optional

from transformers import TrainerCallback

from trainjob_progress.marks import EVALUATION, RESTORE, SAVE

from . import Callback, mark, quietly

MAX_STEPS = 2**53  # the Trainer plans with sys.maxsize where it knows no end


class ReportProgress(Callback, TrainerCallback):
    """Reports optimizer steps, epochs and what the Trainer logs, under its own names.

    Marks what training waits for: the next batch until `on_step_begin`, evaluations until `on_evaluate`,
    saves until `on_save`. `control` says which of these comes. What does not come after all does not count.
    """

    def __init__(self) -> None:
        for name in ("_load_from_checkpoint", "_load_optimizer_and_scheduler"):  # before there is a run
            mark(getattr(sys.modules.get("transformers.trainer"), "Trainer", None), name, RESTORE)

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        rank = 0 if state.is_world_process_zero else getattr(args, "process_index", 0)
        if not (rank or state.is_world_process_zero):
            return
        self._begin(
            state.max_steps if 0 < state.max_steps < MAX_STEPS else None,
            total_epochs=state.num_train_epochs if 0 < state.num_train_epochs < MAX_STEPS else None,
            initial_step=state.global_step,
            rank=rank,
            # The Trainer pushes by itself, and two would take turns: each push replaces the one before it.
            without_push="kubeflow" in (args.report_to or ()),
        )
        if getattr(args, "eval_on_start", False):
            self._open(EVALUATION)

    @quietly
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._close()
        self._wait()

    @quietly
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._close()
        self._go_on()

    @quietly
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._reporter.update(step=state.global_step, epoch=state.epoch)
            self._wait()
            self._open_next(control)

    @quietly
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._go_on()
        self._open_next(control)

    def _open_next(self, control: Any) -> None:
        if control.should_evaluate:
            self._open(EVALUATION)
        elif control.should_save:
            self._open(SAVE)

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
            if self._section is None:
                self._open(EVALUATION)  # the program has asked for it
            self._reporter.message("evaluating")  # a sign of life, however long it takes

    @quietly
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._close(EVALUATION)
            self._reporter.message("")
            if control.should_save or getattr(args, "save_strategy", "") == "best":
                self._open(SAVE)

    @quietly
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._close(SAVE) and self._reporter is not None:
            self._reporter.checkpointed(state.global_step)

    @quietly
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter is not None:
            self._close()
            self._go_on()
            self._reporter.finish()
