"""Turns what training code hands over (tensors, NumPy scalars, text) into what a document may hold."""

from __future__ import annotations

import math

from .document import MAX_INTEGER, MAX_METRICS, MAX_TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Union

    Number = Union[int, float]
    Value = Union[int, float, str]


def to_metrics(values: Mapping[str, object], into: Mapping[str, Value]) -> dict[str, Value]:
    """`into` with `values` laid over it, names and texts cut to length.

    What is neither a number nor text is left out. Reading a tensor waits for its device: call this only when
    a report is due.
    """
    metrics = dict(into)
    for name, value in values.items():
        key = str(name)[:MAX_TEXT]
        number = value if isinstance(value, str) else to_number(value)
        if not key or number is None or number == "":
            continue
        if isinstance(number, str):
            metrics[key] = number[:MAX_TEXT]
        elif math.isfinite(number) and abs(number) <= MAX_INTEGER:
            metrics[key] = number
        else:
            metrics[key] = repr(float(number))  # "nan", "inf": JSON has no number for them
    while len(metrics) > MAX_METRICS:
        metrics.pop(next(iter(metrics)))  # a name that changes every step must not grow the document
    return metrics


def to_number(value: Any) -> Optional[Number]:  # noqa: ANN401 — the point is to take anything
    """A Python number for anything that holds exactly one; None for the rest."""
    try:
        if type(value) is float or type(value) is int:
            return value
        if hasattr(value, "detach"):
            value = value.detach()  # torch warns when a scalar with a gradient becomes a number
        if hasattr(value, "item"):
            value = value.item()  # torch, NumPy, JAX, Paddle
        return value if type(value) is int else float(value)
    except Exception:  # whatever a foreign type raises must not reach the training loop
        return None


def to_amount(value: object) -> Optional[Number]:
    """A finite number from 0 to 2^53; None for anything else."""
    number = to_number(value)
    return number if number is not None and 0 <= number <= MAX_INTEGER else None  # NaN fails both


def to_count(value: object) -> Optional[int]:
    """A whole number from 0 to 2^53; None for anything else."""
    amount = to_amount(value)
    return None if amount is None else int(amount)


def is_plain(value: object) -> bool:
    """Whether a value is at hand: no device has to be waited for, on any thread."""
    return type(value) in (int, float, bool, str)
