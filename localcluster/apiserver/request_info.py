"""The verb, resource and name of a request (apiserver/pkg/endpoints/request/requestinfo.go; Z3-Z8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from localcluster.machinery.selectors import field_terms
from localcluster.machinery.status import ApiError, bad_request

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "GET": "get",
    "HEAD": "get",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """The attributes that authorization and routing go by."""

    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


def is_true(value: str | None) -> bool:
    """A boolean query parameter (Z5): present and neither `0` nor `false`."""
    return value is not None and value.lower() not in ("0", "false")


def integer(text: str) -> int:
    """An integer query parameter; 400 otherwise."""
    if not text.removeprefix("-").isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def parse_request(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    """`raw_path` still percent-encoded; `query` holds the first occurrence of each parameter."""
    path = unquote(raw_path)
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(path=path, verb=method.lower())
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = _VERBS.get(method, "")
    if not name and verb == "get":
        verb = "watch" if is_true(query.get("watch")) else "list"
        name = _selected_name(query.get("fieldSelector", ""))
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        path=path,
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=rest[0],
        name=name,
        subresource=rest[2] if len(rest) > 2 else "",
    )


def _selected_name(field_selector: str) -> str:
    """A selector for one name lets RBAC's resourceNames apply to list and watch (Z8)."""
    try:
        terms = field_terms(field_selector)
    except ApiError:
        return ""
    return next((value for key, operator, value in terms if key == "metadata.name" and operator == "="), "")
