"""Users by bearer token, as kube-apiserver judges it (A15 to A18).

A token is never stored: answers are kept under a hash with a key of this process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from visibility_api.cluster.errors import ApiError, ClusterError

from .answer_cache import AnswerCache
from .errors import CredentialRejected, TokenReviewFailed
from .identity import Identity, authenticated
from .review import Reviews

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_ENTRIES = 8192


class _Spec(msgspec.Struct, omit_defaults=True):
    token: str
    audiences: Sequence[str] = ()


class _Question(msgspec.Struct):
    apiVersion: str
    kind: str
    spec: _Spec


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Verdict(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: tuple[str, ...] | None = None


class _Answer(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


class TokenReviewer:
    """Identifies bearers. `audiences`: what a token must be meant for; none = what kube-apiserver accepts."""

    def __init__(
        self, reviews: Reviews, *, audiences: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reviews = reviews
        self._audiences = tuple(audiences)
        self._key = secrets.token_bytes(32)
        self._answers: AnswerCache[tuple[bytes, tuple[str, ...]], Identity | CredentialRejected] = (
            AnswerCache(max_entries=MAX_ENTRIES, clock=clock)
        )

    async def identify(self, token: str, audiences: Sequence[str] = ()) -> Identity:
        """The token's user. `audiences`: instead of those given at the start.

        Raises CredentialRejected when it is not accepted, TokenReviewFailed when it could not be reviewed.
        """
        wanted = tuple(audiences) or self._audiences
        digest = hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
        key = (digest, wanted)
        answer = self._answers.get(key) or await self._answers.find(key, lambda: self._review(token, wanted))
        if isinstance(answer, CredentialRejected):
            raise CredentialRejected(*answer.args)
        return answer

    async def _review(self, token: str, audiences: Sequence[str]) -> Identity | CredentialRejected:
        """A refusal is an answer, to be remembered; only a failed call is raised (A17)."""
        question = _Question(
            "authentication.k8s.io/v1", "TokenReview", _Spec(token=token, audiences=audiences)
        )
        try:
            body = await self._reviews.post(msgspec.json.encode(question))
            verdict = msgspec.json.decode(body, type=_Answer).status
        except ClusterError as error:
            # No `from`: what caused it may hold the request, and with it the token.
            why = f"HTTP {error.status}" if isinstance(error, ApiError) else "no answer"
            raise TokenReviewFailed(f"the token could not be reviewed: {why}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise TokenReviewFailed("the token review's answer cannot be read") from None
        if not verdict.authenticated or not verdict.user.username:
            return CredentialRejected("the token is not accepted")
        if audiences and not set(audiences).intersection(verdict.audiences or ()):
            return CredentialRejected("the token is meant for another audience")
        user = verdict.user
        return authenticated(
            Identity(
                user=user.username,
                groups=user.groups or (),
                uid=user.uid,
                extra=tuple(sorted((user.extra or {}).items())),
            )
        )
