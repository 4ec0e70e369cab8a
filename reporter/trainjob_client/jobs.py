"""A job as the client gives it: the server's document, with what is asked of it most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence

from . import models
from .watching import Event

FINAL_PHASES = ("Succeeded", "Failed")


class Job(models.TrainingJob):
    """How far one job has come. `status` has all of it; what is not known is None."""

    job_ref: Optional[models.JobReference] = None  # in lists of all kinds

    @property
    def name(self) -> str:
        """The job's own name, without the resource before it."""
        return self.job_ref.name if self.job_ref is not None else self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or ""

    @property
    def workload(self) -> str:
        """The kind of the job itself, such as PyTorchJob."""
        if self.job_ref is not None:
            return self.job_ref.kind
        return self.kind.removesuffix("Progress")

    @property
    def phase(self) -> str:
        return self.status.phase

    @property
    def has_ended(self) -> bool:
        return self.status.phase in FINAL_PHASES

    @property
    def progress(self) -> Optional[int]:
        """Percent."""
        return self.status.progress_percentage

    def condition(self, type_: str) -> Optional[models.Condition]:
        """By its type, such as Stalled."""
        return next((each for each in self.status.conditions or () if each.type == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition is True."""
        found = self.condition(type_)
        return found is not None and found.status == "True"

    def metric(self, name: str) -> Optional[float]:
        """The last value; NaN and infinities are as reported."""
        return to_number(name, self.status.metrics)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from .notebook import html_of

        return html_of(self)


def to_number(name: str, metrics: Optional[Sequence[models.Metric]]) -> Optional[float]:
    """The value of one of them; NaN for what is no number."""
    found = next((each.value for each in metrics or () if each.name == name), None)
    try:
        return None if found is None else float(found)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class JobEvent:
    """One change. `type` is ADDED, MODIFIED or DELETED; a job that is DELETED is as it was last.

    With `resource_version` a later `watch_jobs` goes on after this change. It is None until the whole list
    has been told, for no version has only a part of it.
    """

    type: str
    job: Job
    resource_version: Optional[str] = None

    @classmethod
    def of(cls, event: Event) -> "JobEvent":
        return cls(event.type, Job.model_validate(event.item), event.resource_version)
