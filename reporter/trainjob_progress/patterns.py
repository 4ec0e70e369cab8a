"""Patterns of lines: compiled when they are first used; and which of a user's may take for ever."""

from __future__ import annotations

import re
from typing import Any

try:
    from re import _parser  # type: ignore[attr-defined]  # Python 3.11 and later
except ImportError:
    import sre_parse as _parser

MANY = 100  # repetitions


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


def has_nested_repetition(pattern: str) -> bool:
    """Whether something that repeats without a bound has a part that does: (a+b?)*.

    Where the rest does not match, trying all ways to divide a line among them would take for ever, and
    nothing can interrupt it.
    """
    return _nests(_parser.parse(pattern), is_inside=False)


def _nests(part: Any, *, is_inside: bool) -> bool:  # noqa: ANN401 — of Python's own parser
    for name, about in part:
        is_many = str(name) in ("MAX_REPEAT", "MIN_REPEAT") and about[1] >= MANY
        if is_inside and is_many:
            return True
        inner = about if isinstance(about, (list, tuple)) else (about,)
        for one in inner:
            for each in one if isinstance(one, list) else (one,):
                if isinstance(each, _parser.SubPattern) and _nests(each, is_inside=is_inside or is_many):
                    return True
    return False
