"""What a job has reported over time, as columns and as data frames."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import models

if TYPE_CHECKING:
    import pandas
    import polars

_UNKNOWN: Dict[str, Any] = {"time": None, "attempt": None, "step": None, "metric": None, "value": None}


class JobHistory(models.TrainJobProgressHistory):
    """The attempts of a job, its progress and its metrics: `columns`, `to_pandas`, `to_polars`."""

    def columns(self) -> Dict[str, List[Any]]:
        """A row for each point: time, attempt, step, metric, value. Without metrics: an attempt's epochs."""
        rows: List[Tuple[Any, ...]] = []
        for series in self.series:
            steps = series.steps or (None,) * len(series.times)
            for time, step, value in zip(series.times, steps, series.values):
                rows.append((_time(time), series.attempt, step, series.metric, float(value)))
        with_metrics = {each.attempt for each in self.series}
        for each in self.progress:
            if each.attempt not in with_metrics:
                steps = each.steps or (None,) * len(each.times)
                epochs = each.epochs or (None,) * len(each.times)
                for time, step, epoch in zip(each.times, steps, epochs):
                    rows.append((_time(time), each.attempt, step, None if epoch is None else "epoch", epoch))
        rows.sort(key=lambda row: (row[0], row[1]))
        return {name: [row[index] for row in rows] for index, name in enumerate(_UNKNOWN)}

    def metric(self, name: str, attempt: Optional[int] = None) -> Tuple[List[float], List[float]]:
        """Steps, or else times, and values of one metric, for a chart. Of one attempt, or of all."""
        places: List[float] = []
        values: List[float] = []
        for series in self.series:
            if series.metric == name and attempt in (None, series.attempt):
                has_steps = series.steps is not None and None not in series.steps
                places += (
                    [float(each or 0) for each in series.steps or ()] if has_steps else list(series.times)
                )
                values += [float(each) for each in series.values]
        return places, values

    @property
    def metrics(self) -> List[str]:
        """Their names, as they first came."""
        return list(dict.fromkeys(each.metric for each in self.series))

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns as a data frame of pandas, which has to be installed."""
        import pandas

        frame = pandas.DataFrame(self.columns())
        frame["time"] = pandas.to_datetime(frame["time"], utc=True)
        return frame.astype({"attempt": "Int64", "step": "Int64", "value": "float64"})

    def to_polars(self) -> "polars.DataFrame":
        """The columns as a data frame of Polars, which has to be installed."""
        import polars

        types = {
            "time": polars.Datetime("us", "UTC"),
            "attempt": polars.Int64,
            "step": polars.Int64,
            "metric": polars.String,
            "value": polars.Float64,
        }
        return polars.DataFrame(self.columns(), schema=types)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
