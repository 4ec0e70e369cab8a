"""What `jobrecords` answers in version v1alpha1: jobs that have ended, from the archive."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .meta_v1 import ListMeta, ObjectMeta
from .subresources import TrainJobLogTail, TrainJobProgressHistory
from .v1alpha1 import JobReference, Metric, ProgressStatus, Steps
from .wire import API_VERSION, ApiVersion, Double, Int32, Int64, Time, WireModel

MAX_METRICS = 16  # in a summary


class RecordSummary(WireModel):
    """What a list shows of a job that has ended."""

    phase: str = Field(description="Succeeded or Failed, or what the job was in when it was deleted.")
    deleted: bool | None = Field(
        default=None, description="True of a job that was deleted before it had ended."
    )
    start_time: Time | None = Field(default=None, description="When training began.")
    end_time: Time | None = Field(
        default=None, description="When the job ended, or when it last reported if it was deleted before."
    )
    duration_seconds: Int64 | None = Field(default=None, ge=0, description="From start to end.")
    attempts: Int32 | None = Field(default=None, ge=1, description="How often training was started.")
    progress_percentage: Int32 | None = Field(default=None, ge=0, le=100, description="How far it had come.")
    steps: Steps | None = Field(default=None, description="Optimizer steps.")
    metrics: tuple[Metric, ...] | None = Field(
        default=None, description="The last values of the first sixteen metrics."
    )
    best: tuple[Metric, ...] | None = Field(
        default=None,
        description="The best values of these over all attempts, where the name tells which is better: of"
        " losses and errors the lowest, of accuracies and the like the highest.",
    )
    accelerators: Int64 | None = Field(default=None, ge=0, description="Those of all pods together.")
    accelerator_seconds: Int64 | None = Field(
        default=None, ge=0, description="Seconds for which they were held, of all together."
    )
    goodput_percentage: Double | None = Field(
        default=None, ge=0, le=100, description="Productive time, of all in which the job was not queued."
    )
    cause: str | None = Field(
        default=None, description="Why it failed, in one word, such as AcceleratorOutOfMemory or OOMKilled."
    )


class RecordEventObject(WireModel):
    """What an Event was about, in the namespace of the record."""

    kind: str = Field(description="Such as TrainJob or Pod.")
    name: str = Field(description="Name of what the Event was about.")


class RecordEvent(WireModel):
    """A Kubernetes Event, as it was when the record was written."""

    type: str = Field(description="Normal or Warning.")
    reason: str = Field(description="Why, in one word, such as FailedScheduling.")
    message: str = Field(description="The same in a sentence.")
    object: RecordEventObject = Field(description="What it was about.")
    count: Int64 = Field(ge=1, description="How often it was.")
    first_time: Time | None = Field(default=None, description="When it was first.")
    last_time: Time | None = Field(default=None, description="When it was last.")


class JobRecord(WireModel):
    """A job of the past: what was known of it when it ended or was deleted."""

    kind: Literal["JobRecord"] = Field(default="JobRecord", description="Always JobRecord.")
    api_version: ApiVersion = API_VERSION
    metadata: ObjectMeta = Field(
        description="The name is that of the job, a dash and the beginning of its uid. Namespace, uid, labels"
        " and creation time are those of the job."
    )
    job_ref: JobReference = Field(description="The job that it was.")
    summary: RecordSummary = Field(description="What lists show.")
    progress: ProgressStatus | None = Field(
        default=None, description="The status of the job's last document. Absent in lists."
    )
    events: tuple[RecordEvent, ...] | None = Field(
        default=None,
        description="The last fifty Kubernetes Events about the job, the pod of rank 0 and the pod that"
        " failed. Absent in lists.",
    )


class JobRecordList(WireModel):
    """JobRecordList is a list of JobRecord."""

    kind: Literal["JobRecordList"] = Field(default="JobRecordList", description="Always JobRecordList.")
    api_version: ApiVersion = API_VERSION
    metadata: ListMeta = Field(default_factory=ListMeta, description="Where the next page begins.")
    items: tuple[JobRecord, ...] = Field(description="One for each job; those that ended last come first.")


class JobRecordHistory(TrainJobProgressHistory):
    """What the job had reported over time."""

    kind: Literal["JobRecordHistory"] | None = Field(  # type: ignore[assignment]
        default=None, description="Always JobRecordHistory."
    )


class JobRecordLogTail(TrainJobLogTail):
    """The last lines of the log when the job had ended, of what failed first or of rank 0."""

    kind: Literal["JobRecordLogTail"] | None = Field(  # type: ignore[assignment]
        default=None, description="Always JobRecordLogTail."
    )
