"""MLflow: the run that is active or that `MLFLOW_RUN_ID` names, else a run of its own."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Sequence

import mlflow
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from trainjob_progress.publisher import warn

from . import Point, TrackerSink, find_name, find_tags

INTERVAL_S = 5.0
MAX_METRICS = 1000  # of one request
_FOREIGN = re.compile(r"[^\w\-./ :]", re.ASCII)
_STATUS = {"failed": "FAILED", "preempted": "KILLED"}


def find(environ: Mapping[str, str]) -> TrackerSink:
    active = mlflow.active_run()
    given = active.info.run_id if active is not None else environ.get("MLFLOW_RUN_ID")
    return TrackerSink(MLflowRun(given, environ), INTERVAL_S)


def _clean(name: str) -> str:
    """Names are paths in MLflow."""
    parts = [each for each in _FOREIGN.sub("_", name).split("/") if each not in ("", ".", "..")]
    return "/".join(parts) or "_"


class MLflowRun:
    """A run that somebody else began is not ended."""

    def __init__(self, given: Optional[str], environ: Mapping[str, str]) -> None:
        self._client = MlflowClient()
        self._run_id = given
        self._is_ours = given is None
        self._refused: set[str] = set()  # names that MLflow does not take
        self._experiment = environ.get("MLFLOW_EXPERIMENT_ID"), environ.get("MLFLOW_EXPERIMENT_NAME")

    def log(self, points: Sequence[Point]) -> None:
        if self._run_id is None:
            run = self._client.create_run(self._find_experiment(), run_name=find_name(), tags=find_tags())
            self._run_id = run.info.run_id
        metrics = [
            Metric(_clean(name), value, int(point.unix_s * 1000), point.step)
            for point in points
            for name, value in point.values.items()
            if _clean(name) not in self._refused
        ]
        for at in range(0, len(metrics), MAX_METRICS):
            self._log_batch(self._run_id, metrics[at : at + MAX_METRICS])

    def _log_batch(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """What is refused once would be refused for ever, and all that comes after it would wait."""
        try:
            self._client.log_batch(run_id, metrics=metrics)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            if len(metrics) == 1:
                if self._client.get_run(run_id).info.lifecycle_stage != "active":
                    raise  # it is deleted, which MLflow does not tell from a bad name; it may be restored
                self._refused.add(metrics[0].key)
                warn(f"MLflow does not take the metric {metrics[0].key[:40]!r}: {str(error)[:200]}")
                return
            middle = len(metrics) // 2
            for half in (metrics[:middle], metrics[middle:]):
                if taken := [each for each in half if each.key not in self._refused]:
                    self._log_batch(run_id, taken)

    def end(self, ending: Optional[str]) -> None:
        if self._is_ours and self._run_id is not None:
            self._client.set_terminated(self._run_id, _STATUS.get(ending or "", "FINISHED"))

    def _find_experiment(self) -> str:
        experiment_id, name = self._experiment
        if experiment_id or not name:
            return experiment_id or "0"
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))
