"""Durations as kubectl shows them: `90s`, `5m30s`, `42m`, `5h10m`, `30h`, `3d4h`, `400d`, `3y50d`.

As in `k8s.io/apimachinery/pkg/util/duration/duration.go`. kubectl shows a cell as it is sent.
"""

from __future__ import annotations

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def age(seconds: int) -> str:
    """How long ago something was; `0s` for less than 2 s in the future, `<invalid>` beyond."""
    return INVALID if seconds <= -2 else duration(max(0, seconds))


def duration(seconds: int) -> str:
    """A duration of at least 0 seconds, as Go's `duration.HumanDuration`."""
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _pair(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _pair(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _pair(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _pair(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _pair(seconds: int, unit: int, name: str, lesser: int, lesser_name: str) -> str:
    """Two units; a second part of 0 is omitted."""
    whole, rest = divmod(seconds, unit)
    return f"{whole}{name}{rest // lesser}{lesser_name}" if rest // lesser else f"{whole}{name}"
