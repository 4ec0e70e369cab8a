"""The progress document: what a training process writes (docs/document.md), read as hostile bytes.

Any bytes become a `Progress` or a `Refused`, in bounded time and memory, and no byte of a refused document
is ever repeated: the path it was read from is the user's to choose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, NoReturn, get_args

import msgspec

from .depth import MAX_DEPTH, is_too_deep
from .limits import (
    EARLIEST,
    LATEST,
    MAX_DOCUMENT_BYTES,
    MAX_INTEGER,
    MAX_MESSAGE_CHARACTERS,
    MAX_METRIC_CHARACTERS,
    MAX_METRICS,
    Count,
    Name,
    Share,
    Value,
)
from .points import Point as Point, read_recent
from .ranks import NO_RANKS, Ranks, read_ranks

State = Literal["running", "completed", "failed"]
STATES: tuple[State, ...] = ("running", "completed", "failed")
Ending = Literal["finished", "stopped", "preempted", "failed"]
ENDINGS: Mapping[str | None, Ending] = {ending: ending for ending in get_args(Ending)}


class Progress(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The report: how far one training process has come, by its own account. Absent is None."""

    # The training process's clock, UTC; may disagree with ours. None: this form of report carries no time.
    timestamp: datetime | None = None
    state: State | None = None
    ending: Ending | None = None  # how the run ended; None while it runs, and of older reporters
    step: int | None = None  # optimizer steps finished
    total_steps: int | None = None  # at least `step`; None when the run has no planned end
    epoch: float | None = None
    total_epochs: float | None = None
    progress_percentage: int | None = None  # 0 to 100
    remaining_s: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()  # in the order they were written
    message: str | None = None
    started_at: datetime | None = None
    rank: int | None = None
    attempt: int | None = None
    # Earlier values, oldest first, without the report's own: for whoever keeps a history. They make no report
    # news, and are never held: `without_points`.
    points: tuple[Point, ...] = ()
    # How all ranks get on. The same holds of it.
    ranks: Ranks = NO_RANKS

    @property
    def is_final(self) -> bool:
        return self.state in ("completed", "failed") or self.ending is not None

    @property
    def is_whole(self) -> bool:
        """Whether the run says that all of what was planned is done, though steps may not show it."""
        return self.state == "completed" and self.ending != "stopped"


class RetryClass(Enum):
    """How soon to probe again after a probe that brought no report."""

    SOON = "soon"  # connection trouble: not the job's fault, and it ends for all jobs at once
    LATER = "later"  # answered, but there is no report yet: the first one may be about to be written
    FORBIDDEN = (
        "forbidden"  # a right is missing: it may be granted at any time, and trying costs no pod anything
    )
    RARELY = "rarely"  # permanent for this pod, or probing itself costs the pod something


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why there is no report, in our own words only."""

    reason: str  # CamelCase, shown as the reason of a condition
    message: str
    retry: RetryClass = (
        RetryClass.LATER
    )  # what cannot be parsed may have been caught in the middle of a write


Outcome = Progress | Refused  # of reading one source once


_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Plain(msgspec.Struct, kw_only=True):
    """Our own form when every field is in bounds: read at a fifth of the cost, for thousands of them come."""

    timestamp: _Moment
    state: State | None = None
    ending: Annotated[str, msgspec.Meta(max_length=MAX_METRIC_CHARACTERS)] | None = None
    step: Count = None
    totalSteps: Count = None
    epoch: Share = None
    totalEpochs: Share = None
    progressPercentage: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    estimatedRemainingSeconds: Count = None
    metrics: Annotated[dict[Name, Value], msgspec.Meta(max_length=MAX_METRICS)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE_CHARACTERS)] | None = None
    startTime: _Moment | None = None
    rank: Count = None
    attempt: Count = None
    recent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ranks: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Tail(msgspec.Struct):
    recent: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    ranks: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_plain = msgspec.json.Decoder(_Plain).decode


class _Refusal(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason)
        self.refused = Refused(reason=reason, message=message)


def parse_document(data: bytes) -> Progress | Refused:
    """The document in `data`: our own form, or upstream's trainerStatus, wrapped as pushed or bare."""
    if (plain := _plain(data)) is not None:
        return plain
    try:
        fields = _object(data)
        if "timestamp" not in fields and ("trainerStatus" in fields or "lastUpdatedTime" in fields):
            return _trainer_status(fields.get("trainerStatus", fields))
        return _own_form(fields, data)
    except _Refusal as refusal:
        return refusal.refused


