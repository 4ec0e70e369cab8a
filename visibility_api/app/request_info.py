"""Parses a request's method, path and query, as `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go` does.

Authorisation and routing use the same result, so that the two can never disagree about a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from visibility_api.auth.identity import Attributes, Requirement
from visibility_api.errors.status import BadRequest
from visibility_api.errors.text import quote
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
    bad_timeout: str = ""  # a `?timeout` that is not a duration
    is_watch: bool = False

    def check_timeout(self) -> None:
        """Raises BadRequest for a `?timeout` that is not a duration; called once the caller may know."""
        if self.bad_timeout:
            shown = quote(self.bad_timeout[:_MAX_REPEATED_CHARACTERS])
            raise BadRequest(
                f"invalid timeout specified in the request URL: {shown} is not a duration such as 30s"
            )


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
        timeout_s, bad_timeout = _read_timeout(query)
        return RequestInfo(attributes=attributes, query=query, timeout_s=timeout_s, bad_timeout=bad_timeout)
    return _read_resource(method, path, segments[1:], query)


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
    timeout_s, bad_timeout = (DEFAULT_TIMEOUT_S, "") if verb == "watch" else _read_timeout(query)
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
        bad_timeout=bad_timeout,
        is_watch=verb == "watch",
    )


def _requirements(query: Query) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]]:
    """Of the field and of the label selector, for the access review. A selector that cannot be parsed is left
    out: the review is then of more than was requested, never of less."""
    found: list[tuple[Requirement, ...]] = []
    for name, parse in (
        ("fieldSelector", parsing.parse_field_selector),
        ("labelSelector", parsing.parse_label_selector),
    ):
        text = _first(query, name)
        try:
            found.append(tuple(parse(text).requirements()) if text else ())
        except BadRequest:
            found.append(())
    fields, labels = found
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


def _read_timeout(query: Query) -> tuple[float, str]:
    """The limit in seconds, and the `?timeout` that cannot be parsed.

    The parameter shortens the limit and never lengthens it; 0 leaves the default.
    """
    text = _first(query, "timeout")
    if not text:
        return DEFAULT_TIMEOUT_S, ""
    seconds = parse_duration_s(text)
    if seconds is None:
        return DEFAULT_TIMEOUT_S, text
    return (seconds if 0 < seconds < DEFAULT_TIMEOUT_S else DEFAULT_TIMEOUT_S), ""


def _first(query: Query, name: str) -> str | None:
    """The first value of a parameter; further ones are ignored."""
    return next((v for k, v in query if k == name), None)
