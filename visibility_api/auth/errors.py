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
