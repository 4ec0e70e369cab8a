"""Log lines that `trainjob_progress.logging` writes: JSON objects, here text for people."""

from __future__ import annotations

from typing import Any

import msgspec

from .document import Refusal
from .refusals import parse_json

_BEGIN, _LOGGER, _LOGGER_BEFORE = '{"timestamp": "', '", "logger": "', 128
_HEAD = ("timestamp", "level", "logger", "message")
_TRACES = ("exception.stacktrace", "code.stacktrace")
# Known to whoever reads the log of this pod, or in a trace.
_LEFT_OUT = frozenset(_HEAD + _TRACES) | {
    "job", "kind", "namespace", "replica", "attempt", "total_steps", "exception.type", "exception.message",
}  # fmt: skip


def is_record(line: str) -> bool:
    """Whether a line begins as one of them."""
    return line.startswith(_BEGIN) and _LOGGER in line[:_LOGGER_BEFORE]


def show_record(line: str) -> list[str]:
    """The lines that a person reads; a line that is none of these is left as it is."""
    if not is_record(line):
        return [line]
    try:
        fields: dict[str, Any] = parse_json(line.encode("utf-8", "replace"))
        timestamp, level, logger, message = (str(fields[name]) for name in _HEAD)
        rest = [f"{name}={_show(value)}" for name, value in fields.items() if name not in _LEFT_OUT]
    except (Refusal, msgspec.MsgspecError, RecursionError, ValueError, OverflowError, KeyError):
        return [line]
    text = " ".join((timestamp, level, f"{logger}:", message, *rest))
    traces = [str(fields[name]) for name in _TRACES if name in fields]
    return [part for each in (text, *traces) for part in each.splitlines()]


def _show(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
