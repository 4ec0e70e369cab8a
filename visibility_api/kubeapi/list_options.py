"""The options of a list or a watch, parsed from the query and validated.

As the Go server does: 400 for what cannot be parsed, 422 with one cause for each fault for options that
exclude each other. See
`k8s.io/apimachinery/pkg/apis/meta/internalversion/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from visibility_api.errors.status import BadRequest, InvalidListOptions, cause
from visibility_api.errors.text import quote
from visibility_api.kubeapi.selectors.parsing import parse_field_selector, parse_label_selector
from visibility_api.kubeapi.selectors.selection import FieldSelector, LabelSelector, Selection, parse_int64
from visibility_api.models.meta_v1 import StatusCause

from .message import ResourceRequest

IncludeObject = Literal["Metadata", "Object", "None"]

_FIELD = "resourceVersionMatch"
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_MAX_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of one list or watch. `revision` None: not given; 0: any state."""

    selection: Selection
    revision: int | None = None
    is_exact: bool = False  # exactly the state at `revision`, not a newer one
    limit: int = 0  # items on a page; 0 = all
    continue_token: str = ""
    sends_initial_events: bool = False  # of a watch
    allows_bookmarks: bool = False
    timeout_s: int = 0  # of a watch; 0 = the server's choice, below 0 it is over at once


def read_list_options(request: ResourceRequest, *, is_mixed: bool = False) -> ListOptions:
    """The options of a list, `is_mixed`: of several kinds. Raises BadRequest or InvalidListOptions."""
    query = _first_values(request)
    _refuse_export(query)
    selection, limit, _ = _parse(query, is_mixed)
    match = query.get(_FIELD, "")
    version, token = query.get("resourceVersion", ""), query.get("continue", "")
    faults: list[StatusCause] = []
    if match:
        if not version:
            faults.append(_forbidden(f"{_FIELD} is forbidden unless resourceVersion is provided"))
        if token:
            faults.append(_forbidden(f"{_FIELD} is forbidden when continue is provided"))
        if match not in (_EXACT, _NOT_OLDER):
            faults.append(_unsupported(match, (_EXACT, _NOT_OLDER, "")))
        if match == _EXACT and version == "0":
            faults.append(_forbidden(f'{_FIELD} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        faults.append(_forbidden("sendInitialEvents is forbidden for list", field="sendInitialEvents"))
    if faults:
        raise InvalidListOptions(faults)
    selection.fields.check_known()
    revision = parse_revision(version)
    return ListOptions(
        selection=selection,
        revision=revision,
        # Legacy: a `limit` with a revision and no match means exactly that revision.
        is_exact=match == _EXACT or (not match and limit > 0 and not token and bool(revision)),
        limit=0 if revision == 0 and not token else limit,  # as the Go server, which ignores it then
        continue_token=token,
    )


def read_watch_options(request: ResourceRequest, *, is_mixed: bool = False) -> ListOptions:
    """The options of a watch, `is_mixed`: of several kinds. Raises BadRequest or InvalidListOptions."""
    query = _first_values(request)
    selection, _, timeout_s = _parse(query, is_mixed)
    match = query.get(_FIELD, "")
    version = query.get("resourceVersion", "")
    initial = _boolean(query, "sendInitialEvents")
    bookmarks = _boolean(query, "allowWatchBookmarks") is True
    if initial is None and not match and version in ("", "0"):
        initial, match = True, _NOT_OLDER  # the server's default since Kubernetes 1.34
    faults: list[StatusCause] = []
    if initial is not None and match != _NOT_OLDER:
        faults.append(_forbidden(f"sendInitialEvents requires setting {_FIELD} to {_NOT_OLDER}"))
    if match:
        if initial is None:
            faults.append(_forbidden(f"{_FIELD} is forbidden for watch unless sendInitialEvents is provided"))
        if match != _NOT_OLDER:
            faults.append(_unsupported(match, (_NOT_OLDER,)))
        if query.get("continue"):
            faults.append(_forbidden(f"{_FIELD} is forbidden when continue is provided"))
    if faults:
        raise InvalidListOptions(faults)
    selection.fields.check_known()
    return ListOptions(
        selection=selection,
        revision=parse_revision(version),
        sends_initial_events=initial is True,
        allows_bookmarks=bookmarks,
        timeout_s=timeout_s,
    )


def read_get_options(request: ResourceRequest) -> int | None:
    """The `resourceVersion` of a GET, None without one. Raises BadRequest."""
    query = _first_values(request)
    _refuse_export(query)
    return parse_revision(query.get("resourceVersion", ""))


def read_include_object(request: ResourceRequest) -> IncludeObject:
    """What each row of a Table has as its object. Raises BadRequest."""
    match request.parameter("includeObject") or "":
        case "" | "Metadata":
            return "Metadata"
        case "Object":
            return "Object"
        case "None":
            return "None"
        case other:
            raise BadRequest(
                f"Unable to convert to Table as requested: includeObject: Invalid value: {quote(other)}: "
                "must be 'Metadata', 'Object', 'None', or empty"
            )


def parse_revision(text: str) -> int | None:
    """A resourceVersion parameter; None for the empty one. Raises BadRequest."""
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(_MAX_UINT64)):
        revision = int(text)
        if revision <= _MAX_UINT64:
            return revision
    raise BadRequest(f"invalid resource version: {quote(text)} is not a number of 64 bits")


def _first_values(request: ResourceRequest) -> Mapping[str, str]:
    """The query's parameters; of a repeated one, the first."""
    return dict(reversed(request.query))


def _parse(query: Mapping[str, str], is_mixed: bool) -> tuple[Selection, int, int]:
    """The selection, `limit` and `timeoutSeconds`."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    selection = Selection(
        labels=parse_label_selector(labels) if labels else LabelSelector(),
        fields=parse_field_selector(fields) if fields else FieldSelector(),
        is_mixed=is_mixed,
    )
    return selection, max(0, _integer(query, "limit")), _integer(query, "timeoutSeconds")


def _integer(query: Mapping[str, str], name: str) -> int:
    """An integer parameter, 0 when it is absent. Raises BadRequest."""
    text = query.get(name)
    if text is None:
        return 0
    value = parse_int64(text)
    if value is None:
        raise BadRequest(f"{name}={quote(text)} is not an integer of 64 bits")
    return value


def _boolean(query: Mapping[str, str], name: str) -> bool | None:
    """A boolean parameter: every value except `false` and `0` is true, also the empty one."""
    text = query.get(name)
    return None if text is None else text != "0" and text.lower() != "false"


def _refuse_export(query: Mapping[str, str]) -> None:
    if _boolean(query, "export"):
        raise BadRequest("the export parameter, deprecated since v1.14, is no longer supported")


def _forbidden(why: str, *, field: str = _FIELD) -> StatusCause:
    return cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _unsupported(value: str, supported: tuple[str, ...]) -> StatusCause:
    names = ", ".join(quote(name) for name in supported)
    message = f"Unsupported value: {quote(value)}: supported values: {names}"
    return cause("FieldValueNotSupported", message, _FIELD)
