"""PyTorch Ignite: `ReportProgress().attach(trainer)`."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import ignite.distributed as idist
from ignite.engine import Engine, Events
from ignite.handlers import DiskSaver

from trainjob_progress.marks import SAVE

from . import Callback, mark, quietly

mark(DiskSaver, "__call__", SAVE)


class ReportProgress(Callback):
    """Reports iterations, epochs and the engine's metrics.

    `metrics_from`: makes named numbers out of the engine's output, such as `lambda loss: {"loss": loss}`. It
    is called when a report is due, not at every iteration.

    An exception is left to end the process, which is reported then: a handler for EXCEPTION_RAISED would keep
    it from being raised.
    """

    def __init__(self, metrics_from: Optional[Callable[[Any], Mapping[str, Any]]] = None) -> None:
        self._metrics_from = metrics_from

    def attach(self, engine: Engine) -> ReportProgress:
        """Report what `engine`, the one that trains, does. Attach metrics to it before, evaluators after."""
        engine.add_event_handler(Events.STARTED, self._start)
        engine.add_event_handler(Events.GET_BATCH_STARTED, self._wait)
        engine.add_event_handler(Events.GET_BATCH_COMPLETED, self._go_on)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._count)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._end_epoch)
        engine.add_event_handler(Events.COMPLETED, self._finish)
        return self

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Report numbers of another engine, such as an evaluator's `state.metrics`."""
        if self._reporter is not None:
            self._reporter.update(metrics=metrics)

    @quietly
    def _start(self, engine: Engine) -> None:
        state = engine.state
        total = state.epoch_length * state.max_epochs if state.epoch_length and state.max_epochs else None
        self._begin(
            total, total_epochs=state.max_epochs, initial_step=state.iteration, rank=idist.get_rank() or None
        )

    @quietly
    def _count(self, engine: Engine) -> None:
        if self._reporter is not None:
            metrics = self._read(engine) if self._reporter.is_due else None
            self._reporter.update(step=engine.state.iteration, metrics=metrics)

    @quietly
    def _end_epoch(self, engine: Engine) -> None:
        self._go_on()
        if self._reporter is not None:
            state = engine.state
            total = state.epoch_length * state.max_epochs if state.epoch_length and state.max_epochs else None
            self._reporter.update(epoch=state.epoch, total_steps=total, metrics=self._read(engine))

    @quietly
    def _finish(self, engine: Engine) -> None:
        if self._reporter is not None:
            self._reporter.update(metrics=self._read(engine))
            self._reporter.finish()

    def _read(self, engine: Engine) -> dict[str, Any]:
        given = self._metrics_from(engine.state.output) if self._metrics_from is not None else {}
        return {**given, **engine.state.metrics}
