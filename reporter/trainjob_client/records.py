"""Jobs of the past, from the server's archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

from . import models
from .jobs import to_number

if TYPE_CHECKING:
    import pandas
    import polars


class JobRecord(models.JobRecord):
    """What was known of a job when it ended or was deleted. `summary` has all of it; `progress` is its last
    document, which lists leave out."""

    @property
    def name(self) -> str:
        """The record's own: the job's, with the beginning of its uid."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or ""

    @property
    def job(self) -> str:
        """The name that the job had."""
        return self.job_ref.name

    @property
    def phase(self) -> str:
        return self.summary.phase

    def metric(self, name: str) -> Optional[float]:
        """Its last value; of the first sixteen metrics."""
        return to_number(name, self.summary.metrics)


class JobRecords(List[JobRecord]):
    """Those that ended last come first: a list, with `columns`, `to_pandas` and `to_polars`."""

    def columns(self) -> Dict[str, List[Any]]:
        """A row for each job: its name, how it ended, and the last value of each metric as `metric.NAME`."""
        metrics = dict.fromkeys(metric.name for each in self for metric in each.summary.metrics or ())
        found: Dict[str, List[Any]] = {
            "name": [each.name for each in self],
            "namespace": [each.namespace for each in self],
            "job": [each.job for each in self],
            "kind": [each.job_ref.kind for each in self],
        }
        for field in (
            *("phase", "deleted", "start_time", "end_time", "duration_seconds", "attempts"),
            *("progress_percentage", "accelerators", "accelerator_seconds", "goodput_percentage", "cause"),
        ):
            found[field] = [getattr(each.summary, field) for each in self]
        found["steps"] = [each.summary.steps and each.summary.steps.current for each in self]
        return {**found, **{f"metric.{name}": [each.metric(name) for each in self] for name in metrics}}

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns as a data frame of pandas, which has to be installed."""
        import pandas

        return pandas.DataFrame(self.columns())

    def to_polars(self) -> "polars.DataFrame":
        """The columns as a data frame of Polars, which has to be installed."""
        import polars

        return polars.DataFrame(self.columns(), infer_schema_length=None)
