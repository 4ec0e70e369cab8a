"""Parses a push's body: Kubeflow Trainer's form or our own document.

What Kubeflow Trainer accepts is accepted: names in any case, bytes after the first value, broken UTF-8. The
bytes are untrusted: any input becomes a `Payload` or raises `Invalid`, in time by its length, and the message
repeats none of it (`python -m benchmarks.hostile_bodies`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Raw

from visibility_api.errors.status import Invalid
from visibility_api.reports.document import Progress, Refusal
from visibility_api.reports.fields import MAX_METRICS, Name
from visibility_api.reports.refusals import describe_mismatch, parse_json, replace_halves
from visibility_api.reports.trainer_status import TrainerMetric, TrainerStatus, TrainerStatusUpdate, fit
from visibility_api.reports.training_document import read_document

MAX_PLAIN_BYTES = 4096  # of a body that is decoded at once: hostile numbers in one take 0.2 ms at most
MAX_NAMES = 64  # of an object whose names may be written in another case; Go structs have few fields


class _Metric(TrainerMetric, frozen=True, gc=False, forbid_unknown_fields=True):
    name: Name
    value: Name


class _Status(TrainerStatus, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    metrics: Annotated[tuple[_Metric, ...], msgspec.Meta(max_length=MAX_METRICS)] | None = None


class _Known(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A body of upstream's form without any other field and within the limits, as most clients send it."""

    trainer_status: _Status


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A push that is answered 200."""

    echo: bytes  # the fields that were understood, as Kubeflow Trainer returns the parsed body
    report: Progress | None  # None when the body holds no report


_encode = msgspec.json.Encoder().encode
_decode_known = msgspec.json.Decoder(_Known).decode
_NOTHING = Payload(echo=b"{}\n", report=None)

_STATUS = {"trainerstatus": "trainerStatus"}
_FIELDS = {
    name.lower(): name
    for name in ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
}
_PAIR = {"name": "name", "value": "value"}
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")


def read_payload(data: bytes) -> Payload:
    """Raises Invalid, which names the field."""
    try:
        if len(data) <= MAX_PLAIN_BYTES:
            return _of_status(_decode_known(data).trainer_status, is_fitting=True)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except Refusal as refusal:
        _refuse(refusal.refused.message)
    try:
        parsed = _parse(data)
    except Refusal as refusal:
        _refuse(f"the body {refusal.refused.message}")
    if parsed is None:
        return _NOTHING
    if not isinstance(parsed, dict):
        _refuse("the body must be an object")
    try:
        status = _find_status(parsed)
        if status is not None:
            return _of_status(status)
        if "timestamp" in parsed or "schemaVersion" in parsed:
            # The echo is empty: Kubeflow Trainer would know none of its fields.
            return Payload(echo=_NOTHING.echo, report=read_document(parsed))
        return _NOTHING
    except Refusal as refusal:
        _refuse(refusal.refused.message)


def _of_status(status: TrainerStatus, *, is_fitting: bool = False) -> Payload:
    echo, report = fit(status, is_fitting=is_fitting)
    return Payload(echo=_encode(TrainerStatusUpdate(echo)) + b"\n", report=report)


def _parse(data: bytes) -> object:
    """The first JSON value, with what is not UTF-8 replaced; Kubeflow Trainer reads it so. Raises Refusal."""
    try:
        msgspec.json.decode(data, type=Raw)  # makes nothing of it, but says where it ends
    except (msgspec.DecodeError, RecursionError) as error:
        if match := _TRAILING.match(str(error)):
            data = data[: int(match[1]) - 1]  # it counts from 1
    data = replace_halves(data)
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    return parse_json(data)


def _find_status(parsed: dict[str, Any]) -> TrainerStatus | None:
    """None when there is none. Raises Refusal."""
    status = _in_own_case(_in_own_case(parsed, _STATUS).get("trainerStatus"), _FIELDS)
    if isinstance(status, dict) and isinstance(metrics := status.get("metrics"), list):
        status["metrics"] = [_in_own_case(metric, _PAIR) for metric in metrics[:MAX_METRICS]]
    try:
        return msgspec.convert({"trainerStatus": status}, TrainerStatusUpdate).trainer_status
    except msgspec.ValidationError as error:
        raise Refusal("InvalidField", describe_mismatch(error)) from None


def _in_own_case(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
    """A copy with the known names in their own case; unchanged what is no object."""
    if not isinstance(value, dict) or len(value) > MAX_NAMES:
        return value
    return {names.get(name.lower(), name): each for name, each in value.items()}


def _refuse(why: str) -> NoReturn:
    raise Invalid(why) from None
