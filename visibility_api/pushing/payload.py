"""Parses a push's body: Kubeflow Trainer's form or our own document.

Values that Kubeflow Trainer would refuse are clamped and rounded. The bytes are untrusted: any input becomes
a `Payload` or raises `Invalid`, in bounded time, and the message repeats none of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, TypeGuard

import msgspec

from visibility_api.errors.status import Invalid
from visibility_api.reports.depth import MAX_DEPTH, is_too_deep
from visibility_api.reports.document import Progress, Refused, parse_document, parse_time, take_position
from visibility_api.reports.limits import EARLIEST, LATEST, MAX_METRIC_CHARACTERS, MAX_METRICS

MAX_INT32 = 2**31 - 1
MAX_TIME_CHARACTERS = 64

_TIME = "trainerStatus.lastUpdatedTime"

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_METRIC_CHARACTERS)]


class _Metric(msgspec.Struct, forbid_unknown_fields=True):
    name: _Text
    value: _Text


class _TrainerStatus(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fields in the order of Kubeflow Trainer's echo. An unknown field may be a known one in another case, so
    such a body is parsed again by `_clamp`."""

    progressPercentage: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    estimatedRemainingSeconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] | None = None
    metrics: Annotated[list[_Metric], msgspec.Meta(max_length=MAX_METRICS)] | None = None
    lastUpdatedTime: Annotated[datetime, msgspec.Meta(tz=True)]


class _Body(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    trainerStatus: _TrainerStatus | None = None


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A push that is answered 200."""

    echo: bytes  # the fields that were understood, as Kubeflow Trainer returns the parsed body
    report: Progress | None  # None when the body holds no report


_decode = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Payload(echo=b"{}\n", report=None)


def read_payload(data: bytes) -> Payload:
    """Raises Invalid, which names the field."""
    if is_too_deep(data):
        _refuse("the body", f"is nested more than {MAX_DEPTH} levels deep")
    try:
        status = _decode(data).trainerStatus  # all values in bounds: what most clients send
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if status is not None:
        return _payload(status)
    fields = _first_object(data)
    given = _in_any_case(fields).get("trainerstatus")
    if given is not None:
        return _payload(_clamp(given))
    if "timestamp" in fields or "schemaVersion" in fields:
        return _own_document(fields)
    return _NOTHING


def _payload(status: _TrainerStatus) -> Payload:
    moment = _instant(status.lastUpdatedTime)
    status.lastUpdatedTime = moment.replace(microsecond=0)  # as metav1.Time is written
    status.metrics = status.metrics or None
    metrics: dict[str, Any] = {metric.name: metric.value for metric in status.metrics or ()}
    report = Progress(
        timestamp=moment,
        progress_percentage=status.progressPercentage,
        remaining_s=status.estimatedRemainingSeconds,
        **take_position(metrics),
        metrics=tuple(metrics.items()),
    )
    return Payload(echo=_encode(_Body(trainerStatus=status)) + b"\n", report=report)


def _instant(moment: datetime) -> datetime:
    if moment.tzinfo is not UTC:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            _refuse(_TIME, "is out of range")
    if not EARLIEST <= moment <= LATEST:
        _refuse(_TIME, "is out of range")
    return moment


def _own_document(fields: Mapping[str, Any]) -> Payload:
    """The echo is empty: Kubeflow Trainer would know none of its fields."""
    outcome = parse_document(_encode(fields))
    if isinstance(outcome, Refused):
        raise Invalid(outcome.message)
    return Payload(echo=_NOTHING.echo, report=outcome)


def _first_object(data: bytes) -> Mapping[str, Any]:
    """The first JSON value. As in Kubeflow Trainer, the rest is ignored and invalid UTF-8 is replaced."""
    try:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = data.decode(errors="replace").lstrip(" \t\r\n")
            value, _ = _lenient.raw_decode(text)
            # Half a surrogate pair has no UTF-8 form; Kubeflow Trainer replaces it as well.
            value = msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except ValueError:  # JSONDecodeError, a constant, an integer of thousands of digits
        _refuse("the body", "is not JSON")
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse("the body", "must be an object")
    return value


def _no_constant(_name: str) -> NoReturn:
    raise ValueError  # NaN and Infinity are not JSON


_lenient = json.JSONDecoder(parse_constant=_no_constant)


def _in_any_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """By names in lower case: Kubeflow Trainer uses Go's encoding/json, which ignores case."""
    return {name.casefold(): value for name, value in fields.items()}


def _clamp(given: object) -> _TrainerStatus:
    if not isinstance(given, dict):
        _refuse("trainerStatus", "must be an object")
    status = _in_any_case(given)
    updated = status.get("lastupdatedtime")
    moment = parse_time(updated[:MAX_TIME_CHARACTERS]) if isinstance(updated, str) else None
    if moment is None:
        _refuse(_TIME, "is required and must be an RFC 3339 time with a zone")
    return _TrainerStatus(
        progressPercentage=_integer(status, "progressPercentage", 100),
        estimatedRemainingSeconds=_integer(status, "estimatedRemainingSeconds", MAX_INT32),
        metrics=list(_metrics(status.get("metrics"))) or None,
        lastUpdatedTime=moment,
    )


def _integer(status: Mapping[str, Any], name: str, most: int) -> int | None:
    value = status.get(name.casefold())
    if value is None:
        return None
    if not _is_number(value):
        _refuse(f"trainerStatus.{name}", "must be a finite number")
    return round(max(0, min(most, value)))  # clamped first: an int of hundreds of digits does not fit a float


def _metrics(pairs: object) -> Iterator[_Metric]:
    """The first MAX_METRICS that have a name and a value; cut at the length that the API allows."""
    if pairs is None:
        return
    if not isinstance(pairs, list):
        _refuse("trainerStatus.metrics", "must be a list")
    for pair in pairs[:MAX_METRICS]:
        if not isinstance(pair, dict):
            _refuse("trainerStatus.metrics", "must hold objects")
        metric = _in_any_case(pair)
        name, value = metric.get("name"), metric.get("value")
        if name is not None and not isinstance(name, str):
            _refuse("trainerStatus.metrics.name", "must be a string")
        if _is_number(value):
            value = str(value)
        if value is not None and not isinstance(value, str):
            _refuse("trainerStatus.metrics.value", "must be a string")
        if name and value:
            yield _Metric(name=name[:MAX_METRIC_CHARACTERS], value=value[:MAX_METRIC_CHARACTERS])


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _refuse(field: str, why: str) -> NoReturn:
    raise Invalid(f"{field} {why}") from None
