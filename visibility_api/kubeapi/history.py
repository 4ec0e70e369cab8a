"""Encodes a job's history: as JSON in columns, or one row a point as NDJSON or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from visibility_api.errors.text import harmless
from visibility_api.history.view import HistoryView
from visibility_api.models import subresources as models
from visibility_api.models.served import Resource
from visibility_api.models.wire import parse_duration_s, struct_of
from visibility_api.reports.fields import MAX_TIME_CHARACTERS, parse_time
from visibility_api.store import Entry

from .v1alpha1 import metadata_of

_Document = struct_of(models.TrainJobProgressHistory)
_Attempt = struct_of(models.HistoryAttempt)
_Progress = struct_of(models.HistoryProgress)
_Series = struct_of(models.HistorySeries)

HEADER = ("time", "attempt", "step", "metric", "value")
# What a spreadsheet takes for the beginning of a formula: https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # and full-width

_encode = msgspec.json.Encoder().encode


def read_moment(text: str) -> datetime | float:
    """A time, or how many seconds before now. Raises ValueError."""
    moment = parse_time(text) if len(text) <= MAX_TIME_CHARACTERS else None
    found = parse_duration_s(text) if moment is None else moment
    if found is None:
        raise ValueError(
            "a time such as 2026-01-31T12:00:00Z or a duration such as 1h30m, which counts back from now"
        )
    return found


def encode_json(resource: Resource, entry: Entry, view: HistoryView) -> bytes:
    """The object, compact and without a newline."""
    return _encode(
        _Document(
            kind=cast(Any, resource.subresource("history").kind),
            api_version="visibility.trainer.kubeflow.org/v1alpha1",
            metadata=metadata_of(entry),
            attempts=tuple(
                [
                    _Attempt(
                        number=each.number,
                        start_time=_time(each.start_s),
                        first_step=each.first_step,
                        last_step=each.last_step,
                        last_time=_time(each.end_s),
                    )
                    for each in view.attempts
                ]
            ),
            progress=tuple(
                [
                    _Progress(
                        attempt=each.attempt,
                        times=tuple(each.times_s),
                        steps=None if each.steps is None else tuple(each.steps),
                        epochs=None if each.epochs is None else tuple(each.epochs),
                    )
                    for each in view.progress
                ]
            ),
            series=tuple(
                [
                    _Series(
                        metric=each.metric,
                        attempt=each.attempt,
                        times=tuple(each.times_s),
                        steps=None if each.steps is None else tuple(each.steps),
                        values=tuple(map(number_text, each.values)),
                    )
                    for each in view.series
                ]
            ),
        )
    )


def encode_ndjson(view: HistoryView) -> bytes:
    """One JSON object a line and point; a step that was not reported is null, and so are metric and value
    where an attempt reported none."""
    return b"".join(
        _encode(dict(zip(HEADER, (time, attempt, step, metric or None, value or None), strict=True))) + b"\n"
        for time, attempt, step, metric, value in _points(view)
    )


def encode_csv(view: HistoryView) -> bytes:
    """RFC 4180, with a header. A name that a spreadsheet could take for a formula begins with an apostrophe.
    Values are numbers, written by us."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(HEADER)
    for time, attempt, step, metric, value in _points(view):
        name = harmless(metric)
        quoted = "'" + name if metric.startswith(_FORMULA) or name.lstrip().startswith(_FORMULA) else name
        writer.writerow((time, attempt, "" if step is None else step, quoted, value))
    return out.getvalue().encode(errors="replace")


def number_text(value: float) -> str:
    """A metric's value as text: the shortest that reads back as the same double, as JavaScript's Number()
    and Go's ParseFloat read it."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def _points(view: HistoryView) -> Iterator[tuple[str, int, int | None, str, str]]:
    for progress in view.bare:
        none: list[None] = [None] * len(progress.times_s)
        for time_s, step, epoch in zip(
            progress.times_s, progress.steps or none, progress.epochs or none, strict=True
        ):
            yield (
                _rfc3339(time_s),
                progress.attempt,
                step,
                "" if epoch is None else "epoch",
                "" if epoch is None else number_text(epoch),
            )
    for series in view.series:
        steps = series.steps or [None] * len(series.values)
        for time_s, step, value in zip(series.times_s, steps, series.values, strict=True):
            yield _rfc3339(time_s), series.attempt, step, series.metric, number_text(value)


def _time(seconds: float) -> datetime:
    """Whole seconds, as all times of the API."""
    return datetime.fromtimestamp(math.floor(seconds), UTC)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
