"""Every way a push is refused: a Status in upstream's reasons and codes, in our own words.

  Forbidden          403   no token, or none that holds for this job; never 401
  NotFound           404   no such TrainJob, or a method other than POST on upstream's path
  TooLarge           413   by Content-Length
  Invalid            422   a body that cannot be taken even with clamping
  TooManyRequests    429   with Retry-After
  InternalError      500
  Unavailable        503   the jobs are not known yet

No message carries anything of the request: clients log them.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

RETRY_AFTER_S = 1


class Refusal(Exception):
    """Base; the message is what the client is told."""

    code: ClassVar[int]
    reason: ClassVar[str]
    retry_after_s: ClassVar[int] = 0

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Forbidden(Refusal):
    code, reason = 403, "Forbidden"


class NotFound(Refusal):
    code, reason = 404, "NotFound"


class TooLarge(Refusal):
    code, reason = 413, "RequestEntityTooLarge"


class Invalid(Refusal):
    code, reason = 422, "Invalid"


class TooManyRequests(Refusal):
    code, reason, retry_after_s = 429, "TooManyRequests", RETRY_AFTER_S


class InternalError(Refusal):
    code, reason = 500, "InternalError"


class Unavailable(Refusal):
    code, reason, retry_after_s = 503, "ServiceUnavailable", RETRY_AFTER_S


def encode_refusal(refusal: Refusal) -> bytes:
    """metav1.Status as JSON."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.code,
    }
    if refusal.retry_after_s:
        status["details"] = {"retryAfterSeconds": refusal.retry_after_s}
    return msgspec.json.encode(status) + b"\n"
