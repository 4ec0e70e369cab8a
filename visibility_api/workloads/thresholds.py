"""The annotations of a job that say when its conditions hold. They are untrusted: see `annotations`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import Thresholds
from visibility_api.models.wire import parse_duration_s
from visibility_api.reports.fields import MAX_METRIC_CHARACTERS

KEYS = (
    "stalled-after",
    "diverged-above",
    "straggling-above",
    "plateau-metric",
    "plateau-better",
    "plateau-after",
)
OFF = "off"
MIN_STALLED_S, MAX_STALLED_S = 10.0, 7 * 86400.0
MIN_FACTOR, MAX_FACTOR = 1.1, 1000.0
MIN_PLATEAU_S, MAX_PLATEAU_S = 60.0, 30 * 86400.0
MIN_VALUES, MAX_VALUES = 2, 100_000

_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_NONE = Thresholds()


def read_thresholds(given: Mapping[str, str], prefix: str, refuse: Callable[[str, str], None]) -> Thresholds:
    """What the annotations that begin with `prefix` say; `refuse` is called with the key of an invalid one,
    and what would be accepted."""
    found = {key: given[prefix + key] for key in KEYS if prefix + key in given}
    if not found:
        return _NONE
    values = after_s = None
    after = found.get("plateau-after")
    if after is not None:
        values, after_s = _read_patience(after)
        if values is None and after_s is None:
            accepted = f'{MIN_VALUES} to {MAX_VALUES} values, a duration such as "30m" (1m to 720h), or "off"'
            refuse("plateau-after", f"it must be {accepted}")
    metric = found.get("plateau-metric")
    if metric is not None and (not 0 < len(metric) <= MAX_METRIC_CHARACTERS or harmless(metric) != metric):
        refuse("plateau-metric", f"it must be a metric's name, {MAX_METRIC_CHARACTERS} characters at most")
        metric = None
    return Thresholds(
        stalled_after_s=_read_stalled_s(found.get("stalled-after"), refuse),
        diverged_above=_read_diverged(found.get("diverged-above"), refuse),
        straggling_above=_read_factor(found.get("straggling-above"), refuse),
        plateau_metric=metric,
        plateau_better=_read_better(found.get("plateau-better"), refuse),
        plateau_after_s=after_s,
        plateau_values=values,
    )


def _read_stalled_s(text: str | None, refuse: Callable[[str, str], None]) -> float | None:
    if text is None or text == OFF:
        return None if text is None else math.inf
    seconds = parse_duration_s(text)
    if seconds is None or not MIN_STALLED_S <= seconds <= MAX_STALLED_S:
        refuse("stalled-after", 'it must be a duration such as "10m", from 10s to 168h, or "off"')
        return None
    return seconds


def _read_diverged(text: str | None, refuse: Callable[[str, str], None]) -> float | None:
    if text is None or text == OFF:
        return None if text is None else math.inf
    if len(text) > MAX_METRIC_CHARACTERS or not _NUMBER.fullmatch(text):
        refuse("diverged-above", 'it must be a number such as "20", or "off"')
        return None
    return float(text)


def _read_factor(text: str | None, refuse: Callable[[str, str], None]) -> float | None:
    if text is None or text == OFF:
        return None if text is None else math.inf
    if len(text) <= MAX_METRIC_CHARACTERS and _NUMBER.fullmatch(text):
        factor = float(text)
        if MIN_FACTOR <= factor <= MAX_FACTOR:
            return factor
    refuse("straggling-above", f'it must be a factor such as "2", {MIN_FACTOR:g} to {MAX_FACTOR:g}, or "off"')
    return None


def _read_better(text: str | None, refuse: Callable[[str, str], None]) -> Literal["min", "max"] | None:
    if text is None:
        return None
    if text == "min":
        return "min"
    if text == "max":
        return "max"
    refuse("plateau-better", 'it must be "min" or "max"')
    return None


def _read_patience(text: str) -> tuple[int | None, float | None]:
    """Values, or seconds; both None where it is neither."""
    if text == OFF:
        return None, math.inf
    if text.isascii() and text.isdigit() and len(text) <= 6:
        values = int(text)
        return (values, None) if MIN_VALUES <= values <= MAX_VALUES else (None, None)
    seconds = parse_duration_s(text)
    return None, seconds if seconds is not None and MIN_PLATEAU_S <= seconds <= MAX_PLATEAU_S else None
