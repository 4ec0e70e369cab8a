"""Error responses: a Status, or plain text, in the form that the client accepts."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from visibility_api.auth.errors import AccessDenied, AuthError, ReviewFailed, Unauthenticated
from visibility_api.errors.status import (
    Forbidden,
    InternalError,
    RequestError,
    ReviewUnavailable,
    Timeout,
    Unauthorized,
    encode_status,
)
from visibility_api.errors.text import describe_fault, quote, without_markup
from visibility_api.kubeapi.message import Headers, ResourceResponse, Scope
from visibility_api.kubeapi.negotiation import negotiate_error
from visibility_api.kubeapi.rendering import render
from visibility_api.models.meta_v1 import StatusDetails

log = structlog.get_logger(__name__)

_LOGGED_CHARACTERS = 200
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def refuse(error: Exception, *, scope: Scope, query: Sequence[tuple[str, str]]) -> ResourceResponse:
    """The response for `error`; `scope` and `query` are the request's."""
    return error_response(to_request_error(error, uri=_uri(scope)), headers=scope["headers"], query=query)


def error_response(
    error: RequestError, *, headers: Headers, query: Sequence[tuple[str, str]]
) -> ResourceResponse:
    """The Status, or text, of `error`; `headers` and `query` are the request's."""
    extra: list[tuple[bytes, bytes]] = []
    if error.retry_after_s > 0:
        extra.append((b"retry-after", b"%d" % error.retry_after_s))  # clients retry only with it
    if error.is_plain_text:
        return ResourceResponse(
            status=error.code,
            content_type="text/plain; charset=utf-8",
            body=error.message.encode() + b"\n",
            headers=(*extra, _NO_SNIFFING),
        )
    if isinstance(error, Forbidden):
        extra.append(_NO_SNIFFING)  # as the API server: the message repeats the request's path
    form = negotiate_error(
        _header(headers, b"accept"),
        pretty=next((v for k, v in query if k == "pretty"), None),
        user_agent=_header(headers, b"user-agent"),
    )
    body = render(encode_status(error), form)
    return ResourceResponse(status=error.code, content_type=form.media_type, body=body, headers=extra)


def is_unforeseen(error: Exception) -> bool:
    """Whether it is a fault of this server. All others reach the client in full, or are logged by `auth`."""
    return not isinstance(error, (RequestError, AuthError, TimeoutError))


def log_failure(error: Exception, *, scope: Scope, audit_id: bytes) -> None:
    """Log an unforeseen error by class and place: its text may quote a token or a pod's bytes."""
    log.error(
        "request failed",
        audit_id=audit_id.decode(),
        method=scope["method"][:16],
        path=scope["path"][:_LOGGED_CHARACTERS],
        **describe_fault(error),
    )


def _uri(scope: Scope) -> str:
    """Path and query as they were sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw + b"?" + query if query else raw).decode("latin-1")[:_LOGGED_CHARACTERS]


def _header(headers: Headers, name: bytes) -> str | None:
    return next((v.decode("latin-1") for k, v in headers if k == name), None)


def to_request_error(error: Exception, *, uri: str) -> RequestError:
    """The error that the client gets for `error`; `uri` is the request's path and query."""
    match error:
        case RequestError():
            return error
        case Unauthenticated():
            return Unauthorized()
        case AccessDenied():
            return _forbidden(error)
        case ReviewFailed():
            return ReviewUnavailable(uri)
        case TimeoutError():
            return Timeout("request did not complete within the allotted timeout")
        case _:
            return InternalError()


def _forbidden(error: AccessDenied) -> Forbidden:
    """The API server's message, as in `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`."""
    denied = error.attributes
    user = quote(error.identity.user)
    if not denied.is_resource:
        subject, details = "forbidden", StatusDetails()
        refused = f"User {user} cannot {denied.verb} path {quote(denied.path)}"
    else:
        plural = f"{denied.resource}.{denied.group}" if denied.group else denied.resource
        subject = f"{plural} {quote(denied.name)} is forbidden" if denied.name else f"{plural} is forbidden"
        what = f"{denied.resource}/{denied.subresource}" if denied.subresource else denied.resource
        where = f"in the namespace {quote(denied.namespace)}" if denied.namespace else "at the cluster scope"
        group = quote(denied.group)
        refused = f"User {user} cannot {denied.verb} resource {quote(what)} in API group {group} {where}"
        details = StatusDetails(
            name=denied.name or None, group=denied.group or None, kind=denied.resource or None
        )
    message = f"{subject}: {without_markup(refused)}"
    return Forbidden(f"{message}: {error.reason}" if error.reason else message, details=details)
