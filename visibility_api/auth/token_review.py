"""Users by bearer token, by TokenReview.

A token is never stored: results are cached under a hash that is keyed with a secret of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from visibility_api.kube.errors import ApiError, ClusterError

from .errors import CredentialRejected, TokenReviewFailed
from .identity import Identity, authenticated
from .review_cache import ReviewCache
from .review_client import ReviewClient

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_ENTRIES = 8192


class _Spec(msgspec.Struct, omit_defaults=True):
    token: str
    audiences: Sequence[str] = ()


class _TokenReview(msgspec.Struct):
    apiVersion: str
    kind: str
    spec: _Spec


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: tuple[str, ...] | None = None


class _ReviewedToken(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class TokenReviewer:
    """Identifies users by bearer token."""

    def __init__(
        self,
        reviews: ReviewClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews = reviews
        self._key = secrets.token_bytes(32)
        self._results: ReviewCache[tuple[bytes, tuple[str, ...]], Identity | CredentialRejected] = (
            ReviewCache(max_entries=MAX_ENTRIES, clock=clock)
        )

    async def identify(self, token: str, audiences: Sequence[str] = ()) -> Identity:
        """The token's user. `audiences`: the token must have one of them; none = kube-apiserver's own.

        Raises CredentialRejected when it is not accepted, TokenReviewFailed when the review failed.
        """
        wanted = tuple(audiences)
        digest = hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
        key = (digest, wanted)
        result = self._results.get(key) or await self._results.find(key, lambda: self._review(token, wanted))
        if isinstance(result, CredentialRejected):
            raise CredentialRejected(*result.args)
        return result

    async def _review(self, token: str, audiences: Sequence[str]) -> Identity | CredentialRejected:
        """A rejection is returned, so that it is cached; only a failed review is raised."""
        review = _TokenReview(
            "authentication.k8s.io/v1", "TokenReview", _Spec(token=token, audiences=audiences)
        )
        try:
            body = await self._reviews.post(msgspec.json.encode(review))
            status = msgspec.json.decode(body, type=_ReviewedToken).status
        except ClusterError as error:
            # No `from`: the cause may hold the request, and with it the token.
            why = f"HTTP {error.status}" if isinstance(error, ApiError) else "no response"
            raise TokenReviewFailed(f"the token could not be reviewed: {why}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise TokenReviewFailed("the token review's response cannot be read") from None
        if not status.authenticated or not status.user.username:
            return CredentialRejected("the token is not accepted")
        if audiences and not set(audiences).intersection(status.audiences or ()):
            return CredentialRejected("the token is for another audience")
        user = status.user
        return authenticated(
            Identity(
                user=user.username,
                groups=user.groups or (),
                uid=user.uid,
                extra=tuple(sorted((user.extra or {}).items())),
            )
        )
