"""Parsed label and field selectors: matching, and their requirements for an access review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from visibility_api.auth.identity import Requirement
from visibility_api.errors.status import BadRequest
from visibility_api.errors.text import quote
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

FIELDS = ("metadata.name", "metadata.namespace", "status.phase")  # the fields that can be selected
_TERMS_AT_ONCE = 2048  # each takes a quarter of a microsecond
_INTEGER = re.compile(r"[-+]?0*[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One term of a label selector. `values` has one integer for Gt and Lt, none for (DoesNot)Exist(s)."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    @property
    def is_negative(self) -> bool:
        """Whether it matches objects without the key, too."""
        return self.operator in ("NotIn", "DoesNotExist")

    def matches(self, value: str) -> bool:
        """Whether it matches an object whose label has this value."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return True
            case "DoesNotExist":
                return False
            case "Gt" | "Lt":
                return self._compares(value)

    def _compares(self, value: str) -> bool:
        held, bound = parse_int64(value), parse_int64(next(iter(self.values)))
        if held is None or bound is None:
            return False
        return held > bound if self.operator == "Gt" else held < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All terms must match; without terms it matches everything.

    Matching takes as long as the object has labels: thousands of watches may have twenty terms each.
    """

    terms: tuple[LabelRequirement, ...] = ()
    _by_key: dict[str, list[LabelRequirement]] = field(init=False, repr=False, compare=False)
    _keys: frozenset[str] = field(init=False, repr=False, compare=False)  # that an object must have

    def __post_init__(self) -> None:
        by_key: dict[str, list[LabelRequirement]] = {}
        for term in self.terms:
            by_key.setdefault(term.key, []).append(term)
        object.__setattr__(self, "_by_key", by_key)
        keys = frozenset(term.key for term in self.terms if not term.is_negative)
        object.__setattr__(self, "_keys", keys)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not self._keys <= labels.keys():
            return False
        by_key = self._by_key
        for key, value in labels.items():
            for term in by_key.get(key, ()):
                if not term.matches(value):
                    return False
        return True

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

    def matches(self, document: JobProgress, *, is_mixed: bool = False) -> bool:
        """`is_mixed`: the object's name is the qualified one."""
        return all(
            (_field(document, term.field, is_mixed) == term.value) is term.is_equal for term in self.terms
        )

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
    is_mixed: bool = False  # of jobs of several kinds, with qualified names

    @property
    def is_everything(self) -> bool:
        return not self.labels.terms and not self.fields.terms

    @property
    def matched_at_once(self) -> int:
        """The number of documents that are matched in half a millisecond; then other tasks run."""
        return _TERMS_AT_ONCE // max(4, len(self.labels.terms) + len(self.fields.terms))

    def matches(self, document: JobProgress) -> bool:
        return self.labels.matches(document.job.labels) and self.fields.matches(
            document, is_mixed=self.is_mixed
        )


def name_of(ref: JobRef, *, is_mixed: bool) -> str:
    """The name of the object that is shown for a job."""
    return ref.qualified_name if is_mixed else ref.name


def _field(document: JobProgress, field: str, is_mixed: bool) -> str:
    """The value of a field; a missing one compares as empty."""
    match field:
        case "metadata.name":
            return name_of(document.job.ref, is_mixed=is_mixed)
        case "metadata.namespace":
            return document.job.ref.namespace
        case "status.phase":
            return document.phase.value
        case _:
            return ""


def parse_int64(text: str) -> int | None:
    """The integer of 64 bits that `text` is, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
