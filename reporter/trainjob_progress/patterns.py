"""Patterns of lines, compiled when they are first used."""

from __future__ import annotations

import re
from typing import Any


class _Pattern:
    """A pattern that is compiled when it is first used: one program's output needs few of them."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — any of re.Pattern
        compiled = re.compile(self.pattern, self._flags)
        for method in ("findall", "finditer", "fullmatch", "match", "search", "sub"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazily(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, which takes 60 ms for all patterns of these modules."""
    return _Pattern(pattern, flags)  # type: ignore[return-value]
