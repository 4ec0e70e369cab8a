"""Label and field selectors (L15-L17): parsed once, matched often."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from localcluster.machinery.metadata import Object, labels_of
from localcluster.machinery.resources import OBJECT_FIELDS, Resource
from localcluster.machinery.status import bad_request

Predicate = Callable[[Object], bool]
_Test = Callable[[str | None], bool]

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_SET = re.compile(rf"\s*{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_COMPARISON = re.compile(rf"\s*{_KEY}\s*(?P<operator>==|!=|=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)\s*$")
_EXISTENCE = re.compile(rf"\s*(?P<absent>!?)\s*{_KEY}\s*$")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_COMMA_NOT_ESCAPED = re.compile(r"(?<!\\),")
_FIELD = re.compile(r"(?P<key>[^=!]+?)(?P<operator>==|!=|=)(?P<value>.*)$", re.DOTALL)


def label_selector(text: str) -> Predicate:
    """Raises 400 on anything that does not parse. The empty selector matches everything."""
    tests = [_label_test(term) for term in _COMMA_OUTSIDE_PARENTHESES.split(text) if term.strip()]
    return lambda thing: all(test(labels_of(thing).get(key)) for key, test in tests)


def _label_test(term: str) -> tuple[str, _Test]:
    if found := _SET.match(term):
        values = {value.strip() for value in found["values"].split(",")}
        if found["operator"] == "in":
            return found["key"], lambda value: value in values
        return found["key"], lambda value: value not in values
    if found := _COMPARISON.match(term):
        return found["key"], _comparison(found["operator"], found["value"])
    if found := _EXISTENCE.match(term):
        wanted = not found["absent"]
        return found["key"], lambda value: (value is not None) is wanted
    raise bad_request(f'unable to parse requirement: found "{term.strip()}", expected: a label selector')


def _comparison(operator: str, wanted: str) -> _Test:
    if operator == "!=":
        return lambda value: value != wanted
    if operator in ("=", "=="):
        return lambda value: value == wanted
    if not re.fullmatch(r"-?\d+", wanted):
        problem = f"Invalid value: \"{wanted}\": for 'Gt', 'Lt' operators, the value must be an integer"
        raise bad_request(f"unable to parse requirement: values[0]: {problem}")
    sign = 1 if operator == ">" else -1
    return lambda value: (
        bool(re.fullmatch(r"-?\d+", value or "")) and sign * (int(value or 0) - int(wanted)) > 0
    )


def match_labels(selector: Mapping[str, Any]) -> Predicate:
    """A metav1.LabelSelector object, as aggregationRule carries it."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        values = ",".join(expression.get("values") or [])
        shapes = {"In": "{0} in ({1})", "NotIn": "{0} notin ({1})", "Exists": "{0}", "DoesNotExist": "!{0}"}
        terms.append(shapes[expression["operator"]].format(expression["key"], values))
    return label_selector(",".join(terms))


def field_terms(text: str) -> list[tuple[str, str, str]]:
    """`a=b,c!=d` as (key, `=` or `!=`, value)."""
    terms = []
    for term in _COMMA_NOT_ESCAPED.split(text):
        if not term:
            continue
        found = _FIELD.match(term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([\\,=])", r"\1", found["value"])
        terms.append((found["key"], found["operator"].replace("==", "="), value))
    return terms


def field_selector(resource: Resource, text: str) -> Predicate:
    """Raises 400 for a field this resource does not offer."""
    terms = field_terms(text)
    for key, _, _ in terms:
        if key not in OBJECT_FIELDS and key not in resource.selectable_fields:
            if resource.selectable_fields or resource.is_custom:
                raise bad_request(f"field label not supported: {key}")
            known = ", ".join(f'"{field}"' for field in OBJECT_FIELDS)
            raise bad_request(f'"{key}" is not a known field selector: only {known}')
    return lambda thing: all(
        (_read(thing, key) == value) is (operator == "=") for key, operator, value in terms
    )


def _read(thing: Object, dotted: str) -> str:
    found: Any = thing
    for part in dotted.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return "" if found is None else str(found)
