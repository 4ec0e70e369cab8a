"""The progress document: what a training process writes (docs/document.md), read as hostile bytes.

Any bytes become a `Progress` or a `Refused`, in time and memory by their length. No byte of a refused
document is ever repeated: the path it was read from is the user's to choose.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from .document import ENDINGS, STATES, Progress, Refusal, Refused
from .fields import (
    MAX_DOCUMENT_BYTES,
    MAX_INTEGER,
    MAX_MESSAGE_CHARACTERS,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    MAX_TIME_CHARACTERS,
    TIME_SCHEMA,
    amount,
    count,
    parse_time,
    percentage,
    total,
    whole,
)
from .points import read_recent
from .ranks import NO_RANKS, read_ranks
from .trainer_status import Number, TrainerStatus, fit

MAX_DEPTH = 100  # arrays and objects in one another; a report needs three
MAX_BRACKETS = 20_000  # counting their levels takes a third of a millisecond
# A number beyond 1e290 takes the decoder 9 us, one of hundreds of digits as long. Short documents have few.
MAX_EXTREMES, MAX_UNCHECKED_BYTES = 128, 1024

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
_AMOUNT: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": MAX_INTEGER}
_NAME: dict[str, Any] = {"minLength": 1, "maxLength": MAX_METRIC_CHARACTERS}
_METRICS: dict[str, Any] = {
    "type": "object",
    "maxProperties": MAX_METRICS,
    "propertyNames": _NAME,
    "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "string", **_NAME}]},
}


class ProgressDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """What a training process reports about itself; docs/document.md explains it. Writers should write what
    this schema allows; readers also accept what they can round, clamp or cut."""

    # The types are what is read; `extra_json_schema` is what writers should write.
    schema_version: Annotated[
        Raw | UnsetType,
        Meta(
            description="Version of this form. Known fields never change their meaning.",
            extra_json_schema={"type": "integer", "minimum": 1},
        ),
    ] = UNSET
    state: Annotated[
        str | None,
        Meta(
            description="State that the process reports. The container's exit code takes precedence over it.",
            extra_json_schema={"type": "string", "enum": list(STATES)},
        ),
    ] = None
    ending: Annotated[
        str | None,
        Meta(
            description="How the run ended: as planned, stopped earlier on purpose, preempted (by SIGTERM), "
            "or failed. Absent while it runs. Readers ignore a value that they do not know.",
            extra_json_schema={"type": "string", "enum": list(ENDINGS)},
        ),
    ] = None
    step: Annotated[
        Number, Meta(description="Optimizer steps finished; 0 before the first.", extra_json_schema=_COUNT)
    ] = None
    total_steps: Annotated[
        Number,
        Meta(
            description="Steps planned, at least step. Absent when the end is not known.",
            extra_json_schema={**_COUNT, "minimum": 1},
        ),
    ] = None
    epoch: Annotated[
        Number, Meta(description="Epochs finished; may be a fraction.", extra_json_schema=_AMOUNT)
    ] = None
    total_epochs: Annotated[Number, Meta(description="Epochs planned.", extra_json_schema=_AMOUNT)] = None
    progress_percentage: Annotated[
        Number,
        Meta(
            description="How much of the run is done.",
            extra_json_schema={"type": "integer", "minimum": 0, "maximum": 100},
        ),
    ] = None
    estimated_remaining_seconds: Annotated[
        Number, Meta(description="Estimated time until the run ends.", extra_json_schema=_COUNT)
    ] = None
    metrics: Annotated[
        dict[str, int | float | str | None] | None,
        Meta(
            description="The latest value of each metric. NaN and infinities are the strings nan, inf and"
            " -inf.",
            extra_json_schema=_METRICS,
        ),
    ] = None
    message: Annotated[
        str | None,
        Meta(
            description="A sentence for people.",
            extra_json_schema={"type": "string", "maxLength": MAX_MESSAGE_CHARACTERS},
        ),
    ] = None
    start_time: Annotated[
        str | None, Meta(description="When this attempt began to train.", extra_json_schema=TIME_SCHEMA)
    ] = None
    timestamp: Annotated[
        str | None,
        Meta(
            description="When the numbers last changed, by the training process's clock.",
            extra_json_schema=TIME_SCHEMA,
        ),
    ] = None
    rank: Annotated[
        Number, Meta(description="Global rank of the process that wrote this.", extra_json_schema=_COUNT)
    ] = None
    attempt: Annotated[
        Number,
        Meta(
            description="Earlier starts of this training, where the launcher counts them.",
            extra_json_schema=_COUNT,
        ),
    ] = None
    recent: Annotated[
        Raw | UnsetType,
        Meta(
            description="Values that came shortly before, without the document's own, so that readers that"
            " come rarely miss none. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
            extra_json_schema={"$ref": "#/$defs/RecentValues"},
        ),
    ] = UNSET
    ranks: Annotated[
        Raw | UnsetType,
        Meta(
            description="The pace of all ranks, as rank 0 has last gathered it: of more than 64 the slowest"
            " and a selection. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
            extra_json_schema={"$ref": "#/$defs/RankColumns"},
        ),
    ] = UNSET


class _Wrapped(msgspec.Struct, rename="camel"):
    """Upstream's form, as it is pushed, or bare; what has a timestamp is our own."""

    timestamp: Raw | UnsetType = UNSET

    trainer_status: TrainerStatus | UnsetType | None = UNSET
    last_updated_time: Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(ProgressDocument).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode
