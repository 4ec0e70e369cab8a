"""Parses label and field selectors: the grammars of k8s.io/apimachinery/pkg/{labels,fields}/selector.go."""

from __future__ import annotations

import re

from visibility_api.errors.status import BadRequest
from visibility_api.errors.text import quote

from .selection import FieldRequirement, FieldSelector, LabelRequirement, LabelSelector, Operator, parse_int64

# A selector that names a few hundred objects fits. Each requirement is compared with each object.
MAX_CHARACTERS = 16 * 1024
MAX_REQUIREMENTS = 256
_MAX_REPEATED_CHARACTERS = 64  # of a selector, in the error about it

# Possessive (`*+`): no text is read twice.
_SPACES = " \t\r\n"
_S = rf"[{_SPACES}]*+"
_WORD = rf"[^=!(),><{_SPACES}]"
_LABEL_TERM = re.compile(
    rf"{_S}(?:!{_S}(?P<absent>{_WORD}++)|(?P<key>{_WORD}++){_S}"
    rf"(?:(?P<in>in|notin){_S}\((?P<values>[^=!()><]*+)\)|(?P<operator>==?|!=|>|<){_S}(?P<value>{_WORD}*+))?)"
    rf"{_S}(?:,(?=.)|\Z)",
    re.DOTALL,
)
_FIELD_TERM = re.compile(r"([^=!,\\]*+)(!=|==?)((?:[^\\,=]|\\[\\,=])*+)(?:,+|\Z)")

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = re.compile(f"(?:{_NAME})?")
_LABEL_KEY = re.compile(
    rf"(?:(?=[^/]{{1,253}}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?{_NAME}"
)
_OPERATORS: dict[str, Operator] = {
    "in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt",
}  # fmt: skip


def parse_label_selector(text: str) -> LabelSelector:
    """The selector in `text`. Raises BadRequest."""
    found = map(_label_term, _split(_LABEL_TERM, text.strip(_SPACES)))
    return LabelSelector(tuple(sorted(found, key=lambda r: r.key)))


def parse_field_selector(text: str) -> FieldSelector:
    """The selector in `text`: terms `a=b`, `a==b`, `a!=b` joined by commas. Raises BadRequest."""
    found = sorted(match.group(1, 2, 3) for match in _split(_FIELD_TERM, text.strip(",")))
    return FieldSelector(
        tuple(
            FieldRequirement(field, operator != "!=", re.sub(r"\\(.)", r"\1", value))
            for field, operator, value in found
            if field or value
        )
    )


def _split(term: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The terms that `text` consists of. Raises BadRequest."""
    if len(text) > MAX_CHARACTERS:
        raise BadRequest(f"the selector is longer than {MAX_CHARACTERS} characters")
    found: list[re.Match[str]] = []
    at = 0
    while at < len(text):
        if (match := term.match(text, at)) is None:
            raise BadRequest(f"cannot parse the selector from {_shown(text[at:])} on")
        found.append(match)
        at = match.end()
    if len(found) > MAX_REQUIREMENTS:
        raise BadRequest(f"the selector has more than {MAX_REQUIREMENTS} requirements")
    return found


def _label_term(match: re.Match[str]) -> LabelRequirement:
    key = match["key"] or match["absent"]
    if not _LABEL_KEY.fullmatch(key):
        raise BadRequest(f"{_shown(key)} in the selector is not the key of a label")
    if match["absent"]:
        return LabelRequirement(key, "DoesNotExist")
    operator = match["in"] or match["operator"]
    if not operator:
        return LabelRequirement(key, "Exists")
    values = [match["value"]]
    if match["in"]:
        values = [value.strip(_SPACES) for value in match["values"].split(",")]
    for value in values:
        if not _LABEL_VALUE.fullmatch(value):
            raise BadRequest(f"{_shown(value)} in the selector is not the value of a label")
        if operator in ("<", ">") and parse_int64(value) is None:
            raise BadRequest(f"{_shown(value)} in the selector is not an integer")
    return LabelRequirement(key, _OPERATORS[operator], frozenset(values))


def _shown(text: str) -> str:
    return quote(text[:_MAX_REPEATED_CHARACTERS])
