"""What a training process pushes: the body of Kubeflow Trainer's status endpoint, which ours is too.

KEP-2779, https://github.com/kubeflow/trainer/tree/master/docs/proposals/2779-trainjob-progress. Within these
limits a body is taken as it is; `pushing/payload.py`, which reads it, makes most others fit.
"""

from __future__ import annotations

from pydantic import Field

from .wire import Int32, Time, WireModel


class TrainerMetric(WireModel):
    """One metric."""

    name: str = Field(min_length=1, max_length=64, description="Name of the metric, such as loss.")
    value: str = Field(min_length=1, max_length=64, description="Its value, a number as text.")


class TrainerStatus(WireModel):
    """Progress of a TrainJob, as its training process reports it."""

    progress_percentage: Int32 | None = Field(
        default=None, ge=0, le=100, description="How much of the training is done."
    )
    estimated_remaining_seconds: Int32 | None = Field(
        default=None, ge=0, description="Estimated time until the training is done."
    )
    metrics: tuple[TrainerMetric, ...] | None = Field(
        default=None,
        max_length=256,
        description="The latest value of each metric. current_step, total_steps, current_epoch and"
        " total_epochs are shown as steps and epochs.",
    )
    last_updated_time: Time = Field(description="When these values were observed, RFC 3339 with a zone.")


class TrainerStatusUpdate(WireModel):
    """The body of a push. Without trainerStatus it changes nothing."""

    trainer_status: TrainerStatus | None = Field(
        default=None, description="Replaces what the process reported before."
    )
