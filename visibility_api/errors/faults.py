"""Describes an unforeseen error for the log by its class and place, never by its text.

The text of an exception may quote its input: bytes of a pod, an annotation, a token.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

_FRAMES = 6  # the innermost ones


def describe_fault(error: BaseException) -> dict[str, str]:
    """Fields for a log event: `error`, the class name; `at`, `file:line function`, innermost first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    return {
        "error": type(error).__name__,
        "at": ", ".join(f"{PurePath(f.filename).name}:{f.lineno} {f.name}" for f in frames),
    }
