"""The progress document: what a training process writes (docs/document.md), read as hostile bytes.

Any bytes become a `Progress` or a `Refused`, in time and memory by their length. No byte of a refused
document is ever repeated: the path it was read from is the user's to choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import UNSET, UnsetType

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
    says,
    total,
    whole,
)
from .marks import CHECKPOINT_SCHEMA, NO_MARKS, SECTION_SCHEMA, TIME_SPENT_SCHEMA, Marks, read_marks
from .points import read_recent
from .ranks import NO_RANKS, read_ranks
from .refusals import describe_mismatch, parse_json
from .trainer_status import Number, TrainerStatus, fit

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
_AMOUNT: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": MAX_INTEGER}
_POSITIVE: dict[str, Any] = {**_COUNT, "minimum": 1}
_PERCENTAGE: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 100}
_MESSAGE: dict[str, Any] = {"type": "string", "maxLength": MAX_MESSAGE_CHARACTERS}
_NAME: dict[str, Any] = {"minLength": 1, "maxLength": MAX_METRIC_CHARACTERS}
_METRICS: dict[str, Any] = {
    "type": "object",
    "maxProperties": MAX_METRICS,
    "propertyNames": _NAME,
    "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "string", **_NAME}]},
}


def _one_of(values: Iterable[str | None]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


class ProgressDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """What a training process reports about itself; docs/document.md explains it. Writers should write what
    this schema allows; readers also accept what they can round, clamp or cut."""

    # The types are what is read; the schemas are what writers should write.
    schema_version: Annotated[
        Any | UnsetType,
        says("Version of this form. Known fields never change their meaning.", type="integer", minimum=1),
    ] = UNSET
    state: Annotated[
        str | None,
        says(
            "State that the process reports. The container's exit code takes precedence over it.",
            **_one_of(STATES),
        ),
    ] = None
    ending: Annotated[
        str | None,
        says(
            "How the run ended: as planned, stopped earlier on purpose, preempted (by SIGTERM), or failed."
            " Absent while it runs. Readers ignore a value that they do not know.",
            **_one_of(ENDINGS),
        ),
    ] = None
    step: Annotated[Number, says("Optimizer steps finished; 0 before the first.", **_COUNT)] = None
    total_steps: Annotated[
        Number, says("Steps planned, at least step. Absent when the end is not known.", **_POSITIVE)
    ] = None
    epoch: Annotated[Number, says("Epochs finished; may be a fraction.", **_AMOUNT)] = None
    total_epochs: Annotated[Number, says("Epochs planned.", **_AMOUNT)] = None
    progress_percentage: Annotated[Number, says("How much of the run is done.", **_PERCENTAGE)] = None
    estimated_remaining_seconds: Annotated[Number, says("Estimated time until the run ends.", **_COUNT)] = (
        None
    )
    metrics: Annotated[
        dict[str, int | float | str | None] | None,
        says(
            "The latest value of each metric. NaN and infinities are the strings nan, inf and -inf.",
            **_METRICS,
        ),
    ] = None
    message: Annotated[str | None, says("A sentence for people.", **_MESSAGE)] = None
    start_time: Annotated[str | None, says("When this attempt began to train.", **TIME_SCHEMA)] = None
    timestamp: Annotated[
        str | None, says("When the numbers last changed, by the training process's clock.", **TIME_SCHEMA)
    ] = None
    rank: Annotated[Number, says("Global rank of the process that wrote this.", **_COUNT)] = None
    attempt: Annotated[
        Number, says("Earlier starts of this training, where the launcher counts them.", **_COUNT)
    ] = None
    recent: Annotated[
        Any | UnsetType,
        says(
            "Values that came shortly before, without the document's own, so that readers that come rarely"
            " miss none. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
            **{"$ref": "#/$defs/RecentValues"},
        ),
    ] = UNSET
    ranks: Annotated[
        Any | UnsetType,
        says(
            "The pace of all ranks, as rank 0 has last gathered it: of more than 64 the slowest and a"
            " selection. At most 16 KiB of text. Readers ignore it where it breaks a rule.",
            **{"$ref": "#/$defs/RankColumns"},
        ),
    ] = UNSET
    time_spent: Annotated[
        Any | UnsetType,
        says(
            "Seconds of this attempt for which training waited, by kind, of sections that are closed. No"
            " second is in two kinds, and none ever shrinks. Readers ignore what breaks a rule.",
            **TIME_SPENT_SCHEMA,
        ),
    ] = UNSET
    section: Annotated[
        Any | UnsetType,
        says("The section that is open, and since when. Absent when none is.", **SECTION_SCHEMA),
    ] = UNSET
    checkpoint: Annotated[
        Any | UnsetType,
        says("The last checkpoint that is complete: its step, and when it was.", **CHECKPOINT_SCHEMA),
    ] = UNSET


class _Wrapped(msgspec.Struct, rename="camel"):
    """Upstream's form, as it is pushed."""

    trainer_status: TrainerStatus


def parse_document(data: bytes) -> Progress | Refused:
    """The document in `data`: our own form, or upstream's trainerStatus, wrapped as pushed or bare."""
    try:
        _check(data)
        try:
            parsed = parse_json(data)
        except Refusal as refusal:
            _refuse(refusal.refused.reason, f"The document {refusal.refused.message}.")
        if not isinstance(parsed, dict):
            _refuse("NotAnObject", "The document must be an object.")
        return read_document(parsed)
    except Refusal as refusal:
        return refusal.refused


def _check(data: bytes) -> None:
    if len(data) > MAX_DOCUMENT_BYTES:
        _refuse("TooLarge", f"The document is larger than {MAX_DOCUMENT_BYTES} bytes.")
    if not data.strip():
        _refuse("Empty", "The document is empty.")
    try:
        data.decode()
    except UnicodeDecodeError:
        _refuse("NotUTF8", "The document is not UTF-8 text.")


def read_document(parsed: dict[str, Any]) -> Progress:
    """The report of what was parsed. Raises Refusal."""
    try:
        if "timestamp" not in parsed:
            if "trainerStatus" in parsed:
                return fit(msgspec.convert(parsed, _Wrapped).trainer_status)[1]
            if "lastUpdatedTime" in parsed:
                return fit(msgspec.convert(parsed, TrainerStatus))[1]
        return _progress(msgspec.convert(parsed, ProgressDocument))
    except msgspec.ValidationError as error:
        _refuse("InvalidField", f"{describe_mismatch(error)}.")


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
        marks=_marks(found),
    )


def _marks(found: ProgressDocument) -> Marks:
    marks = (found.time_spent, found.section, found.checkpoint)
    return NO_MARKS if all(each is UNSET for each in marks) else read_marks(*marks)


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
        _refuse("InvalidField", f"{name} must be an RFC 3339 time with a zone, 1970-01-02 to 9998-12-31.")
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
