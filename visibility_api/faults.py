"""How an unforeseen error is told in a log: its class and place, never its text.

The text of an exception may quote what tripped the code: bytes of a pod, an annotation, a token.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

_FRAMES = 6  # the innermost ones


def describe_fault(error: BaseException) -> dict[str, str]:
    """Fields for a log event: `error`, the class's name, and `at`, `file:line function` from within out."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    return {
        "error": type(error).__name__,
        "at": ", ".join(f"{PurePath(f.filename).name}:{f.lineno} {f.name}" for f in frames),
    }
