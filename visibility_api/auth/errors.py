"""What authentication and authorisation raise; `visibility_api.errors.status` turns each into a response."""

from __future__ import annotations

from .identity import Attributes, Identity


class AuthError(Exception):
    """Base of this package's errors."""


class Unauthenticated(AuthError):
    """Credentials were given and none was accepted: 401."""


class AccessDenied(AuthError):
    """The access review denied the request: 403, in the API server's own words."""

    def __init__(self, identity: Identity, attributes: Attributes, reason: str = "") -> None:
        super().__init__(reason)
        self.identity = identity
        self.attributes = attributes
        self.reason = reason


class ReviewFailed(AuthError):
    """The access review itself failed: 500, never a grant and never a 403."""


class CredentialRejected(AuthError):
    """One method of authentication rejected the credentials it found; another method may still succeed.

    The message is for the log: it names the fault and carries no credential.
    """


class TokenReviewFailed(CredentialRejected):
    """The token review failed: kube-apiserver did not respond, or its response could not be read."""


class TrustUnusable(AuthError):
    """A CA bundle, a header list or a serving certificate cannot be used; the message says which and why."""


class TrustForbidden(AuthError):
    """This server has no right to read the front proxy's CA and headers: fatal at start unless tolerated."""
