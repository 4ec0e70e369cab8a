"""What can go wrong between this server and kube-apiserver.

ClusterError
  ApiError      it answered with a Status that is not a success
  Unreachable   it did not answer, or not completely
    TooLarge    its response exceeds a limit
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of this package's errors. Messages never contain a body as received."""


class ApiError(ClusterError):
    """kube-apiserver refused the request: an HTTP status, and the Status that came with it."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"HTTP {status} {reason}".rstrip() + (f": {message}" if message else ""))
        self.status = status  # HTTP status code
        self.reason = reason  # of the Status; "" when the body was none
        self.message = message  # of the Status, cut at 500 characters
        self.retry_after_s = retry_after_s

    @property
    def is_retryable(self) -> bool:
        """Whether a review is tried again after this, as by kube-apiserver's own webhook clients.

        k8s.io/apiserver/pkg/util/webhook/webhook.go: DefaultShouldRetry.
        """
        return self.status in (429, 500, 504) or self.retry_after_s is not None


class Unreachable(ClusterError):
    """No response: connection refused or reset, TLS failure, timeout, or no credentials to send."""


class TooLarge(Unreachable):
    """A response that exceeds its limit in bytes: requesting less of it may help."""
