"""Weights & Biases: the run that is active, else one of its own, by W&B's own variables."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import wandb

from . import END_S, Point, TrackerSink, find_name, find_tags

INTERVAL_S = 5.0
BEGIN_S = 15.0  # W&B would try for 90 s
STEP = "trainer/global_step"  # W&B's own step only goes up by one; Lightning and Hugging Face call it so


def find(environ: Mapping[str, str]) -> TrackerSink:
    del environ  # W&B reads WANDB_PROJECT, WANDB_MODE and their like itself
    if wandb.run is None:
        wandb.setup()  # now: what it does at the end of the process comes after our last points then
    return TrackerSink(WandbRun(wandb.run), INTERVAL_S, reopens=False)


class WandbRun:
    """A run that somebody else began is not ended."""

    def __init__(self, given: Any) -> None:  # noqa: ANN401 — wandb's Run
        self._run = given
        self._is_ours = given is None

    def log(self, points: Sequence[Point]) -> None:
        if self._run is None:
            # Nothing of the program's output is captured. The end of the process waits for what W&B is doing.
            settings = wandb.Settings(console="off", silent=True, finish_timeout=END_S, init_timeout=BEGIN_S)
            self._run = wandb.init(name=find_name(), config=find_tags(), settings=settings)
            self._run.define_metric(STEP)
            self._run.define_metric("*", step_metric=STEP)
        for point in points:
            # A given run's steps are the program's: what it logs at a step below W&B's own would be left out.
            values = {**point.values, STEP: point.step, "_timestamp": point.unix_s}
            self._run.log(values, commit=self._is_ours)

    def end(self, ending: Optional[str]) -> None:
        if self._is_ours and self._run is not None:
            self._run.finish(exit_code=1 if ending in ("failed", "preempted") else 0)
            self._run, self._is_ours = None, False
