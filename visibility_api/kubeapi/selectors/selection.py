"""Parsed label and field selectors: matching, and their requirements for an access review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from visibility_api.auth.identity import Requirement
from visibility_api.errors.quoting import quote
from visibility_api.errors.status import BadRequest
from visibility_api.jobs.summary import JobProgress

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

FIELDS = ("metadata.name", "metadata.namespace", "status.phase")  # the fields that can be selected
_INT64_DIGITS = 20  # more than an int64 has


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One term of a label selector. `values` has one integer for Gt and Lt, none for (DoesNot)Exist(s)."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values  # also without the key
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        held, bound = parse_int64(value), parse_int64(next(iter(self.values)))
        if held is None or bound is None:
            return False
        return held > bound if self.operator == "Gt" else held < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All terms must match; without terms it matches everything."""

    terms: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.terms)

    def requirements(self) -> Iterator[Requirement]:
        """The terms that an access review can express. Gt and Lt are left out: the review is then of more."""
        for term in self.terms:
            if term.operator not in ("Gt", "Lt"):
                yield Requirement(key=term.key, operator=term.operator, values=tuple(sorted(term.values)))


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term of a field selector."""

    field: str
    is_equal: bool  # `=`; else `!=`
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must match. Any field can be parsed; `check_known` refuses unknown ones."""

    terms: tuple[FieldRequirement, ...] = ()

    def matches(self, document: JobProgress) -> bool:
        return all((_field(document, term.field) == term.value) is term.is_equal for term in self.terms)

    def requirements(self) -> Iterator[Requirement]:
        for term in self.terms:
            yield Requirement(
                key=term.field, operator="In" if term.is_equal else "NotIn", values=(term.value,)
            )

    def required(self, field: str) -> str | None:
        """The one value that the selector allows for a field; None when it allows several."""
        return next((t.value for t in self.terms if t.field == field and t.is_equal), None)

    def check_known(self) -> None:
        """Raises BadRequest for a field that cannot be selected."""
        for term in self.terms:
            if term.field not in FIELDS:
                known = ", ".join(quote(field) for field in FIELDS)
                raise BadRequest(f"{quote(term.field)} is not a known field selector: only {known}")


@dataclass(frozen=True, slots=True)
class Selection:
    """Both selectors of a list or a watch. Hashable: it is part of a cache's key."""

    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()

    @property
    def is_everything(self) -> bool:
        return not self.labels.terms and not self.fields.terms

    @property
    def names_one(self) -> bool:
        """At most one object of each namespace can match."""
        return self.fields.required("metadata.name") is not None

    def matches(self, document: JobProgress) -> bool:
        return self.labels.matches(document.job.labels) and self.fields.matches(document)


def _field(document: JobProgress, field: str) -> str:
    """The value of a field; a missing one compares as empty."""
    match field:
        case "metadata.name":
            return document.job.ref.name
        case "metadata.namespace":
            return document.job.ref.namespace
        case "status.phase":
            return document.phase.value
        case _:
            return ""


def parse_int64(text: str) -> int | None:
    """The integer that Go's `strconv.ParseInt` reads from `text`; None where it fails."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) < _INT64_DIGITS):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
