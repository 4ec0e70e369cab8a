"""What `trainjobs/NAME/history`, `…/log-tail` and `…/diagnose` answer in version v1alpha1.

A history is in columns; one that would have nothing but null is absent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .meta_v1 import ObjectMeta
from .v1alpha1 import Diagnosis
from .wire import Double, Extra, Int32, Int64, Time, WireModel


def _column(type_: str, format_: str, *, nullable: bool = False) -> Extra:
    """A column's schema. Numbers that may be unknown are null, so that columns have one length."""
    item: Extra = {"type": type_, "format": format_}
    if nullable:
        item["nullable"] = True
    return {"items": item}


_TIMES = (
    "Seconds since 1970 in UTC, by the training process's clock, corrected where it is found to be wrong."
)


class HistoryAttempt(WireModel):
    """One attempt of the job: one run of its training process."""

    number: Int32 = Field(ge=0, description="0 is the first attempt of which anything is known.")
    start_time: Time | None = Field(default=None, description="When it first reported.")
    first_step: Int64 | None = Field(
        default=None, ge=0, description="The first step that it reported; above 0 after a resume."
    )
    last_step: Int64 | None = Field(default=None, ge=0, description="The last step that it reported.")
    last_time: Time | None = Field(default=None, description="When it last reported.")


class HistoryProgress(WireModel):
    """How far one attempt had come, and when."""

    attempt: Int32 = Field(ge=0, description="Number of the attempt.")
    times: tuple[Double, ...] = Field(description=_TIMES, json_schema_extra=_column("number", "double"))
    steps: tuple[Int64 | None, ...] | None = Field(
        default=None,
        description="Optimizer steps finished at these times; null where none was reported.",
        json_schema_extra=_column("integer", "int64", nullable=True),
    )
    epochs: tuple[Double | None, ...] | None = Field(
        default=None,
        description="Epochs finished at these times; null where none was reported.",
        json_schema_extra=_column("number", "double", nullable=True),
    )


class HistorySeries(WireModel):
    """The values of one metric in one attempt."""

    metric: str = Field(description="Name of the metric, as it is reported.")
    attempt: Int32 = Field(ge=0, description="Number of the attempt.")
    times: tuple[Double, ...] = Field(description=_TIMES, json_schema_extra=_column("number", "double"))
    steps: tuple[Int64 | None, ...] | None = Field(
        default=None,
        description="The steps that were finished when it was reported; null where none was.",
        json_schema_extra=_column("integer", "int64", nullable=True),
    )
    values: tuple[str, ...] = Field(
        description="Numbers as text, so that NaN and Infinity can be written in JSON.",
    )


class TrainJobProgressHistory(WireModel):
    """What the job has reported over time: all of late, further back the extremes."""

    kind: Literal["TrainJobProgressHistory"] | None = Field(
        default=None, description="Always TrainJobProgressHistory."
    )
    api_version: Literal["visibility.trainer.kubeflow.org/v1alpha1"] | None = Field(
        default=None, description="Always visibility.trainer.kubeflow.org/v1alpha1."
    )
    metadata: ObjectMeta = Field(
        description="Name, namespace, uid, labels and creation time are those of the job itself. The"
        " resourceVersion is that of the job's progress, of which this is the past."
    )
    attempts: tuple[HistoryAttempt, ...] = Field(
        description="The attempts that are kept, oldest first: ten at most, of which the shortest go first."
    )
    progress: tuple[HistoryProgress, ...] = Field(description="Steps and epochs over time, by attempt.")
    series: tuple[HistorySeries, ...] = Field(description="Metrics over time, by attempt.")


class TrainJobLogTail(WireModel):
    """The last lines of the log of the container that failed first, or of rank 0's when none has."""

    kind: Literal["TrainJobLogTail"] | None = Field(default=None, description="Always TrainJobLogTail.")
    api_version: Literal["visibility.trainer.kubeflow.org/v1alpha1"] | None = Field(
        default=None, description="Always visibility.trainer.kubeflow.org/v1alpha1."
    )
    metadata: ObjectMeta = Field(description="Those of the job's document.")
    pod_name: str = Field(description="The pod whose log it is.")
    container_name: str | None = Field(
        default=None, description="The container; absent for the pod's default one."
    )
    replica: str | None = Field(
        default=None, description="Which replica failed, such as node-3; absent when none has."
    )
    previous: bool = Field(description="Whether it is the log of the run before the present one.")
    truncated: bool = Field(
        description="Whether lines are missing before these, or beginnings of lines: an answer has at most 64"
        " KiB, a line 2,000 characters."
    )
    cause_line: str | None = Field(
        default=None,
        description="Of these, the one that says why the container failed; absent where none does. The"
        " document's status.failure says it in the server's words.",
    )
    lines: tuple[str, ...] = Field(description="The oldest first; control characters are replaced by U+FFFD.")


class TrainJobDiagnosis(WireModel):
    """The last diagnosis of the job, with the stacks of its ranks."""

    kind: Literal["TrainJobDiagnosis"] | None = Field(default=None, description="Always TrainJobDiagnosis.")
    api_version: Literal["visibility.trainer.kubeflow.org/v1alpha1"] | None = Field(
        default=None, description="Always visibility.trainer.kubeflow.org/v1alpha1."
    )
    metadata: ObjectMeta = Field(description="Those of the job's document.")
    diagnosis: Diagnosis = Field(description="As in the document's status, with the frames of each group.")
