"""What can go wrong between this server and kube-apiserver.

ClusterError
  ApiError      it answered with a Status that is not a success
  Unreachable   it did not answer, or not completely
    TooLarge    its response exceeds a limit
"""

from __future__ import annotations

_REFUSALS = {
    401: "which does not accept the credentials that this server presents (HTTP 401)",
    403: "which gives this server no right to read its jobs (HTTP 403)",
}


class ClusterError(Exception):
    """Base of this package's errors. Messages never contain a body as received."""

    clause = "which does not answer"  # of that server, for anybody: without its address and its own words


class ApiError(ClusterError):
    """kube-apiserver refused the request: an HTTP status, and the Status that came with it."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", *, retry_after_s: float | None = None
    ) -> None:
        text = f"HTTP {status} {reason}".rstrip() + (f": {message}" if message else "")
        if status == 401:
            text = f"{text}. Renew the token or the client certificate that this server presents"
        super().__init__(text)
        self.clause = _REFUSALS.get(status, self.clause)
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

    def __init__(self, text: str, *, untrusted: str = "") -> None:
        """`untrusted`: why the server's certificate is not accepted."""
        super().__init__(text)
        if untrusted:
            self.clause = f"whose certificate is not accepted ({untrusted})"


class TooLarge(Unreachable):
    """A response that exceeds its limit in bytes: requesting less of it may help."""