def read_trainer_status(status: Mapping[str, Any]) -> Progress | Refused:
    """The same for a trainerStatus that is decoded already: what stands in a TrainJob's status."""
    try:
        return _trainer_status(status)
    except _Refusal as refusal:
        return refusal.refused


def _plain(data: bytes) -> Progress | None:
    """None for whatever needs the slower parser, which says what is wrong."""
    if len(data) > MAX_DOCUMENT_BYTES or is_too_deep(data):
        return None
    try:
        data.decode()  # fields that are not read, too
        found = _decode_plain(data)
        timestamp = _in_reach(found.timestamp)
        started_at = _in_reach(found.startTime) if found.startTime is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError):
        return None
    if timestamp is None or (started_at is None and found.startTime is not None):
        return None
    step, total, epoch, epochs = found.step, found.totalSteps, found.epoch, found.totalEpochs
    return Progress(
        timestamp=timestamp,
        state=found.state,
        ending=ENDINGS.get(found.ending),
        step=step,
        total_steps=total if total and total >= (step or 0) else None,
        epoch=epoch,
        total_epochs=epochs if epochs and epochs >= (epoch or 0) else None,
        progress_percentage=found.progressPercentage,
        remaining_s=found.estimatedRemainingSeconds,
        metrics=tuple(
            [(name, str(value)) for name, value in (found.metrics or {}).items() if value not in (None, "")]
        ),
        message=found.message or None,
        started_at=started_at,
        rank=found.rank,
        attempt=found.attempt,
        points=() if found.recent is msgspec.UNSET else read_recent(found.recent, timestamp),
        ranks=NO_RANKS if found.ranks is msgspec.UNSET else read_ranks(found.ranks),
    )


def _in_reach(moment: datetime) -> datetime | None:
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return moment if EARLIEST <= moment <= LATEST else None


def _object(data: bytes) -> Mapping[str, Any]:
    if len(data) > MAX_DOCUMENT_BYTES:
        _refuse("TooLarge", f"The document is larger than {MAX_DOCUMENT_BYTES} bytes.")
    if not data.strip():
        _refuse("Empty", "The document is empty.")
    try:
        data.decode()
    except UnicodeDecodeError:
        _refuse("NotUTF8", "The document is not UTF-8 text.")
    if is_too_deep(data):
        _refuse("TooDeep", f"The document is nested more than {MAX_DEPTH} levels deep.")
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        _refuse("NotJSON", "The document is not valid JSON.")
    if not isinstance(value, dict):
        _refuse("NotAnObject", "The document is not a JSON object.")
    return value


def _own_form(fields: Mapping[str, Any], data: bytes) -> Progress:
    state = fields.get("state")
    if state is not None and state not in STATES:
        _refuse("InvalidField", f"state must be one of {', '.join(STATES)}.")
    step, total = _integer(fields, "step"), _integer(fields, "totalSteps")
    epoch, epochs = _number(fields, "epoch"), _number(fields, "totalEpochs")
    message = _text(fields, "message")
    timestamp = _required_time(fields, "timestamp")
    tail = msgspec.json.decode(data, type=_Tail)
    return Progress(
        timestamp=timestamp,
        state=state,
        ending=ENDINGS.get(_text(fields, "ending")),  # one that is not known yet is none
        step=step,
        total_steps=total if total and total >= (step or 0) else None,
        epoch=epoch,
        total_epochs=epochs if epochs and epochs >= (epoch or 0) else None,
        progress_percentage=_percentage(fields, "progressPercentage"),
        remaining_s=_rounded(fields, "estimatedRemainingSeconds"),
        metrics=_metrics(fields.get("metrics")),
        message=message[:MAX_MESSAGE_CHARACTERS] if message else None,
        started_at=_time(fields, "startTime"),
        rank=_integer(fields, "rank"),
        attempt=_integer(fields, "attempt"),
        points=() if tail.recent is msgspec.UNSET else read_recent(tail.recent, timestamp),
        ranks=NO_RANKS if tail.ranks is msgspec.UNSET else read_ranks(tail.ranks),
    )


