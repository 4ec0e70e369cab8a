"""What authentication and authorisation raise; `api.status` turns each into an answer."""

from __future__ import annotations

from .identity import Attributes, Identity


class AuthError(Exception):
    """Base of this package's errors."""


class Unauthenticated(AuthError):
    """Credentials were given and none of them held: 401 (A1, A20)."""


class AccessDenied(AuthError):
    """The access review said no: 403 with the API server's own wording (Z14, Z15)."""

    def __init__(self, identity: Identity, attributes: Attributes, reason: str = "") -> None:
        super().__init__(reason)
        self.identity = identity
        self.attributes = attributes
        self.reason = reason


class ReviewFailed(AuthError):
    """The access review itself could not be made: 500, never a grant and never a 403 (Z13)."""


class CredentialRejected(AuthError):
    """One method of authentication found credentials and they do not hold; another may still succeed (A1).

    The message is for our log: it names the fault and carries no credential.
    """


class TokenReviewFailed(CredentialRejected):
    """A token could not be reviewed at all: kube-apiserver did not answer, or not as it should."""


class TrustUnusable(AuthError):
    """A CA bundle, a header list or a serving certificate cannot be used; the message says which and why."""


class TrustForbidden(AuthError):
    """We may not read what tells the front proxy apart: fatal at start unless tolerated (A12)."""
