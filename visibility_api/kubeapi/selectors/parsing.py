"""Parses field selectors, as `k8s.io/apimachinery/pkg/fields/selector.go`. Labels: `label_selectors`."""

from __future__ import annotations

from visibility_api.errors.status import BadRequest

from .label_selectors import check_size, parse_label_selector
from .selection import FieldRequirement, FieldSelector

__all__ = ["parse_field_selector", "parse_label_selector"]


def parse_field_selector(text: str) -> FieldSelector:
    """The selector in `text`: terms `a=b`, `a==b`, `a!=b` joined by commas. Raises BadRequest."""
    check_size(text, 0)
    found = [term for term in _split_terms(text) if term]
    check_size(text, len(found))
    terms = (_field_term(term, text) for term in sorted(found))
    return FieldSelector(tuple(term for term in terms if term.field or term.value))


def _split_terms(text: str) -> list[str]:
    terms, start, is_escaped = [], 0, False
    for at, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == ",":
            terms.append(text[start:at])
            start = at + 1
    return [*terms, text[start:]]


def _field_term(term: str, text: str) -> FieldRequirement:
    for at in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, at):
                value = _unescape(term[at + len(operator) :])
                return FieldRequirement(term[:at], operator != "!=", value)
    raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")


def _unescape(text: str) -> str:
    value: list[str] = []
    characters = iter(text)
    for character in characters:
        if character in ",=":
            # Go prints the rune as a number.
            raise BadRequest(f"invalid field selector: unescaped character in value: {ord(character)}")
        if character == "\\":
            character = next(characters, "")
            if character not in ("\\", ",", "="):
                raise BadRequest(f"invalid field selector: invalid escape sequence: \\{character}")
        value.append(character)
    return "".join(value)
