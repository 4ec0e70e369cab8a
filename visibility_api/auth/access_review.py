"""Authorisation by SubjectAccessReview, for each request again: direct clients never passed kube-apiserver.

A request is authorised once, at its start. A watch therefore outlives a revoked right until its own timeout,
as with the Go library. The rules are those of
`k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
from cachetools import LRUCache

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.kube.errors import ClusterError

from .errors import AccessDenied, ReviewFailed
from .identity import ANONYMOUS_USER, MASTERS_GROUP, Attributes, Identity, Requirement
from .review_cache import ReviewCache
from .review_client import ReviewClient

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPEN_PATHS = frozenset(("/healthz", "/livez", "/readyz"))  # always allowed; /readyz/NAME and the like are not
MAX_ENTRIES = 8192
MAX_CACHED_CHARACTERS = 10_000  # of one request's attributes; a longer one is reviewed each time
_REASON_CHARACTERS = 500
# Each user has a queue, which are served round-robin, and a rate: who asks for ever other paths or names
# delays nobody else. All anonymous callers together are one user, with a cache of their own.
MAX_RUNNING, MAX_RUNNING_PER_USER = 64, 16
MAX_WAITING, MAX_WAITING_PER_USER = 2048, 256
WAIT_S = 10.0
REVIEWS_PER_S, REVIEW_BURST = 200.0, 2000.0
# What a review takes of these when its answer is no: who may read nothing has 20 a second, after 200.
DENIAL_COST = 10.0
ANONYMOUS_REVIEWS_PER_S, ANONYMOUS_REVIEW_BURST = 20.0, 100.0
MAX_ANONYMOUS_ENTRIES = 512
MAX_USERS = 16_384
_CROWDED = "too many requests wait for their access review; try again after the time in Retry-After"
_FLOODED = (
    "too many different requests of this user need an access review; list instead of getting one by one, or "
    "try again after the time in Retry-After"
)


class _Requirements(msgspec.Struct):
    requirements: Sequence[Requirement]


class _Resource(msgspec.Struct, omit_defaults=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    fieldSelector: _Requirements | None = None
    labelSelector: _Requirements | None = None


class _NonResource(msgspec.Struct):
    path: str
    verb: str


class _Spec(msgspec.Struct, omit_defaults=True):
    resourceAttributes: _Resource | None = None
    nonResourceAttributes: _NonResource | None = None
    user: str = ""
    groups: Sequence[str] = ()
    extra: dict[str, Sequence[str]] = {}
    uid: str = ""


class _AccessReview(msgspec.Struct):
    apiVersion: str
    kind: str
    spec: _Spec


class _Decision(msgspec.Struct):
    """The review's `status`. `evaluationError` is left out on purpose: it decides nothing."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _ReviewedAccess(msgspec.Struct):
    status: _Decision = msgspec.field(default_factory=_Decision)


_Decisions = ReviewCache[tuple[Identity, Attributes], _Decision]


class AccessReviewer:
    """The application's `Authorizer`."""

    def __init__(self, reviews: ReviewClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews = reviews
        self._clock = clock
        self._decisions: _Decisions = ReviewCache(max_entries=MAX_ENTRIES, clock=clock)
        self._of_anonymous: _Decisions = ReviewCache(max_entries=MAX_ANONYMOUS_ENTRIES, clock=clock)
        self._queues = ClientQueues(
            crowded=_CROWDED,
            max_running=MAX_RUNNING,
            max_running_per_client=MAX_RUNNING_PER_USER,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING_PER_USER,
            wait_s=WAIT_S,
        )
        self._buckets: LRUCache[str, Bucket] = LRUCache(MAX_USERS)  # by user

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        """Returns if allowed; raises AccessDenied, ReviewFailed; TooManyRequests when it may not be reviewed
        now."""
        if MASTERS_GROUP in identity.groups:
            return
        if attributes.path in OPEN_PATHS and not attributes.is_resource:
            return
        decisions = self._decisions if identity.user != ANONYMOUS_USER else self._of_anonymous
        key = (identity, attributes)
        decision = decisions.get(key)
        if decision is None:
            if _count_characters(identity, attributes) < MAX_CACHED_CHARACTERS:
                decision = await decisions.find(key, lambda: self._admit(identity, attributes))
            else:
                decision = await self._admit(identity, attributes)
        if decision.denied or not decision.allowed:
            raise AccessDenied(identity, attributes, decision.reason[:_REASON_CHARACTERS])

    async def _admit(self, identity: Identity, attributes: Attributes) -> _Decision:
        bucket = self._bucket(identity.user)
        if not bucket.take(self._clock()):
            raise TooManyRequests(_FLOODED)
        async with self._queues.slot(identity.user):
            decision = await self._review(identity, attributes)
        is_denied = decision.denied or not decision.allowed
        if is_denied and identity.user != ANONYMOUS_USER:  # whose own rate is for denials
            bucket.charge(DENIAL_COST - 1.0)
        return decision

    def _bucket(self, user: str) -> Bucket:
        bucket = self._buckets.get(user)
        if bucket is None:
            per_s, burst = (
                (REVIEWS_PER_S, REVIEW_BURST)
                if user != ANONYMOUS_USER
                else (ANONYMOUS_REVIEWS_PER_S, ANONYMOUS_REVIEW_BURST)
            )
            bucket = self._buckets[user] = Bucket(per_s=per_s, burst=burst, now=self._clock())
        return bucket

    async def _review(self, identity: Identity, attributes: Attributes) -> _Decision:
        review = _AccessReview("authorization.k8s.io/v1", "SubjectAccessReview", _spec(identity, attributes))
        try:
            body = await self._reviews.post(msgspec.json.encode(review))
            return msgspec.json.decode(body, type=_ReviewedAccess).status
        except ClusterError as error:
            raise ReviewFailed("the access review could not be made") from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ReviewFailed("the access review could not be read") from error


def _spec(identity: Identity, attributes: Attributes) -> _Spec:
    spec = _Spec(user=identity.user, groups=identity.groups, extra=dict(identity.extra), uid=identity.uid)
    if attributes.is_resource:
        spec.resourceAttributes = _Resource(
            namespace=attributes.namespace,
            verb=attributes.verb,
            group=attributes.group,
            version=attributes.version,
            resource=attributes.resource,
            subresource=attributes.subresource,
            name=attributes.name,
            fieldSelector=_requirements(attributes.field_requirements),
            labelSelector=_requirements(attributes.label_requirements),
        )
    else:
        spec.nonResourceAttributes = _NonResource(attributes.path, attributes.verb)
    return spec


def _requirements(requirements: Sequence[Requirement]) -> _Requirements | None:
    return _Requirements(requirements) if requirements else None


def _count_characters(identity: Identity, attributes: Attributes) -> int:
    """The size of a cache key. Go counts the attributes alone; selectors and groups may be as long here."""
    requirements = attributes.field_requirements + attributes.label_requirements
    texts = (
        attributes.namespace, attributes.verb, attributes.group, attributes.version,
        attributes.resource, attributes.subresource, attributes.name, attributes.path,
        *(text for each in requirements for text in (each.key, *each.values)),
        identity.user, identity.uid, *identity.groups,
        *(text for key, values in identity.extra for text in (key, *values)),
    )  # fmt: skip
    return sum(map(len, texts))