_decode_bare = msgspec.json.Decoder(TrainerStatus).decode


def parse_document(data: bytes) -> Progress | Refused:
    """The document in `data`: our own form, or upstream's trainerStatus, wrapped as pushed or bare."""
    try:
        _check(data)
        return _read(data)
    except Refusal as refusal:
        return refusal.refused


def describe_excess(data: bytes) -> str | None:
    """Why `data`, valid JSON or not, may cost more than its length; None when it does not.

    A decoder's own limit of levels depends on Python's version and on the stack.
    """
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        brackets = b"".join(pieces[::2]).translate(None, _NO_BRACKETS)  # every other piece is a string
        if len(brackets) > MAX_BRACKETS:
            return f"has more than {MAX_BRACKETS // 2} arrays and objects"
        if _is_deep(brackets):
            return f"is nested more than {MAX_DEPTH} levels deep"
    if len(data) > MAX_UNCHECKED_BYTES:
        digits = data.translate(_ZEROS, b"+-")
        if digits.count(b"0e000") + digits.count(b"0" * 40) > MAX_EXTREMES:
            return f"has more than {MAX_EXTREMES} numbers of extreme size or length"
    return None


_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ZEROS = bytes.maketrans(b"E123456789", b"e000000000")


def _is_deep(brackets: bytes) -> bool:
    depth = 0
    for bracket in brackets:
        if bracket in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        else:
            depth -= 1
    return False


def describe_mismatch(data: bytes, error: msgspec.ValidationError) -> tuple[str, str]:
    """The reason of a refusal, and the field that has the wrong type with the right one.

    The field's value and the names of metrics are left out.
    """
    match = _MISMATCH.match(str(error))
    if match is None:
        try:
            msgspec.json.decode(data, type=Raw)
        except msgspec.DecodeError:
            return "NotJSON", "is not JSON"
        return "NotAnObject", "must be an object"
    expected, path = match.groups()
    wanted = next(words for type_, words in _WORDS.items() if type_ in expected) if expected else "in range"
    return "InvalidField", f"{_INDEX.sub('', path)} must be {wanted}"


_MISMATCH = re.compile(r"(?:Expected `([^`]*)`, got `[^`]*`|[\w ]+ out of range) - at `\$\.([\w.\[\]]+)`$")
_INDEX = re.compile(r"\[[^\]]*\]")
_WORDS = {
    "int | float | str": "a number or a string",
    "int | float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "": "of another type",
}


