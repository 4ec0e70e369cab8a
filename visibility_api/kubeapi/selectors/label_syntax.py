"""Validates label keys and values, with the texts of `k8s.io/apimachinery/pkg/util/validation`."""

from __future__ import annotations

import re

from visibility_api.errors.text import quote

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_NAME})?"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"

_NAME_PATTERN = re.compile(_NAME, re.ASCII)
_VALUE_PATTERN = re.compile(_VALUE, re.ASCII)
_SUBDOMAIN_PATTERN = re.compile(_SUBDOMAIN, re.ASCII)

_MAX_NAME = 63
_MAX_SUBDOMAIN = 253


def key_fault(key: str) -> str | None:
    """The faults of a label key, joined by semicolons; None for a valid one."""
    faults: list[str] = []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            "a valid label key "
            + _not_matching(
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                "alphanumeric character",
                _NAME,
                ("MyName", "my.name", "123-abc"),
            )
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and not prefix:
        faults.append("prefix part must be non-empty")
    elif slash:
        faults.extend(f"prefix part {fault}" for fault in _subdomain_faults(prefix))
    if not name:
        faults.append("name part must be non-empty")
    elif len(name.encode()) > _MAX_NAME:
        faults.append(f"name part must be no more than {_MAX_NAME} bytes")
    if not _NAME_PATTERN.fullmatch(name):
        faults.append(
            "name part "
            + _not_matching(
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                "alphanumeric character",
                _NAME,
                ("MyName", "my.name", "123-abc"),
            )
        )
    return "; ".join(faults) or None


def value_fault(value: str) -> str | None:
    """The faults of a label value, joined by semicolons; None for a valid one."""
    faults: list[str] = []
    if len(value.encode()) > _MAX_NAME:
        faults.append(f"must be no more than {_MAX_NAME} bytes")
    if not _VALUE_PATTERN.fullmatch(value):
        faults.append(
            _not_matching(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
                "'.', and must start and end with an alphanumeric character",
                _VALUE,
                ("MyValue", "my_value", "12345"),
            )
        )
    return "; ".join(faults) or None


def invalid_value(path: str, value: str, fault: str) -> str:
    """`field.Invalid(…).Error()` of Go; the empty path shows as `<nil>`."""
    return f"{path or '<nil>'}: Invalid value: {quote(value)}: {fault}"


def _subdomain_faults(prefix: str) -> list[str]:
    if len(prefix) > _MAX_SUBDOMAIN:  # the pattern is not applied to a long text
        return [f"must be no more than {_MAX_SUBDOMAIN} bytes"]
    if _SUBDOMAIN_PATTERN.fullmatch(prefix):
        return []
    return [
        _not_matching(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character",
            _SUBDOMAIN,
            ("example.com",),
        )
    ]


def _not_matching(rule: str, pattern: str, examples: tuple[str, ...]) -> str:
    """As Go's `validation.RegexError`, with its double space."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"
