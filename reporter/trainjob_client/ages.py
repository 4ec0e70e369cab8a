"""Durations as kubectl shows ages."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 365 * 86_400}
_STEPS = (  # below so many seconds, as k8s.io/apimachinery's HumanDuration: a unit, and one for the rest
    (120, "s", ""),
    (600, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86_400, "d", "h"),
    (2 * 365 * 86_400, "d", ""),
    (8 * 365 * 86_400, "y", "d"),
)


def duration(seconds: float) -> str:
    """90s, 5m30s, 42m, 5h10m, 3d4h."""
    left = max(0, int(seconds))
    unit, lesser = next(((unit, lesser) for end, unit, lesser in _STEPS if left < end), ("y", ""))
    whole, rest = divmod(left, _UNITS[unit])
    part = rest // _UNITS[lesser] if lesser else 0
    return f"{whole}{unit}{part}{lesser}" if part else f"{whole}{unit}"


def later(cell: str, seconds: float) -> str:
    """What such a cell is after so long, or before it where `seconds` is negative; "" below 0."""
    found = re.findall(r"(\d+)([smhdy])", cell)
    if not found or "".join(map("".join, found)) != cell:
        return cell  # such as <unknown>
    then = sum(int(value) * _UNITS[unit] for value, unit in found) + seconds
    return duration(then) if then >= 0 else ""
