"""MLflow: the run that is active or that `MLFLOW_RUN_ID` names, else a run of its own."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Sequence

import mlflow
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from . import Point, TrackerSink, find_name, find_tags

INTERVAL_S = 5.0
MAX_METRICS = 1000  # of one request
_FOREIGN = re.compile(r"[^\w\-./ :]", re.ASCII)
_STATUS = {"failed": "FAILED", "preempted": "KILLED"}


def find(environ: Mapping[str, str]) -> TrackerSink:
    active = mlflow.active_run()
    given = active.info.run_id if active is not None else environ.get("MLFLOW_RUN_ID")
    return TrackerSink(MLflowRun(given, environ), INTERVAL_S)


class MLflowRun:
    """A run that somebody else began is not ended."""

    def __init__(self, given: Optional[str], environ: Mapping[str, str]) -> None:
        self._client = MlflowClient()
        self._run_id = given
        self._is_ours = given is None
        self._experiment = environ.get("MLFLOW_EXPERIMENT_ID"), environ.get("MLFLOW_EXPERIMENT_NAME")

    def log(self, points: Sequence[Point]) -> None:
        if self._run_id is None:
            run = self._client.create_run(self._find_experiment(), run_name=find_name(), tags=find_tags())
            self._run_id = run.info.run_id
        metrics = [
            Metric(_FOREIGN.sub("_", name), value, int(point.unix_s * 1000), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for at in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[at : at + MAX_METRICS])

    def end(self, ending: Optional[str]) -> None:
        if self._is_ours and self._run_id is not None:
            self._client.set_terminated(self._run_id, _STATUS.get(ending or "", "FINISHED"))

    def _find_experiment(self) -> str:
        experiment_id, name = self._experiment
        if experiment_id or not name:
            return experiment_id or "0"
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))
