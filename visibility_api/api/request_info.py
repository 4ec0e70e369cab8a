"""What a request asks for, worked out of its method, path and query alone (Z3 to Z10).

One reading serves authorisation and routing alike, so the two can never disagree about what was asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from visibility_api.auth.identity import Attributes, Requirement
from visibility_api.progress.duration import parse_duration_s

from .quoting import quote
from .selectors import parsing
from .status import BadRequest

MAX_TARGET_BYTES = 64 * 1024  # path and query; a selector naming a few hundred objects fits
MAX_PARAMETERS = 256  # real clients send at most a dozen
DEFAULT_TIMEOUT_S = 60.0  # of a request that is not a watch, as the Go server's (R17)

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "GET": "get",
    "HEAD": "get",
    "DELETE": "delete",
}
_SELECTING_VERBS = frozenset(("list", "watch", "deletecollection"))  # the ones with selectors (Z10)
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d*)([^\d.]*)", re.ASCII)
_DURATION_UNITS = frozenset(("ns", "us", "µs", "μs", "ms", "s", "m", "h"))
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """One reading of a request line."""

    attributes: Attributes
    query: Query
    is_routable: bool = True  # False: empty or surplus segments, or /apis/G/V/watch/… (Z7); always a 404
    timeout_s: float = DEFAULT_TIMEOUT_S
    has_timeout_fault: bool = False  # `?timeout` is no duration; told after authorisation only

    @property
    def is_watch(self) -> bool:
        return self.attributes.verb == "watch" and self.attributes.is_resource


def parse_query(query_string: bytes) -> Query:
    """Its parameters in order, blank ones too. Raises BadRequest when there are too many."""
    if not query_string:
        return ()
    try:
        return tuple(
            parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        )
    except ValueError as error:
        raise BadRequest(f"the query has more than {MAX_PARAMETERS} parameters") from error


def read_request(method: str, path: str, query_string: bytes) -> RequestInfo:
    """The reading of one request line; `path` is percent-decoded.

    Raises BadRequest for what is too long to be read.
    """
    if len(path) + len(query_string) > MAX_TARGET_BYTES:
        raise BadRequest(f"the request URI is longer than {MAX_TARGET_BYTES} bytes")
    query = parse_query(query_string)
    segments = path.strip("/").split("/")
    if len(segments) < 4 or segments[0] != "apis":  # Z3
        attributes = Attributes(verb=method.lower(), path=path)
        timeout_s, is_faulty = _read_timeout(query)
        return RequestInfo(
            attributes=attributes, query=query, timeout_s=timeout_s, has_timeout_fault=is_faulty
        )
    return _read_resource(method, path, segments[1:], query)


def timeout_fault(query: Query) -> BadRequest:
    """What is wrong with a `?timeout` that is no duration, in the words of Go's time.ParseDuration (R17)."""
    text = _first(query, "timeout") or ""
    return BadRequest(f"invalid timeout specified in the request URL - time: {_describe_fault(text)}")


def is_true(value: str | None) -> bool:
    """A boolean parameter: present and neither `0` nor `false` (Z5)."""
    return value is not None and value != "0" and value.lower() != "false"


def _read_resource(method: str, path: str, segments: list[str], query: Query) -> RequestInfo:
    """The form /apis/G/V/…; `segments` begin with the group and are at least three."""
    group, version, *rest = segments
    verb = _VERBS.get(method, "")
    is_deprecated_watch = rest[0] == "watch" and len(rest) > 1
    if is_deprecated_watch:
        verb, rest = "watch", rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if not name and verb == "get":
        verb = "watch" if is_true(_first(query, "watch")) else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    # A watch has a limit of its own, `timeoutSeconds`; `timeout` is not looked at (R17, W9).
    timeout_s, is_faulty = (DEFAULT_TIMEOUT_S, False) if verb == "watch" else _read_timeout(query)
    fields: tuple[Requirement, ...] = ()
    labels: tuple[Requirement, ...] = ()
    if verb in _SELECTING_VERBS and not name and not is_deprecated_watch:
        fields, labels = _requirements(query)
        name = _exact_name(fields)
    return RequestInfo(
        attributes=Attributes(
            verb=verb,
            path=path,
            is_resource=True,
            group=group,
            version=version,
            namespace=namespace,
            resource=resource,
            subresource=subresource,
            name=name,
            field_requirements=fields,
            label_requirements=labels,
        ),
        query=query,
        is_routable=len(rest) <= 3 and "" not in segments and not is_deprecated_watch,
        timeout_s=timeout_s,
        has_timeout_fault=is_faulty,
    )


def _requirements(query: Query) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]]:
    """What the selectors require. One that cannot be parsed only widens the question (Z10)."""
    fields: tuple[Requirement, ...] = ()
    labels: tuple[Requirement, ...] = ()
    if text := _first(query, "fieldSelector"):
        try:
            fields = tuple(parsing.parse_field_selector(text).requirements())
        except BadRequest:
            fields = ()
    if text := _first(query, "labelSelector"):
        try:
            labels = tuple(parsing.parse_label_selector(text).requirements())
        except BadRequest:
            labels = ()
    return fields, labels


def _exact_name(requirements: tuple[Requirement, ...]) -> str:
    """The one name a field selector allows, so that RBAC `resourceNames` covers list and watch (Z8)."""
    for requirement in requirements:
        if (
            requirement.key == "metadata.name"
            and requirement.operator == "In"
            and len(requirement.values) == 1
        ):
            name = requirement.values[0]
            return name if name not in (".", "..") and "/" not in name and "%" not in name else ""
    return ""


def _read_timeout(query: Query) -> tuple[float, bool]:
    """The limit in seconds, and whether `?timeout` cannot be read.

    The parameter shortens the limit and never lengthens it; 0 and less leave the default (R17).
    """
    text = _first(query, "timeout")
    if not text:
        return DEFAULT_TIMEOUT_S, False
    seconds = _parse_go_duration_s(text)
    if seconds is None:
        return DEFAULT_TIMEOUT_S, True
    return (seconds if 0 < seconds < DEFAULT_TIMEOUT_S else DEFAULT_TIMEOUT_S), False


def _parse_go_duration_s(text: str) -> float | None:
    """Go's duration, its sign included; None when it is none."""
    seconds = parse_duration_s(text[1:] if text[0] in "+-" else text)
    return -seconds if seconds is not None and text.startswith("-") else seconds


def _describe_fault(text: str) -> str:
    rest = text[1:] if text[:1] in ("+", "-") else text
    while part := _DURATION_PART.match(rest):
        number, unit = part.groups()
        if number == ".":
            break
        if not unit:
            return f"missing unit in duration {quote(text)}"
        if unit not in _DURATION_UNITS:
            return f"unknown unit {quote(unit)} in duration {quote(text)}"
        rest = rest[part.end() :]
    return f"invalid duration {quote(text)}"


def _first(query: Query, name: str) -> str | None:
    """The first value of a parameter: the others do not count (Z5)."""
    return next((v for k, v in query if k == name), None)
