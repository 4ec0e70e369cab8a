"""Every way a request can fail, and the answer each becomes: a metav1.Status with a reason (R1, R2).

RequestError
  BadRequest               400   a parameter or selector that cannot be read
  Unauthorized             401
  Forbidden                403
  NotFound                 404   the object is absent
  UnknownRoute             404   no such resource
  MethodNotAllowed         405
  NotAcceptable            406
  Expired                  410   a continue token or resourceVersion no longer held
  Invalid                  422   options that exclude each other
  TooManyRequests          429
  InternalError            500
  Unavailable              503   not ready yet, or going away
  Timeout                  504
    TooLargeResourceVersion

Errors of `auth` are turned into these here, by class; handlers raise and never build an error answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from visibility_api.auth.errors import AccessDenied, ReviewFailed, Unauthenticated

from .quoting import quote
from .resources import GROUP

RETRY_AFTER_S = 1  # as the Go server's own (R1)


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of several things wrong with a request."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What clients act on besides the reason."""

    name: str = ""
    group: str = ""
    kind: str = ""  # the plural resource, not the kind (Z14)
    causes: tuple[Cause, ...] = ()
    retryAfterSeconds: int = 0


class _ListMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    continue_token: str = msgspec.field(default="", name="continue")


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """metav1.Status, fields in the API server's own order."""

    kind: Literal["Status"]
    apiVersion: Literal["v1"]
    metadata: _ListMeta
    status: Literal["Failure"]
    message: str
    reason: str
    details: Details | None = None
    code: int


class RequestError(Exception):
    """Base of what this package answers with a Status. `details` None leaves the field out."""

    code: ClassVar[int]
    reason: ClassVar[str]
    is_plain_text: ClassVar[bool] = False  # sent as text, not as a Status

    def __init__(self, message: str, *, details: Details | None = None, continue_token: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.continue_token = continue_token

    @property
    def retry_after_s(self) -> int:
        """Whole seconds after which to try again; 0 = do not. Mirrored into Retry-After (R2)."""
        return self.details.retryAfterSeconds if self.details is not None else 0


class BadRequest(RequestError):
    code, reason = 400, "BadRequest"


class Unauthorized(RequestError):
    """A20: the message says no more, there are no details, and no WWW-Authenticate."""

    code, reason = 401, "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(RequestError):
    code, reason = 403, "Forbidden"


class NotFound(RequestError):
    """The named object is absent; behind a subresource too it is the parent that is named (R4)."""

    code, reason = 404, "NotFound"

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(
            f"{resource}.{GROUP} {quote(name)} not found",
            details=Details(name=name, group=GROUP, kind=resource),
        )


class UnknownRoute(RequestError):
    code, reason = 404, "NotFound"

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource", details=Details())


class MethodNotAllowed(RequestError):
    code, reason = 405, "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__("the server does not allow this method on the requested resource", details=Details())


class NotAcceptable(RequestError):
    """Nothing of what the client accepts is on offer: says what is, or why the wanted form is not."""

    code, reason = 406, "NotAcceptable"

    def __init__(self, offer: Sequence[str] | str) -> None:
        super().__init__(
            offer
            if isinstance(offer, str)
            else "only the following media types are accepted: " + ", ".join(offer)
        )


class Expired(RequestError):
    """The state asked for is gone; `continue_token` may go on from the present one (L13)."""

    code, reason = 410, "Expired"


class Invalid(RequestError):
    """List or watch options that exclude each other (L4). `causes` has at least one, each with its field."""

    code, reason = 422, "Invalid"

    def __init__(self, causes: Sequence[Cause]) -> None:
        faults = [f"{cause.field}: {cause.message}" for cause in causes]
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        super().__init__(
            f'ListOptions.meta.k8s.io "" is invalid: {text}',
            details=Details(group="meta.k8s.io", kind="ListOptions", causes=tuple(causes)),
        )


class TooManyRequests(RequestError):
    """Too much in flight. Plain text, as the Go filter's (R1)."""

    code, reason = 429, "TooManyRequests"
    is_plain_text = True

    def __init__(self) -> None:
        super().__init__(
            "Too many requests, please try again later.", details=Details(retryAfterSeconds=RETRY_AFTER_S)
        )


class InternalError(RequestError):
    """Something unforeseen. The cause is in the log, found by the answer's Audit-Id, never in the answer."""

    code, reason = 500, "InternalError"

    def __init__(self) -> None:
        what = "the request failed unexpectedly; the server's log tells why under this answer's Audit-Id"
        super().__init__(f"Internal error occurred: {what}", details=Details(causes=(Cause(message=what),)))


class ReviewUnavailable(RequestError):
    """The access review could not be made: text, not a Status, and never a 403 (Z13)."""

    code, reason = 500, "InternalError"
    is_plain_text = True

    def __init__(self, uri: str) -> None:
        super().__init__(
            _without_markup(f"Internal Server Error: {quote(uri)}: the access review could not be made")
        )


class Unavailable(RequestError):
    """Not now: caches are not filled yet, or the server is going away. Always says when to retry (R2, R3)."""

    code, reason = 503, "ServiceUnavailable"

    def __init__(self, message: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(message, details=Details(retryAfterSeconds=retry_after_s))


class Timeout(RequestError):
    code, reason = 504, "Timeout"

    def __init__(self, why: str, *, details: Details | None = None) -> None:
        super().__init__(f"Timeout: {why}", details=details or Details())


class TooLargeResourceVersion(Timeout):
    """The revision lies ahead of ours; the cause makes a reflector list anew (L8)."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(
            f"Too large resource version: {asked}, current: {current}",
            details=Details(
                causes=(Cause(reason="ResourceVersionTooLarge", message="Too large resource version"),),
                retryAfterSeconds=RETRY_AFTER_S,
            ),
        )


def to_request_error(error: Exception, *, uri: str) -> RequestError:
    """What a client is told of `error`; `uri` is the request's own, path and query."""
    match error:
        case RequestError():
            return error
        case Unauthenticated():
            return Unauthorized()
        case AccessDenied():
            return _forbidden(error)
        case ReviewFailed():
            return ReviewUnavailable(uri)
        case _:
            return InternalError()


def encode_status(error: RequestError) -> bytes:
    """The Status as compact JSON without a newline: a whole body's start, or a watch event's object."""
    return msgspec.json.encode(
        Status(
            kind="Status",
            apiVersion="v1",
            metadata=_ListMeta(continue_token=error.continue_token),
            status="Failure",
            message=error.message,
            reason=error.reason,
            details=error.details,
            code=error.code,
        )
    )


def _forbidden(error: AccessDenied) -> Forbidden:
    """The API server's own wording (Z14, Z15)."""
    asked = error.attributes
    user = quote(error.identity.user)
    if not asked.is_resource:
        subject, details = "forbidden", Details()
        refused = f"User {user} cannot {asked.verb} path {quote(asked.path)}"
    else:
        plural = f"{asked.resource}.{asked.group}"
        subject = f"{plural} {quote(asked.name)} is forbidden" if asked.name else f"{plural} is forbidden"
        what = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        where = f"in the namespace {quote(asked.namespace)}" if asked.namespace else "at the cluster scope"
        group = quote(asked.group)
        refused = f"User {user} cannot {asked.verb} resource {quote(what)} in API group {group} {where}"
        details = Details(name=asked.name, group=asked.group, kind=asked.resource)
    message = f"{subject}: {_without_markup(refused)}"
    return Forbidden(f"{message}: {error.reason}" if error.reason else message, details=details)


def _without_markup(text: str) -> str:
    """Nothing in it looks like HTML to a browser; quotes stay (Z15)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
