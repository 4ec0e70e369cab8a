"""The annotations of a job that say when its conditions hold. They are untrusted: see `annotations`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, cast

from visibility_api.errors.text import harmless
from visibility_api.jobs.job import StopRule, Thresholds
from visibility_api.models.wire import parse_duration_s
from visibility_api.reports.fields import MAX_METRIC_CHARACTERS

KEYS = (
    "stalled-after",
    "diverged-above",
    "straggling-above",
    "plateau-metric",
    "plateau-better",
    "plateau-after",
    "goodput-below",
    "at-risk-after",
    "should-stop",
    "should-stop-label",
    "idle-after",
)
OFF = "off"
MIN_STALLED_S, MAX_STALLED_S = 10.0, 7 * 86400.0
MIN_IDLE_S = 60.0
MIN_FACTOR, MAX_FACTOR = 1.1, 1000.0
MIN_PLATEAU_S, MAX_PLATEAU_S = 60.0, 30 * 86400.0
MIN_VALUES, MAX_VALUES = 2, 100_000
MAX_RULES, MAX_RULES_CHARACTERS = 4, 512
MEDIAN_VALUES = 4  # as Katib's start_step
WINDOWS_S = {"1h": 3600.0, "24h": 86400.0}

_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_STOP_RULE = re.compile(
    rf"(?:(?P<median>median)|(?P<metric>[^<>=@,]{{1,{MAX_METRIC_CHARACTERS}}}?)\s*(?P<comparison>[<>=])\s*"
    r"(?P<value>[^<>=@,\s]{1,64}))\s*(?:@(?P<least>[1-9]\d{0,2}))?",
    re.ASCII,
)
_NONE = Thresholds()


def read_thresholds(given: Mapping[str, str], prefix: str, refuse: Callable[[str, str], None]) -> Thresholds:
    """The thresholds of the annotations with this prefix.

    `refuse` is called with the key of an invalid one, and what would be accepted.
    """
    found = {key: given[prefix + key] for key in KEYS if prefix + key in given}
    if not found:
        return _NONE
    below, window_s = _read_goodput_below(found.get("goodput-below"), refuse)
    values, after_s = _read_plateau_after(found.get("plateau-after"), refuse)
    metric = found.get("plateau-metric")
    if metric is not None and (not 0 < len(metric) <= MAX_METRIC_CHARACTERS or harmless(metric) != metric):
        refuse("plateau-metric", f"it must be a metric's name, {MAX_METRIC_CHARACTERS} characters at most")
        metric = None

    def limit(key: str, read: Callable[[str], float | None], accepted: str) -> float | None:
        text = found.get(key)
        if text is None or text == OFF:
            return None if text is None else math.inf
        if (value := read(text)) is None:
            refuse(key, f'it must be {accepted}, or "off"')
        return value

    return Thresholds(
        stalled_after_s=limit("stalled-after", _read_stalled_s, 'a duration such as "10m", from 10s to 168h'),
        diverged_above=limit("diverged-above", _read_number, 'a number such as "20"'),
        straggling_above=limit(
            "straggling-above", _read_factor, f'a factor such as "2", {MIN_FACTOR:g} to {MAX_FACTOR:g}'
        ),
        plateau_metric=metric,
        plateau_better=_read_better(found.get("plateau-better"), refuse),
        plateau_after_s=after_s,
        plateau_values=values,
        goodput_below=below,
        goodput_window_s=window_s,
        at_risk_after_s=limit("at-risk-after", _read_stalled_s, 'a duration such as "1h", from 10s to 168h'),
        stop_rules=_read_stop_rules(found.get("should-stop"), refuse),
        stop_label=_read_label(found.get("should-stop-label"), refuse),
        idle_after_s=limit("idle-after", _read_idle_s, 'a duration such as "30m", from 1m to 168h'),
    )


def _read_stop_rules(text: str | None, refuse: Callable[[str, str], None]) -> tuple[StopRule, ...]:
    rules: list[StopRule] = []
    for part in (
        text.split(",") if text is not None and text != OFF and len(text) <= MAX_RULES_CHARACTERS else ()
    ):
        found = _STOP_RULE.fullmatch(part.strip())
        value = _read_number(found["value"]) if found is not None and found["value"] else None
        if found is None or (value is None and not found["median"]) or harmless(part) != part:
            rules.clear()
            break
        least = int(found["least"] or (MEDIAN_VALUES if found["median"] else 1))
        if found["median"]:
            rules.append(StopRule(least=least))
        elif value is not None:
            comparison = cast("Literal['<', '>', '=']", found["comparison"])
            rules.append(StopRule(metric=found["metric"], comparison=comparison, value=value, least=least))
    if (not rules or len(rules) > MAX_RULES) and text is not None and text != OFF:
        what = (
            f'up to {MAX_RULES} rules such as "median", "loss>2.5" or "accuracy<0.5@10", with commas between'
        )
        refuse("should-stop", f'it must be {what}, or "off"')
        return ()
    return tuple(rules)


def _read_label(text: str | None, refuse: Callable[[str, str], None]) -> str | None:
    if text is not None and not _LABEL.fullmatch(text):
        refuse("should-stop-label", "it must be the key of a label")
        return None
    return text


def _read_stalled_s(text: str) -> float | None:
    seconds = parse_duration_s(text)
    return seconds if seconds is not None and MIN_STALLED_S <= seconds <= MAX_STALLED_S else None


def _read_idle_s(text: str) -> float | None:
    seconds = _read_stalled_s(text)
    return seconds if seconds is not None and seconds >= MIN_IDLE_S else None


def _read_number(text: str) -> float | None:
    return float(text) if len(text) <= MAX_METRIC_CHARACTERS and _NUMBER.fullmatch(text) else None


def _read_factor(text: str) -> float | None:
    factor = _read_number(text)
    return factor if factor is not None and MIN_FACTOR <= factor <= MAX_FACTOR else None


def _read_better(text: str | None, refuse: Callable[[str, str], None]) -> Literal["min", "max"] | None:
    if text == "min":
        return "min"
    if text == "max":
        return "max"
    if text is not None:
        refuse("plateau-better", 'it must be "min" or "max"')
    return None


def _read_goodput_below(text: str | None, refuse: Callable[[str, str], None]) -> tuple[float | None, float]:
    """A share, and seconds of the window of which it is."""
    if text is None or text == OFF:
        return None, WINDOWS_S["1h"]
    share, _, window = text.partition("/")
    percentage = _read_number(share.removesuffix("%")) if share.endswith("%") else None
    if percentage is None or not 0 < percentage <= 100 or (window or "1h") not in WINDOWS_S:
        refuse("goodput-below", 'it must be a percentage such as "50%", "50%/1h" or "50%/24h", or "off"')
        return None, WINDOWS_S["1h"]
    return percentage / 100, WINDOWS_S[window or "1h"]


def _read_plateau_after(
    text: str | None, refuse: Callable[[str, str], None]
) -> tuple[int | None, float | None]:
    """Values, or seconds; both None where it is neither."""
    if text is None or text == OFF:
        return None, None if text is None else math.inf
    if text.isascii() and text.isdigit() and len(text) <= 6:
        if MIN_VALUES <= int(text) <= MAX_VALUES:
            return int(text), None
    elif (seconds := parse_duration_s(text)) is not None and MIN_PLATEAU_S <= seconds <= MAX_PLATEAU_S:
        return None, seconds
    accepted = f'{MIN_VALUES} to {MAX_VALUES} values, a duration such as "30m" (1m to 720h), or "off"'
    refuse("plateau-after", f"it must be {accepted}")
    return None, None
