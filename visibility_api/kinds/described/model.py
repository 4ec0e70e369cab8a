"""What a file says of a kind of job: the names of its fields, their bounds, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from .expressions import Expression

MAX_OWNERS, MAX_GROUPS, MAX_COLUMNS, MAX_SELECTOR, MAX_FAULTS = 3, 8, 4, 256, 8

_KEY = r"(?:[a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_TERM = re.compile(
    rf"!?{_KEY}|{_KEY}\s*(?:=|==|!=)\s*{_VALUE}|{_KEY} (?:in|notin) \({_VALUE}(?:,\s*{_VALUE})*\)"
)
_COMMA = re.compile(r",(?![^(]*\))")


def _pattern(pattern: str, example: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f'"{text[:80]}" cannot be used; write for instance {example}')
        return text

    return AfterValidator(check)


def _selector(text: str) -> str:
    if len(text) > MAX_SELECTOR:
        raise ValueError(f"has {len(text)} characters; at most {MAX_SELECTOR} are allowed")
    for term in _COMMA.split(text):
        if _TERM.fullmatch(term.strip()) is None:
            raise ValueError(
                f'"{term[:80]}" is no label selector; write for instance example.com/rank=0,!example.com/test'
            )
    return text


def _pods_selector(text: str) -> str:
    _selector(text.replace("{job}", "bert"))
    return text


def _expression(text: object) -> Expression:
    if not isinstance(text, str):
        raise ValueError("give a CEL expression as text, such as \"object.status.phase == 'Done'\"")
    return Expression(text)


Group = Annotated[
    str,
    _pattern(r"(?=.{3,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+", "example.com"),
]
Version = Annotated[str, _pattern(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?", "v1alpha1")]
Plural = Annotated[str, _pattern(r"[a-z]{2,50}", "slurmjobs")]
Kind = Annotated[str, _pattern(r"[A-Z][A-Za-z0-9]{1,49}", "SlurmJob")]
ShortName = Annotated[str, _pattern(r"[a-z][a-z0-9]{1,15}", "slurmp")]
Name = Annotated[str, _pattern(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "worker")]
Container = Annotated[str, _pattern(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "main")]
# {owner} is the name of the object that controls the pod, * what its controller adds to a name.
PodName = Annotated[str, _pattern(r"\{owner\}[-a-z0-9.]{0,60}\*?", "{owner}-0 or {owner}-launcher-*")]
Selector = Annotated[str, AfterValidator(_selector)]
Text = Annotated[Expression, BeforeValidator(_expression)]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True
    )


class OwnerModel(_Model):
    """What is made between the job and its pods."""

    group: Annotated[str, _pattern(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "batch")]
    version: Version
    resource: Annotated[str, _pattern(r"[a-z][a-z0-9]{1,62}", "jobs")]
    kind: Kind
    selector: Selector
    name: Text | None = None  # of the one above the pods; None: that of the job


class Rank0Model(_Model):
    selector: Selector
    name: PodName = "{owner}-*"
    container: Container | None = None
    all_pods: Annotated[str, AfterValidator(_pods_selector)] | None = None  # {job} is the job's name


class ConditionsModel(_Model):
    """The types of `status.conditions` that say so."""

    succeeded: str | None = Field(default=None, min_length=1, max_length=64)
    failed: str | None = Field(default=None, min_length=1, max_length=64)
    suspended: str | None = Field(default=None, min_length=1, max_length=64)


class GroupModel(_Model):
    """A replica group. The first one has rank 0."""

    name: Name
    replicas: Text | None = None  # an integer
    template: Text | None = None  # of its pods


class ColumnModel(_Model):
    """A column of `kubectl get -o wide`."""

    name: Annotated[str, _pattern(r"[A-Z][A-Za-z0-9 ]{0,31}", "Queue")]
    value: Text


class DescriptionModel(_Model):
    """One kind."""

    group: Group
    version: Version
    resource: Plural
    kind: Kind
    short_name: ShortName
    served_resource: Plural | None = None  # where `resource` and `kind` are taken already
    served_kind: Kind | None = None
    owners: tuple[OwnerModel, ...] = Field(default=(), max_length=MAX_OWNERS, strict=False)
    rank0: Rank0Model
    conditions: ConditionsModel = ConditionsModel()
    phase: Text | None = None
    reason: Text | None = None
    message: Text | None = None
    since: Text | None = None
    groups: tuple[GroupModel, ...] = Field(
        default=(GroupModel(name="worker"),), min_length=1, max_length=MAX_GROUPS, strict=False
    )
    columns: tuple[ColumnModel, ...] = Field(default=(), max_length=MAX_COLUMNS, strict=False)

    @property
    def expressions(self) -> Iterator[Expression]:
        texts = [self.phase, self.reason, self.message, self.since, *(each.name for each in self.owners)]
        texts += [each.value for each in self.columns]
        texts += [text for each in self.groups for text in (each.replicas, each.template)]
        return (each for each in texts if each is not None)


def read_description(document: object) -> DescriptionModel:
    """One kind. Raises ValueError with a sentence for each fault: the field, what is wrong, what to do."""
    if not isinstance(document, dict):
        raise ValueError("give the fields of one kind, such as `kind: SlurmJob`")
    try:
        return DescriptionModel.model_validate(document)
    except ValidationError as error:
        raise ValueError("; ".join(_describe(each) for each in error.errors()[:MAX_FAULTS])) from None


def _describe(fault: ErrorDetails) -> str:
    where = ".".join(str(part) for part in fault["loc"])[:MAX_SELECTOR]
    if fault["type"] == "extra_forbidden":
        return f"{where}: there is no such field; see docs/kinds.md for those there are"
    if fault["type"] == "missing":
        return f"{where}: is missing; give it"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}"
