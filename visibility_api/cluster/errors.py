"""What can go wrong between us and kube-apiserver.

ClusterError
  ApiError      it answered, with a Status that is not a success
  Unreachable   it did not answer, or not in full
    TooLarge    its answer goes past our bound
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of this package's errors. Messages never carry a body as received."""


class ApiError(ClusterError):
    """kube-apiserver refused: an HTTP status with the Status that came with it."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"HTTP {status} {reason}".rstrip() + (f": {message}" if message else ""))
        self.status = status  # HTTP status code
        self.reason = reason  # Status reason, "" when the answer was no Status
        self.message = message  # Status message, cut at 500 characters
        self.retry_after_s = retry_after_s

    @property
    def is_retryable(self) -> bool:
        """A18 and R2: what a client may try again."""
        return self.status in (429, 500, 504) or self.retry_after_s is not None


class Unreachable(ClusterError):
    """No answer: connection refused or reset, TLS failure, time-out, no credentials to ask with."""


class TooLarge(Unreachable):
    """An answer that goes past its byte limit: asking for less of it may help."""
