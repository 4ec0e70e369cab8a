"""Expressions of CEL, the Common Expression Language, over one object (https://cel.dev).

Operators write them, but every tenant may write what they read. So what an expression can cost is bounded
before it runs: its length, the functions that it calls, one loop inside another, and how much it sees.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cel

MAX_CHARACTERS, MAX_ADDITIONS = 512, 8
MAX_ITEMS, MAX_NODES, MAX_DEPTH, MAX_TEXT = 100, 2_000, 24, 1_024  # of an object, beyond which it is cut
OBJECT = "object"
PARTS = ("metadata", "spec", "status")  # of it
_OPERATORS = (
    *("!_", "-_", "_&&_", "_||_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "_-_", "_*_", "_/_"),
    *("_%_", "_?_:_", "_[_]", "@in", "@not_strictly_false"),
)
FUNCTIONS = (
    *("size", "string", "int", "uint", "double", "bool", "timestamp", "duration"),
    *("contains", "startsWith", "endsWith"),  # not `matches`: what a regular expression costs is not bounded
)
_STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_PATH = re.compile(rf"{OBJECT}(\.[A-Za-z][A-Za-z0-9]*)+", re.ASCII)
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|filter)\s*\(")
_MAP = re.compile(r"\.\s*map\s*\(")


class ExpressionFault(ValueError):
    """An expression cannot be used. The message says why, and what to do."""


class Expression:
    """One expression that has been checked."""

    def __init__(self, text: str) -> None:
        """Raises ExpressionFault."""
        if len(text) > MAX_CHARACTERS:
            raise ExpressionFault(f"has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
        _check_cost(text)
        compile_ = _library().compile
        try:
            self._program = compile_(text)
        except Exception as error:  # the library's own, of several kinds
            raise ExpressionFault(f"is no CEL expression: {_first_line(error)}") from None
        if unknown := sorted(set(self._program.functions()) - {*_OPERATORS, *FUNCTIONS}):
            raise ExpressionFault(f"calls {', '.join(unknown)}; what can be called: {', '.join(FUNCTIONS)}")
        if OBJECT not in self._program.variables():
            raise ExpressionFault(f"does not read {OBJECT}; write for instance {OBJECT}.status.phase")

        self._path = text.strip().split(".")[1:] if _PATH.fullmatch(text.strip()) else None
        # The parts of an object that it needs to be converted.
        self.parts = frozenset(each for each in PARTS if each in text and self._path is None)

    def evaluate(self, seen: Seen) -> Any:  # noqa: ANN401 - whatever it comes to
        """Its value; None where a field that it reads is missing. Raises ExpressionFault."""
        if self._path is not None:  # most are no more than this
            return seen.walk(self._path)
        try:
            return self._program.execute(seen.context)
        except (KeyError, IndexError):
            return None
        except Exception as error:
            raise ExpressionFault(_first_line(error)) from None


class Seen:
    """What expressions see of one object."""

    def __init__(self, object_: Mapping[str, Any], parts: Collection[str] = PARTS) -> None:
        """`parts`: those that expressions need to be converted."""
        self.is_whole = True  # as far as it was needed
        self._object = object_
        self._parts = parts

    def walk(self, path: Sequence[str]) -> Any:  # noqa: ANN401 - as JSON has it
        found: Any = self._object
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @cached_property
    def context(self) -> cel.Context:
        """Made once for all expressions: to convert an object costs more than to evaluate them."""
        cut = _Cut()
        seen = {name: cut.copy(self._object.get(name)) for name in self._parts}
        context: cel.Context = _library().Context(variables={OBJECT: seen})
        self.is_whole = cut.is_whole
        return context


class _Cut:
    """A copy that is no larger than an expression may see."""

    def __init__(self) -> None:
        self.is_whole = True
        self._left = MAX_NODES

    def copy(self, value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - as JSON has it
        self._left -= 1
        if isinstance(value, str):
            self.is_whole &= len(value) <= MAX_TEXT
            return value[:MAX_TEXT]
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return float(value) if abs(value) < 10**300 else 0.0
        if not isinstance(value, (dict, list)):
            return value
        if len(value) > MAX_ITEMS or depth >= MAX_DEPTH or len(value) > self._left:
            self.is_whole = False
        kept = 0 if depth >= MAX_DEPTH else max(0, min(MAX_ITEMS, self._left))
        if isinstance(value, list):
            return [self.copy(each, depth + 1) for each in value[:kept]]
        return {key: self.copy(each, depth + 1) for key, each in list(value.items())[:kept]}


def _check_cost(text: str) -> None:
    """Refuse a loop within a loop, and what makes lists and texts much larger than those of the object."""
    code = _STRING.sub("''", text)
    if '"""' in text or "'''" in text or re.search(r"[A-Za-z]'", code):
        raise ExpressionFault("has a raw, a bytes or a triple-quoted string; use 'text' or \"text\"")
    if _MAP.search(code):
        raise ExpressionFault("makes a list with map; use filter, exists, exists_one or all")
    if code.count("+") > MAX_ADDITIONS:
        raise ExpressionFault(
            f"has more than {MAX_ADDITIONS} additions, each of which may make a text longer"
        )
    for loop in _LOOP.finditer(code):
        depth, end = 1, loop.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        if _LOOP.search(code, loop.end(), end):
            raise ExpressionFault("has a loop within a loop (all, exists, exists_one, filter)")


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def _library() -> Any:  # noqa: ANN401 - a module
    """CEL, which is loaded when the first expression is read: most servers have none."""
    try:
        import cel
    except ImportError:
        raise ExpressionFault(
            "needs the package common-expression-language: install trainjob-visibility[kinds]"
        ) from None
    return cel
