"""The errors of requests and their responses: each becomes a metav1.Status with a reason.

Handlers raise these and never build an error response. `app/refusal.py` converts the errors of `auth`.
Messages contain nothing of a request's body or token, because clients log them.

Codes, reasons and texts are those of k8s.io/apimachinery/pkg/api/errors and k8s.io/apiserver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from visibility_api.errors.text import harmless, quote, without_markup
from visibility_api.models.meta_v1 import ListMeta, Status, StatusCause, StatusDetails
from visibility_api.models.served import GROUP

RETRY_AFTER_S = 1  # as the API server's


class RequestError(Exception):
    """Base of the errors that become a Status. With `details` None the field is left out."""

    code: ClassVar[int]
    reason: ClassVar[str]
    is_plain_text: ClassVar[bool] = False  # sent as text, not as a Status

    def __init__(
        self, message: str, *, details: StatusDetails | None = None, continue_token: str = ""
    ) -> None:
        super().__init__(message)
        self.message = harmless(message)  # repeats names of the request
        self.details = details
        self.continue_token = continue_token

    @property
    def retry_after_s(self) -> int:
        """Whole seconds until the client should retry; 0 = it should not. Also the Retry-After header."""
        return (self.details.retry_after_seconds or 0) if self.details is not None else 0


class BadRequest(RequestError):
    code, reason = 400, "BadRequest"


class Unauthorized(RequestError):
    """As the API server's: no further message, no details, no WWW-Authenticate header."""

    code, reason = 401, "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(RequestError):
    code, reason = 403, "Forbidden"


class NotFound(RequestError):
    code, reason = 404, "NotFound"


class ObjectNotFound(NotFound):
    """The named object is absent. Of a subresource, the message names the parent resource."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(
            f"{resource}.{GROUP} {quote(name)} not found",
            details=StatusDetails(name=name, group=GROUP, kind=resource),
        )


class UnknownRoute(NotFound):
    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource", details=StatusDetails())


class PageNotFound(NotFound):
    """A path outside the API groups, with the API server's own text."""

    is_plain_text = True

    def __init__(self) -> None:
        super().__init__("404 page not found")


class MethodNotAllowed(RequestError):
    code, reason = 405, "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__(
            "the server does not allow this method on the requested resource", details=StatusDetails()
        )


class NotAcceptable(RequestError):
    """No accepted media type is served. The message lists those that are, or says why the form is refused."""

    code, reason = 406, "NotAcceptable"

    def __init__(self, served: Sequence[str] | str) -> None:
        super().__init__(
            served
            if isinstance(served, str)
            else "only the following media types are accepted: " + ", ".join(served)
        )


class Conflict(RequestError):
    """Not in the state that the object is in."""

    code, reason = 409, "Conflict"


class Expired(RequestError):
    """The requested state is no longer held; `continue_token` continues the list with the current one."""

    code, reason = 410, "Expired"


class RequestEntityTooLarge(RequestError):
    code, reason = 413, "RequestEntityTooLarge"


class Invalid(RequestError):
    """A field with an invalid value, which the message names."""

    code, reason = 422, "Invalid"


class InvalidListOptions(Invalid):
    """List or watch options that exclude each other. `causes` has at least one fault, with its field."""

    def __init__(self, causes: Sequence[StatusCause]) -> None:
        faults = [f"{cause.field}: {cause.message}" for cause in causes]
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        super().__init__(
            f'ListOptions.meta.k8s.io "" is invalid: {text}',
            details=StatusDetails(group="meta.k8s.io", kind="ListOptions", causes=tuple(causes)),
        )


def cause(reason: str, message: str, field: str) -> StatusCause:
    """One of several faults of a request. Its texts may repeat what the request says."""
    return StatusCause(reason=reason, message=harmless(message), field=harmless(field))


class TooManyRequests(RequestError):
    """The limit of a client or of a job; clients retry after Retry-After."""

    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(message, details=StatusDetails(retry_after_seconds=retry_after_s))


class Overloaded(TooManyRequests):
    """Too many requests in flight. Plain text, as from the API server."""

    is_plain_text = True

    def __init__(self) -> None:
        super().__init__("Too many requests, please try again later.")


class InternalError(RequestError):
    """An unforeseen error. Its cause is in the log under the response's Audit-Id, never in the response."""

    code, reason = 500, "InternalError"

    def __init__(
        self,
        what: str = "the request failed unexpectedly; the server's log has the cause under this Audit-Id",
    ) -> None:
        super().__init__(
            f"Internal error occurred: {what}", details=StatusDetails(causes=(StatusCause(message=what),))
        )


class ReviewUnavailable(RequestError):
    """The access review failed. Plain text, and not a 403: nothing was decided."""

    code, reason = 500, "InternalError"
    is_plain_text = True

    def __init__(self, uri: str) -> None:
        super().__init__(
            without_markup(f"Internal Server Error: {quote(uri)}: the access review could not be made")
        )


class Unavailable(RequestError):
    """The caches are not filled yet, or the server is shutting down. Always with Retry-After."""

    code, reason = 503, "ServiceUnavailable"

    def __init__(self, message: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(message, details=StatusDetails(retry_after_seconds=retry_after_s))


class Timeout(RequestError):
    code, reason = 504, "Timeout"

    def __init__(self, why: str, *, details: StatusDetails | None = None) -> None:
        super().__init__(f"Timeout: {why}", details=details or StatusDetails())


class TooLargeResourceVersion(Timeout):
    """The requested revision is newer than the server's; the cause makes a reflector list again."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(
            f"Too large resource version: {requested}, current: {current}",
            details=StatusDetails(
                causes=(StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version"),),
                retry_after_seconds=RETRY_AFTER_S,
            ),
        )


def encode_status(error: RequestError) -> bytes:
    """The Status as compact JSON without a newline: a body, or the object of a watch event."""
    status = Status(
        metadata=ListMeta.model_validate({"continue": error.continue_token or None}),
        message=error.message,
        reason=error.reason,
        details=error.details,
        code=error.code,
    )
    return status.encode()
