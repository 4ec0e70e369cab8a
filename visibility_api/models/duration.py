"""Durations as Kubernetes writes them: Go's `time.ParseDuration`, the non-negative part of it."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(ns|us|µs|ms|s|m|h)", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_CHARACTERS = 64


def parse_duration_s(text: str) -> float | None:
    """Seconds of `30s`, `1h30m`, `1.5s`, `0`; None when it is no such duration."""
    if text == "0":
        return 0.0
    if not 0 < len(text) <= MAX_CHARACTERS:
        return None
    seconds, end = 0.0, 0
    while end < len(text):
        match = _PART.match(text, end)
        if match is None:
            return None
        seconds += float(match[1]) * _UNIT_S[match[2]]
        end = match.end()
    return seconds
