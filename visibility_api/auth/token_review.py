"""Users by bearer token, by TokenReview.

A token is never stored: results are cached under a hash that is keyed with a secret of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import msgspec
from cachetools import TTLCache

from visibility_api.kube.errors import ApiError, ClusterError

from .errors import CredentialRejected, TokenReviewFailed
from .identity import Identity, authenticated
from .review_admission import ReviewAdmission
from .review_cache import ReviewCache
from .review_client import ReviewClient

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_TOKEN_BYTES = 16 * 1024  # a token with hundreds of groups in it is a few KiB
MAX_ENTRIES = 16_384  # 3,100 unknown tokens are reviewed while one result is cached
# A token that was accepted within this time is known: its next review does not wait behind unknown ones.
KNOWN_FOR_S = 3600.0
MAX_KNOWN = 32_768

_Key = tuple[bytes, tuple[str, ...]]  # of token and audiences


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


def header_token(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The token of the first Authorization header; "" when there is none, None after a second space.

    Raises CredentialRejected for a token that no server could have issued.
    """
    value = next((value for name, value in headers if name == b"authorization"), b"").strip()
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"bearer" or not rest:
        return ""
    token = rest.partition(b" ")[0]
    if not token:
        return None
    if len(token) > MAX_TOKEN_BYTES:
        raise CredentialRejected(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise CredentialRejected("the token is not UTF-8") from None


class TokenReviewer:
    """Identifies users by bearer token."""

    def __init__(
        self,
        reviews: ReviewClient,
        *,
        admission: ReviewAdmission | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`admission`: limits the reviews; None = the caller of `identify` does."""
        self._reviews = reviews
        self._admission = admission
        self._key = secrets.token_bytes(32)
        self._results: ReviewCache[_Key, Identity | str] = ReviewCache(max_entries=MAX_ENTRIES, clock=clock)
        self._known: TTLCache[_Key, bool] = TTLCache(MAX_KNOWN, KNOWN_FOR_S, timer=clock)

    async def identify(self, token: str, audiences: Sequence[str] = (), *, address: str = "") -> Identity:
        """The token's user. `audiences`: the token must have one of them; none = kube-apiserver's own.
        `address` is the caller's, for the limit of its reviews.

        Raises CredentialRejected when it is not accepted, TokenReviewFailed when the review failed,
        TooManyRequests when it may not be reviewed now.
        """
        wanted = tuple(audiences)
        key = self._key_of(token, wanted)
        found = self._results.get(key)
        if found is None:
            found = await self._results.find(key, lambda: self._admit(key, token, wanted, address))
        if isinstance(found, str):
            raise CredentialRejected(found)
        return found

    def _key_of(self, token: str, audiences: tuple[str, ...]) -> _Key:
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest(), audiences

    async def _admit(self, key: _Key, token: str, audiences: Sequence[str], address: str) -> Identity | str:
        """The result of one review, which concurrent requests with the same token share."""
        slot = (
            self._admission.slot(address, is_known=key in self._known) if self._admission else nullcontext()
        )
        async with slot:
            found = await self._review(token, audiences)
        if isinstance(found, str):
            self._known.pop(key, None)
        else:
            self._known[key] = True
        return found

    async def _review(self, token: str, audiences: Sequence[str]) -> Identity | str:
        """The user, or why the token is refused. Raises TokenReviewFailed."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token} | ({"audiences": audiences} if audiences else {}),
        }
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
            return "the token is not accepted"
        if audiences and not set(audiences).intersection(status.audiences or ()):
            return "the token is for another audience"
        user = status.user
        return authenticated(
            Identity(
                user=user.username,
                groups=user.groups or (),
                uid=user.uid,
                extra=tuple(sorted((user.extra or {}).items())),
            )
        )