def _check(data: bytes) -> None:
    if len(data) > MAX_DOCUMENT_BYTES:
        _refuse("TooLarge", f"The document is larger than {MAX_DOCUMENT_BYTES} bytes.")
    if not data.strip():
        _refuse("Empty", "The document is empty.")
    try:
        data.decode()  # fields that are not read, too
    except UnicodeDecodeError:
        _refuse("NotUTF8", "The document is not UTF-8 text.")
    if (excess := describe_excess(data)) is not None:
        _refuse("TooDeep" if "nested" in excess else "TooComplex", f"The document {excess}.")


def _read(data: bytes) -> Progress:
    try:
        try:
            found = _decode(data)
        except msgspec.ValidationError:
            status = _trainer_status(data)
            if status is None:
                raise
        else:
            status = _trainer_status(data) if found.timestamp is None else None
        return _progress(found) if status is None else fit(status)[1]
    except msgspec.ValidationError as error:
        reason, words = describe_mismatch(data, error)
        _refuse(reason, f"{words}." if reason == "InvalidField" else f"The document {words}.")
    except msgspec.DecodeError:
        _refuse("NotJSON", "The document is not JSON.")


def _trainer_status(data: bytes) -> TrainerStatus | None:
    """None when it is not upstream's form."""
    found = _decode_wrapped(data)
    if found.timestamp is not UNSET:
        return None
    if found.trainer_status is None:
        _refuse("InvalidField", "trainerStatus must be an object.")
    if found.trainer_status is not UNSET:
        return found.trainer_status
    return None if found.last_updated_time is UNSET else _decode_bare(data)


def _progress(found: ProgressDocument) -> Progress:
    if found.state is not None and found.state not in STATES:
        _refuse("InvalidField", f"state must be one of {', '.join(STATES)}.")
    step, epoch = _whole_number("step", found.step), _number("epoch", found.epoch)
    steps, epochs = (
        _whole_number("totalSteps", found.total_steps),
        _number("totalEpochs", found.total_epochs),
    )
    remaining_s = _number("estimatedRemainingSeconds", found.estimated_remaining_seconds)
    timestamp = _time("timestamp", found.timestamp)
    if timestamp is None:
        _refuse("MissingField", "timestamp is required.")
    return Progress(
        timestamp=timestamp,
        state=found.state,
        ending=ENDINGS.get(found.ending),  # one that is not known yet is none
        step=step,
        total_steps=total(steps, step),
        epoch=epoch,
        total_epochs=total(epochs, epoch),
        progress_percentage=percentage(found.progress_percentage),
        remaining_s=whole(remaining_s),
        metrics=_metrics(found.metrics) if found.metrics else (),
        message=found.message[:MAX_MESSAGE_CHARACTERS] if found.message else None,
        started_at=_time("startTime", found.start_time),
        rank=_whole_number("rank", found.rank),
        attempt=_whole_number("attempt", found.attempt),
        points=() if found.recent is UNSET else read_recent(found.recent, timestamp),
        ranks=NO_RANKS if found.ranks is UNSET else read_ranks(found.ranks),
    )


def _number(name: str, value: Number) -> float | None:
    if value is None:
        return None
    if (found := amount(value)) is None:
        _refuse("InvalidField", f"{name} must lie between 0 and 2^53.")
    return found


def _whole_number(name: str, value: Number) -> int | None:
    if value is None:
        return None
    if (found := count(value)) is None:
        _refuse("InvalidField", f"{name} must be a whole number between 0 and 2^53.")
    return found


def _time(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    if (instant := parse_time(text[:MAX_TIME_CHARACTERS])) is None:
        _refuse("InvalidField", f"{name} must be an RFC 3339 time with a zone.")
    return instant


def _metrics(values: dict[str, int | float | str | None]) -> tuple[tuple[str, str], ...]:
    metrics: dict[str, str] = {}
    for name, value in values.items():
        if len(metrics) == MAX_METRICS:
            break
        if not name:
            _refuse("InvalidField", "metrics must have names.")
        if value is not None and value != "":
            metrics.setdefault(name[:MAX_METRIC_CHARACTERS], str(value)[:MAX_METRIC_CHARACTERS])
    return tuple(metrics.items())


def _refuse(reason: str, message: str) -> NoReturn:
    raise Refusal(reason, message)
