"""Parses a push's body: Kubeflow Trainer's form or our own document.

What Kubeflow Trainer accepts is accepted: names in any case, bytes after the first value, broken UTF-8. The
bytes are untrusted: any input becomes a `Payload` or raises `Invalid`, in time by its length, and the message
repeats none of it.
"""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from visibility_api.errors.status import Invalid
from visibility_api.reports.document import Progress, Refusal, Refused
from visibility_api.reports.refusals import describe_excess, describe_mismatch
from visibility_api.reports.trainer_status import TrainerMetric, TrainerStatus, TrainerStatusUpdate, fit
from visibility_api.reports.training_document import parse_document

# Of a body in which names may be written in another case: four for each of 256 metrics, and as many again.
MAX_QUOTES = 4096


class _Metric(TrainerMetric, frozen=True, gc=False, forbid_unknown_fields=True):
    pass


class _Status(TrainerStatus, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    metrics: tuple[_Metric, ...] | None = None


class _Known(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A body of upstream's form without any other field, as most clients send it."""

    trainer_status: _Status


class _Body(msgspec.Struct, rename="camel"):
    trainer_status: TrainerStatus | None = None
    timestamp: Raw | UnsetType = UNSET
    schema_version: Raw | UnsetType = UNSET


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A push that is answered 200."""

    echo: bytes  # the fields that were understood, as Kubeflow Trainer returns the parsed body
    report: Progress | None  # None when the body holds no report


_decode_known = msgspec.json.Decoder(_Known).decode
_decode = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Payload(echo=b"{}\n", report=None)

_NAMES = {
    name.lower(): b'"%s"' % name
    for name in (
        b"trainerStatus", b"progressPercentage", b"estimatedRemainingSeconds", b"metrics", b"lastUpdatedTime",
        b"name", b"value",
    )
}  # fmt: skip
_NAME = re.compile(rb'"(%s)"(?=\s*:)' % b"|".join(_NAMES), re.IGNORECASE)
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")
# Half of a surrogate pair, which has no UTF-8 form.
_HALF = re.compile(
    rb"\\u(?<!\\\\u)[dD](?:[89abAB][\da-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][\da-fA-F]{2}\\u[dD])[c-fC-F][\da-fA-F]{2})"
)


def read_payload(data: bytes) -> Payload:
    """Raises Invalid, which names the field."""
    if (excess := describe_excess(data)) is not None:
        _refuse(f"the body {excess}")
    status: TrainerStatus | None
    try:
        status = _decode_known(data).trainer_status
    except (msgspec.DecodeError, UnicodeDecodeError):
        data = _mended(data)
        body = _read(data)
        status = body.trainer_status
        if status is None:
            is_document = body.timestamp is not UNSET or body.schema_version is not UNSET
            return _own_document(data) if is_document else _NOTHING
    try:
        echo, report = fit(status)
    except Refusal as refusal:
        _refuse(refusal.refused.message)
    return Payload(echo=_encode(TrainerStatusUpdate(echo)) + b"\n", report=report)


def _read(data: bytes) -> _Body:
    try:
        return _decode(data)
    except msgspec.ValidationError as error:
        if data.strip() == b"null":
            return _Body()
        reason, words = describe_mismatch(data, error)
        _refuse(words if reason == "InvalidField" else f"the body {words}")
    except msgspec.DecodeError:
        _refuse("the body is not JSON")


def _own_document(data: bytes) -> Payload:
    """The echo is empty: Kubeflow Trainer would know none of its fields."""
    outcome = parse_document(data)
    if isinstance(outcome, Refused):
        raise Invalid(outcome.message)
    return Payload(echo=_NOTHING.echo, report=outcome)


def _mended(data: bytes) -> bytes:
    """The first JSON value in UTF-8, with known names in their own case; Kubeflow Trainer reads it so."""
    data = _HALF.sub(b"?", data.decode(errors="replace").encode())
    try:
        msgspec.json.decode(data, type=Raw)
    except msgspec.DecodeError as error:
        if match := _TRAILING.match(str(error)):
            data = data[: int(match[1]) - 1]  # it counts from 1
    if data.count(b'"') > MAX_QUOTES:
        return data
    return _NAME.sub(lambda match: _NAMES[match[1].lower()], data)


def _refuse(why: str) -> NoReturn:
    raise Invalid(why) from None
