"""What may go wrong, by who has to act.

ClientError
  ConfigError        kubeconfig or its credentials
  UnreachableError   no answer from the API server
  ApiError           the server refused
    UnauthorizedError, ForbiddenError, NotFoundError
  JobEndedError      a job ended without what was waited for
"""

from __future__ import annotations

import json
from typing import Any, Dict, Optional


class ClientError(Exception):
    """Any error of this package."""


class ConfigError(ClientError):
    """The kubeconfig, or what it names, is of no use."""


class UnreachableError(ClientError, ConnectionError):
    """The API server does not answer."""


class JobEndedError(ClientError, RuntimeError):
    """The job has ended without what was waited for. `job` is how it ended."""

    def __init__(self, message: str, job: Any) -> None:
        super().__init__(message)
        self.job = job


class ApiError(ClientError):
    """The server's Status. `code` and `reason` are its own, such as 403 and Forbidden."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: Optional[float] = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class UnauthorizedError(ApiError):
    """The credentials are not accepted."""


class ForbiddenError(ApiError):
    """The user has no right to this."""


class NotFoundError(ApiError):
    """There is no such job, or no such API."""


_BY_CODE = {401: UnauthorizedError, 403: ForbiddenError, 404: NotFoundError}


def refusal(code: int, body: bytes, headers: Optional[Dict[str, str]] = None) -> ApiError:
    """The error for an answer, from the Status in its body if there is one."""
    try:
        status = json.loads(body)
        status = status if isinstance(status, dict) and status.get("kind") == "Status" else {}
    except ValueError:
        status = {}
    details = status.get("details") or {}
    retry_after_s = _seconds((headers or {}).get("retry-after"))
    if retry_after_s is None:
        retry_after_s = _seconds(details.get("retryAfterSeconds"))
    text = status.get("message") or body[:200].decode(errors="replace").strip() or f"HTTP status {code}"
    # kube-apiserver's own 404 for a group that is not there names nothing.
    if code == 404 and not details.get("name") and "could not find" in text:
        text = (
            "This cluster does not serve that: is trainjob-visibility installed?"
            " Records of jobs need its flag --archive."
        )
    return _BY_CODE.get(code, ApiError)(code, status.get("reason") or "Unknown", text, retry_after_s)


def _seconds(value: Any) -> Optional[float]:
    """Seconds of a Retry-After; a date, which Kubernetes never sends, is ignored."""
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None
