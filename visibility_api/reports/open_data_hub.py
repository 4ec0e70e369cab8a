"""The JSON that Open Data Hub's instrumentation serves and leaves as termination message
(https://github.com/opendatahub-io/kubeflow-sdk).

Read more leniently than our own document: bare NaN and Infinity, numbers as text and nulls all occur there. A
field that makes no sense is left out: a user cannot mend what an SDK wrote into the image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .document import Progress, Refusal, Refused
from .fields import (
    MAX_MESSAGE_CHARACTERS,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    amount,
    percentage,
    total,
    whole,
)
from .refusals import parse_json, replace_halves

# No other form has any of these.
_MARKS = frozenset({"currentStep", "currentEpoch", "currentPhase", "trainMetrics", "evalMetrics"})
_FOREIGN = frozenset({"timestamp", "trainerStatus"})  # …and with one of these it is not this form
_EVAL = "eval_"


def parse_open_data_hub(data: bytes) -> Progress | Refused | None:
    """The progress in `data`; None when it is not of this form.

    `timestamp` stays None: the form carries no time. Refused only while nothing in it is known yet.
    """
    fields = _object(data)
    if fields is None or not fields.keys() & _MARKS or fields.keys() & _FOREIGN:
        return None
    step, steps = _steps(fields.get("currentStep")), _steps(fields.get("totalSteps"))
    epoch = amount(_finite(fields.get("currentEpoch")))
    epochs = amount(_finite(fields.get("totalEpochs")))
    phase = fields.get("currentPhase")
    progress = Progress(
        step=step,
        total_steps=total(steps, step),
        epoch=epoch,
        total_epochs=total(epochs, epoch),
        progress_percentage=percentage(_finite(fields.get("progressPercentage"))),
        remaining_s=whole(_finite(fields.get("estimatedRemainingSeconds"))),
        metrics=_metrics(fields),
        message=phase[:MAX_MESSAGE_CHARACTERS] if isinstance(phase, str) and phase else None,
    )
    if progress == Progress():
        return Refused(reason="NoProgressYet", message="The process answers, but has nothing to report yet.")
    return progress


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(replace_halves(data), allows_nan=True)
    except Refusal:
        return None
    return value if isinstance(value, dict) else None


def _metrics(fields: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    metrics: dict[str, str] = {}
    for name, value in _named(fields):
        text = _metric(value)
        if text is None:
            continue
        if len(metrics) == MAX_METRICS:
            break
        metrics.setdefault(name[:MAX_METRIC_CHARACTERS], text)
    return tuple(metrics.items())


def _named(fields: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Metrics of both groups; those of evaluation by the names that Hugging Face gives them."""
    train, evaluation = fields.get("trainMetrics"), fields.get("evalMetrics")
    if isinstance(train, dict):
        yield from ((name, value) for name, value in train.items() if name)
    if isinstance(evaluation, dict):
        for name, value in evaluation.items():
            yield name if name.startswith(_EVAL) else _EVAL + name, value


def _metric(value: object) -> str | None:
    """NaN and infinities as the texts `nan`, `inf`, `-inf`, as in our own document."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return str(value)[:MAX_METRIC_CHARACTERS] or None


def _finite(value: object) -> float | None:
    """A finite number, written as one or as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value[:MAX_METRIC_CHARACTERS] if isinstance(value, str) else value)
    except (ValueError, OverflowError):  # no number; an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _steps(value: object) -> int | None:
    number = amount(_finite(value))
    return None if number is None else int(number)
