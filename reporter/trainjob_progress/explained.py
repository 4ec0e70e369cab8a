"""`run --explain`: says of each line of the output what was understood, or why nothing was."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Optional

from .lines import MAX_LINE, own_words
from .marks import EVALUATION, LOADING, RESTORE, SAVE
from .patterns import lazily

if TYPE_CHECKING:
    from .document import Snapshot
    from .lines import Fields
    from .section_lines import Mark

_SHOWN = 80  # characters of a line
_ESCAPES = lazily(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_NUMBER = re.compile(r"\d")
_SECTIONS = {
    LOADING: "a wait for data",
    SAVE: "a checkpoint save",
    RESTORE: "a checkpoint restore",
    EVALUATION: "an evaluation",
}


class Explainer:
    """Writes to stderr. It is a sink as well: the output is read even where nothing else takes reports."""

    interval_s = 60.0

    def __init__(self, *, has_pattern: bool) -> None:
        self._has_pattern = has_pattern
        self._is_over = False  # nobody takes what is said

    def write(self, snapshot: Snapshot) -> None:
        """Nothing: the lines say it."""

    def close(self) -> None:
        pass

    def tell(self, line: str, fields: Optional[Fields], mark: Optional[Mark]) -> None:
        """One line more on stderr. Waits for room there, as for a pager; the command does not wait."""
        text = _ESCAPES.sub("", line).strip()
        if not text or self._is_over:
            return
        said = explain(line, fields, mark, has_pattern=self._has_pattern)
        shown = "".join(each if each.isprintable() else "?" for each in text)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        try:
            os.write(2, f"[trainjob_progress] {said} <- {shown}\n".encode("utf-8", "replace"))
        except OSError:
            self._is_over = True


def explain(line: str, fields: Optional[Fields], mark: Optional[Mark], *, has_pattern: bool) -> str:
    """What was taken of it, or why nothing was."""
    parts = [] if mark is None else [f"{_SECTIONS[mark.kind]} {'begins' if mark.is_begin else 'ends'}"]
    for name, value in (fields or {}).items():
        if name == "metrics":
            parts += [f"{metric}={number}" for metric, number in value.items()]
        elif value is not None:
            parts.append(f"{name}={value}")
    if parts:
        return f"taken: {', '.join(parts)}"
    if len(line) > MAX_LINE:
        return f"not taken, longer than {MAX_LINE} characters"
    if own_words(_ESCAPES.sub("", line).rstrip()) is None:
        return "not taken, of another rank"
    if has_pattern:
        return "not taken, --pattern does not match"
    if not _NUMBER.search(line):
        return "not taken, it has no number"
    return "not taken, it shows no step, epoch, share or metric that is known"
