"""What a run marks of its time: seconds in its loader, in checkpoints and evaluations (docs/document.md).

Read as hostile bytes, like the document itself. What breaks a rule is ignored, each for itself: it is no
reason to refuse the report it comes with.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from .fields import MAX_INTEGER, TIME_SCHEMA, amount, count, time_of

SECTIONS = ("dataLoading", "checkpointSave", "checkpointRestore", "evaluation")
EVALUATION = SECTIONS.index("evaluation")

_SECONDS = {"type": "number", "minimum": 0, "maximum": MAX_INTEGER}
# What writers should write.
TIME_SPENT_SCHEMA: dict[str, Any] = {"type": "object", "properties": dict.fromkeys(SECTIONS, _SECONDS)}
SECTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": list(SECTIONS)}, "startTime": TIME_SCHEMA},
    "required": ["kind", "startTime"],
}
CHECKPOINT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "step": {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
        "timestamp": TIME_SCHEMA,
    },
    "required": ["step", "timestamp"],
}


class Marks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Times by the training process's clock. Absent is None."""

    spent_s: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # of SECTIONS that are closed
    section: int | None = None  # of SECTIONS, the one that is open
    section_at: datetime | None = None  # when it was opened
    checkpoint_step: int | None = None  # of the last complete checkpoint
    checkpoint_at: datetime | None = None  # when it was complete


NO_MARKS = Marks()


def read_marks(spent: object, section: object, checkpoint: object) -> Marks:
    """Of the fields timeSpent, section and checkpoint of a document; anything may be in them."""
    totals = _of(spent)
    kind, opened_at = _of(section).get("kind"), time_of(_of(section).get("startTime"))
    is_open = isinstance(kind, str) and kind in SECTIONS and opened_at is not None
    step, saved_at = count(_of(checkpoint).get("step")), time_of(_of(checkpoint).get("timestamp"))
    is_saved = step is not None and saved_at is not None
    loading, save, restore, evaluation = (amount(totals.get(name)) or 0.0 for name in SECTIONS)
    return Marks(
        spent_s=(loading, save, restore, evaluation),
        section=SECTIONS.index(str(kind)) if is_open else None,
        section_at=opened_at if is_open else None,
        checkpoint_step=step if is_saved else None,
        checkpoint_at=saved_at if is_saved else None,
    )


def _of(parsed: object) -> dict[Any, Any]:
    return parsed if isinstance(parsed, dict) else {}