def _trainer_status(status: object) -> Progress:
    """Kubeflow Trainer's form (KEP-2779); clamped and rounded where its own server refuses."""
    if not isinstance(status, dict):
        _refuse("InvalidField", "trainerStatus must be an object.")
    pairs = status.get("metrics") or []
    if not isinstance(pairs, (list, tuple)):
        _refuse("InvalidField", "trainerStatus.metrics must be a list.")
    metrics: dict[str, object] = {}
    for pair in pairs[:MAX_METRICS]:
        if not isinstance(pair, dict):
            _refuse("InvalidField", "trainerStatus.metrics must hold objects.")
        if not isinstance(name := pair.get("name"), str):
            _refuse("InvalidField", "metrics must have names.")
        metrics[name] = pair.get("value")
    return Progress(
        timestamp=_required_time(status, "lastUpdatedTime"),
        progress_percentage=_percentage(status, "progressPercentage"),
        remaining_s=_rounded(status, "estimatedRemainingSeconds"),
        **take_position(metrics),
        metrics=_metrics(metrics),
    )


# Upstream's form has no place for steps and epochs: Hugging Face's callback and our reporter send them so.
def take_position(metrics: dict[str, Any]) -> dict[str, Any]:
    """Takes steps and epochs out of the metrics, as fields of `Progress`.

    What is no count of anything stays a metric.
    """
    step, total = _take_number(metrics, "current_step"), _take_number(metrics, "total_steps")
    epoch, epochs = _take_number(metrics, "current_epoch"), _take_number(metrics, "total_epochs")
    return {
        "step": None if step is None else int(step),
        "total_steps": int(total) if total and total >= (step or 0) else None,
        "epoch": epoch,
        "total_epochs": epochs if epochs and epochs >= (epoch or 0) else None,
    }


def _take_number(metrics: dict[str, Any], name: str) -> float | None:
    if name not in metrics:
        return None
    try:
        value = float(str(metrics[name])[:MAX_METRIC_CHARACTERS])
    except ValueError:
        return None
    if not 0 <= value <= MAX_INTEGER or ("step" in name and not value.is_integer()):
        return None
    del metrics[name]
    return value


def _metrics(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        _refuse("InvalidField", "metrics must be an object.")
    metrics: dict[str, str] = {}
    for name, number in value.items():
        if len(metrics) == MAX_METRICS:
            break
        if not isinstance(name, str) or not name:
            _refuse("InvalidField", "metrics must have names.")
        if number is None or number == "":
            continue
        if isinstance(number, bool) or not isinstance(number, (int, float, str)):
            _refuse("InvalidField", "metrics must be finite numbers or strings.")
        metrics.setdefault(name[:MAX_METRIC_CHARACTERS], str(number)[:MAX_METRIC_CHARACTERS])
    return tuple(metrics.items())


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse("InvalidField", f"{name} must be a number.")
    if not 0 <= value <= MAX_INTEGER:  # of an int first: hundreds of digits do not fit into a float
        _refuse("InvalidField", f"{name} must lie between 0 and 2^53.")
    return float(value)


def _rounded(fields: Mapping[str, Any], name: str) -> int | None:
    value = _number(fields, name)
    return None if value is None else round(value)


def _integer(fields: Mapping[str, Any], name: str) -> int | None:
    value = _number(fields, name)
    if value is not None and not value.is_integer():
        _refuse("InvalidField", f"{name} must be a whole number.")
    return None if value is None else int(value)


def _percentage(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return round(max(0, min(100, value)))  # clamped first: an int of hundreds of digits is no float
    if value is not None:
        _refuse("InvalidField", f"{name} must be a number.")
    return None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        _refuse("InvalidField", f"{name} must be a string.")
    return value


# RFC 3339 section 5.6; `fromisoformat` alone would take week dates and times without a zone.
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def parse_time(text: str) -> datetime | None:
    """The instant of an RFC 3339 text, in UTC, or None; a leap second counts as the second after it."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    is_leap = clock.endswith(":60")
    if is_leap:
        clock = clock[:-2] + "59"
    zone = "+00:00" if zone in "Zz" else zone
    try:
        instant = datetime.fromisoformat(f"{date}T{clock}.{(fraction or '0')[:6]:0<6}{zone}")
        instant = instant.astimezone(UTC) + timedelta(seconds=is_leap)
    except (ValueError, OverflowError):
        return None
    return instant if EARLIEST <= instant <= LATEST else None


def _time(fields: Mapping[str, Any], name: str) -> datetime | None:
    text = _text(fields, name)
    if text is None:
        return None
    instant = parse_time(text[:64])
    if instant is None:
        _refuse("InvalidField", f"{name} must be an RFC 3339 time with a zone.")
    return instant


def _required_time(fields: Mapping[str, Any], name: str) -> datetime:
    instant = _time(fields, name)
    if instant is None:
        _refuse("MissingField", f"{name} is required.")
    return instant


def _refuse(reason: str, message: str) -> NoReturn:
    raise _Refusal(reason, message)
