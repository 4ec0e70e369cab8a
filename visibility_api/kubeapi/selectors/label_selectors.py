"""Parses label selectors, with grammar and error texts of `k8s.io/apimachinery/pkg/labels/selector.go`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from visibility_api.errors.status import BadRequest

from .label_syntax import invalid_value, key_fault, value_fault
from .selection import LabelRequirement, LabelSelector, Operator, parse_int64

# A selector that names a few hundred objects fits. Each requirement is compared with each object.
MAX_CHARACTERS = 16 * 1024
MAX_REQUIREMENTS = 256
_TOKEN = re.compile(r"[ \t\r\n]*(?:([!=]=|[=!(),><])|([^=!(),>< \t\r\n]+))")
_OPERATORS: dict[str, Operator] = {
    "in": "In",
    "notin": "NotIn",
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
}

_Token = tuple[str, str]  # kind: "id", "end" or the symbol itself; and its text
_END: _Token = ("end", "")


def parse_label_selector(text: str) -> LabelSelector:
    """The selector in `text`. Raises BadRequest."""
    requirements = list(itertools.islice(_Parser(text).requirements(), MAX_REQUIREMENTS + 1))
    check_size(text, len(requirements))
    return LabelSelector(tuple(sorted(requirements, key=lambda r: r.key)))


def check_size(text: str, requirements: int) -> None:
    """Raises BadRequest for a selector that is too long, or has too many requirements."""
    if len(text) > MAX_CHARACTERS:
        raise BadRequest(f"the selector is longer than {MAX_CHARACTERS} characters")
    if requirements > MAX_REQUIREMENTS:
        raise BadRequest(f"the selector has more than {MAX_REQUIREMENTS} requirements")


class _Parser:
    def __init__(self, text: str) -> None:
        check_size(text, 0)
        self._tokens = list(_scan(text))
        self._at = 0

    def requirements(self) -> Iterator[LabelRequirement]:
        while True:
            kind, text = self._peek()
            if kind == "end":
                return
            if kind not in ("id", "!"):
                raise BadRequest(f"found '{text}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            kind, text = self._take()
            if kind == "end":
                return
            if kind != ",":
                raise BadRequest(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self._peek()
            if kind not in ("id", "!"):
                raise BadRequest(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> LabelRequirement:
        kind, key = self._take()
        is_negated = kind == "!"
        if is_negated:
            kind, key = self._take()
        if kind != "id":
            raise _refused(f"found '{key}', expected: identifier")
        if fault := key_fault(key):
            raise _refused(invalid_value("", key, fault))
        if is_negated:
            return LabelRequirement(key, "DoesNotExist")
        if self._peek()[0] in ("end", ","):
            return LabelRequirement(key, "Exists")
        return self._comparison(key)

    def _comparison(self, key: str) -> LabelRequirement:
        kind, text = self._take()
        operator = _OPERATORS.get(text if kind == "id" else kind)
        if operator is None:
            raise _refused(f"found '{text}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if text in ("in", "notin") else {self._one_value()}
        for index, value in enumerate(sorted(values)):
            if operator in ("Gt", "Lt") and parse_int64(value) is None:
                fault = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise _refused(invalid_value(f"values[{index}]", value, fault))
            if fault_ := value_fault(value):
                raise _refused(invalid_value(f"values[{index}][{key}]", value, fault_))
        return LabelRequirement(key, operator, frozenset(values))

    def _one_value(self) -> str:
        if self._peek()[0] in ("end", ","):
            return ""
        kind, text = self._take()
        if kind != "id":
            raise _refused(f"found '{text}', expected: identifier")
        return text

    def _set(self) -> set[str]:
        kind, text = self._take()
        if kind != "(":
            raise _refused(f"found '{text}' expected: '('")
        kind, text = self._peek()
        if kind == ")":
            self._take()
            return {""}
        if kind not in ("id", ","):
            raise _refused(f"found '{text}', expected: ',', ')' or identifier")
        return self._members()

    def _members(self) -> set[str]:
        """Values up to the closing parenthesis; two adjacent commas have the empty value between them."""
        values: set[str] = set()
        is_value_expected = True
        while True:
            kind, text = self._take()
            if kind == "id" and is_value_expected:
                values.add(text)
                is_value_expected = False
            elif kind == ",":
                if is_value_expected:
                    values.add("")
                is_value_expected = True
            elif kind == ")":
                if is_value_expected:
                    values.add("")
                return values
            else:
                expected = "',', or identifier" if is_value_expected else "',' or ')'"
                raise _refused(f"found '{text}', expected: {expected}")

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token


def _scan(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        symbol, identifier = match.groups()
        yield (symbol, symbol) if symbol else ("id", identifier)


def _refused(why: str) -> BadRequest:
    return BadRequest(f"unable to parse requirement: {why}")
