"""`trainerStatus`, Kubeflow Trainer's form of a report (KEP-2779): pushed, in a file, or in a TrainJob.

https://github.com/kubeflow/trainer/tree/master/docs/proposals/2779-trainjob-progress. This is its one
description: the types are what is read, the schemas beside them what writers should write. `fit` makes most
of the rest fit, which Kubeflow Trainer's own server refuses.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .document import Progress, Refusal
from .fields import (
    MAX_INTEGER,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    MAX_TIME_CHARACTERS,
    parse_time,
    says,
    total,
)

MAX_INT32 = 2**31 - 1
TIME = "trainerStatus.lastUpdatedTime"

Number = int | float | None
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_METRIC_CHARACTERS}
_PERCENTAGE: dict[str, Any] = {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100}
_SECONDS: dict[str, Any] = {"type": "integer", "format": "int32", "minimum": 0}


class TrainerMetric(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One metric."""

    name: Annotated[str | None, says("Name of the metric, such as loss.", **_TEXT)] = None
    value: Annotated[str | int | float | None, says("Its value, a number as text.", **_TEXT)] = None


class TrainerStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Progress of a TrainJob, as its training process reports it."""

    progress_percentage: Annotated[Number, says("How much of the training is done.", **_PERCENTAGE)] = None
    estimated_remaining_seconds: Annotated[
        Number, says("Estimated time until the training is done.", **_SECONDS)
    ] = None
    metrics: Annotated[
        tuple[TrainerMetric, ...] | None,
        says(
            "The latest value of each metric. current_step, total_steps, current_epoch and total_epochs are"
            " shown as steps and epochs.",
            type="array",
            items={"$ref": "#/components/schemas/TrainerMetric"},
            maxItems=MAX_METRICS,
        ),
    ] = None
    last_updated_time: Annotated[
        str | None,
        says("When these values were observed, RFC 3339 with a zone.", type="string", format="date-time"),
    ] = None


class TrainerStatusUpdate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The body of a push. Without trainerStatus it changes nothing."""

    trainer_status: Annotated[
        TrainerStatus | None,
        says("Replaces what the process reported before.", **{"$ref": "#/components/schemas/TrainerStatus"}),
    ] = None


def fit(status: TrainerStatus, *, is_fitting: bool = False) -> tuple[TrainerStatus, Progress]:
    """The same within the limits, and its report. Raises Refusal, when there is no time to date it by.
    `is_fitting`: its metrics are within them.

    Numbers are clamped and rounded, text is cut, metrics without a name or a value are left out. The time is
    cut to seconds, as metav1.Time is written; the report has it whole.
    """
    written = status.last_updated_time
    moment = parse_time(written[:MAX_TIME_CHARACTERS]) if written is not None else None
    if moment is None:
        reason = "MissingField" if written is None else "InvalidField"
        raise Refusal(reason, f"{TIME} is required and must be an RFC 3339 time with a zone.")
    percentage = _clamped(status.progress_percentage, 100)
    remaining_s = _clamped(status.estimated_remaining_seconds, MAX_INT32)
    metrics = status.metrics or ()
    if not is_fitting:
        metrics = tuple([kept for pair in metrics[:MAX_METRICS] if (kept := _metric(pair))])
    values: dict[Any, Any] = {metric.name: metric.value for metric in metrics}
    report = Progress(
        timestamp=moment,
        progress_percentage=percentage,
        remaining_s=remaining_s,
        **_take_position(values),
        metrics=tuple(values.items()),
    )
    fitting = TrainerStatus(
        progress_percentage=percentage,
        estimated_remaining_seconds=remaining_s,
        metrics=metrics or None,
        last_updated_time=moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z",
    )
    return fitting, report


def _clamped(value: Number, most: int) -> int | None:
    # Clamped first: an int of hundreds of digits does not fit a float.
    return None if value is None else round(max(0, min(most, value)))


def _metric(metric: TrainerMetric) -> TrainerMetric | None:
    name, value = metric.name, metric.value
    if not name or value is None or value == "":
        return None
    if isinstance(value, str) and len(name) <= MAX_METRIC_CHARACTERS >= len(value):
        return metric
    return TrainerMetric(name=name[:MAX_METRIC_CHARACTERS], value=str(value)[:MAX_METRIC_CHARACTERS])


# Upstream's form has no place for steps and epochs: Hugging Face's callback and our reporter send them so.
def _take_position(metrics: dict[Any, Any]) -> dict[str, Any]:
    """Takes steps and epochs out of the metrics, as fields of `Progress`.

    What is no count of anything stays a metric.
    """
    step, steps = _take_number(metrics, "current_step"), _take_number(metrics, "total_steps")
    epoch, epochs = _take_number(metrics, "current_epoch"), _take_number(metrics, "total_epochs")
    planned = total(steps, step)
    return {
        "step": None if step is None else int(step),
        "total_steps": None if planned is None else int(planned),
        "epoch": epoch,
        "total_epochs": total(epochs, epoch),
    }


def _take_number(metrics: dict[Any, Any], name: str) -> float | None:
    if name not in metrics:
        return None
    try:
        value = float(metrics[name])
    except ValueError:
        return None
    if not 0 <= value <= MAX_INTEGER or ("step" in name and not value.is_integer()):
        return None
    del metrics[name]
    return value
