"""Parses a request's method, path and query, as `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go` does.

Authorisation and routing use the same result, so that the two can never disagree about a request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from visibility_api.auth.identity import Attributes, Requirement
from visibility_api.errors.quoting import quote
from visibility_api.errors.status import BadRequest
from visibility_api.kubeapi.selectors import parsing
from visibility_api.models.wire import parse_duration_s

MAX_TARGET_BYTES = 64 * 1024  # path and query; a selector naming a few hundred objects fits
MAX_PARAMETERS = 256  # real clients send at most a dozen
_MAX_REPEATED_CHARACTERS = 256  # of a parameter, in the error about it
DEFAULT_TIMEOUT_S = 60.0  # of a request that is not a watch, as the Go server's

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "GET": "get",
    "HEAD": "get",
    "DELETE": "delete",
}
_SELECTING_VERBS = frozenset(("list", "watch", "deletecollection"))  # the ones with selectors
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d*)([^\d.]*)", re.ASCII)
_DURATION_UNITS = frozenset(("ns", "us", "µs", "μs", "ms", "s", "m", "h"))
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """A parsed request line."""

    attributes: Attributes
    query: Query
    # False: empty or surplus segments, or the deprecated /apis/GROUP/VERSION/watch/…; always a 404
    is_routable: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S
    has_timeout_fault: bool = False  # `?timeout` is not a duration; reported after authorisation

    @property
    def is_watch(self) -> bool:
        return self.attributes.verb == "watch" and self.attributes.is_resource


def parse_query(query_string: bytes) -> Query:
    """The parameters in order, blank ones too. Raises BadRequest when there are too many."""
    if not query_string:
        return ()
    try:
        return tuple(
            parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        )
    except ValueError as error:
        raise BadRequest(f"the query has more than {MAX_PARAMETERS} parameters") from error


def read_request(method: str, path: str, query_string: bytes) -> RequestInfo:
    """Parse a request line; `path` is percent-decoded. Raises BadRequest for one that is too long."""
    if len(path) + len(query_string) > MAX_TARGET_BYTES:
        raise BadRequest(f"the request URI is longer than {MAX_TARGET_BYTES} bytes")
    query = parse_query(query_string)
    segments = path.strip("/").split("/")
    if len(segments) < 4 or segments[0] != "apis":  # a non-resource request
        attributes = Attributes(verb=method.lower(), path=path)
        timeout_s, is_faulty = _read_timeout(query)
        return RequestInfo(
            attributes=attributes, query=query, timeout_s=timeout_s, has_timeout_fault=is_faulty
        )
    return _read_resource(method, path, segments[1:], query)


def timeout_fault(query: Query) -> BadRequest:
    """The error of a `?timeout` that is not a duration, in the words of Go's time.ParseDuration."""
    text = (_first(query, "timeout") or "")[:_MAX_REPEATED_CHARACTERS]
    return BadRequest(f"invalid timeout specified in the request URL - time: {_describe_fault(text)}")


def is_true(value: str | None) -> bool:
    """A boolean parameter: present and neither `0` nor `false`; `?watch` alone is true."""
    return value is not None and value != "0" and value.lower() != "false"


def _read_resource(method: str, path: str, segments: list[str], query: Query) -> RequestInfo:
    """The form /apis/GROUP/VERSION/…; `segments` begin with the group and are at least three."""
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
    # A watch has a limit of its own, `timeoutSeconds`; `timeout` is ignored.
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
    """The selectors' requirements for the access review. One that cannot be parsed is left out: the review is
    then of more than was requested, never of less."""
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
    """The one name that a field selector allows, so that RBAC `resourceNames` covers list and watch."""
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
    """The limit in seconds, and whether `?timeout` cannot be parsed.

    The parameter shortens the limit and never lengthens it; 0 and less leave the default.
    """
    text = _first(query, "timeout")
    if not text:
        return DEFAULT_TIMEOUT_S, False
    seconds = _parse_go_duration_s(text)
    if seconds is None:
        return DEFAULT_TIMEOUT_S, True
    return (seconds if 0 < seconds < DEFAULT_TIMEOUT_S else DEFAULT_TIMEOUT_S), False


def _parse_go_duration_s(text: str) -> float | None:
    """A duration as Go writes it, with its sign; None when `text` is not one."""
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
    """The first value of a parameter; further ones are ignored."""
    return next((v for k, v in query if k == name), None)
