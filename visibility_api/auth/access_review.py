"""Authorisation by SubjectAccessReview, for each request again: direct clients never passed kube-apiserver.

A request is authorised once, at its start. A watch therefore outlives a revoked right until its own timeout,
as with the Go library. The rules are those of
`k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from visibility_api.errors.status import TooManyRequests
from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.flowcontrol.token_bucket import Buckets
from visibility_api.kube.errors import ClusterError

from .errors import AccessDenied, ReviewFailed
from .identity import MASTERS_GROUP, Attributes, Identity, client_of
from .review_cache import ReviewCache
from .review_client import ReviewClient

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPEN_PATHS = frozenset(("/healthz", "/livez", "/readyz"))  # always allowed; /readyz/NAME and the like are not
MAX_ENTRIES = 8192
MAX_CACHED_BYTES = 10_000  # of one review; a longer one is sent each time
_REASON_CHARACTERS = 500
# Each client (`client_of`) has a queue and a rate. Queues are served round-robin; a flood delays its sender.
# All anonymous callers together are one user.
MAX_RUNNING, MAX_RUNNING_PER_USER = 64, 16
MAX_WAITING, MAX_WAITING_PER_USER = 2048, 256
WAIT_S = 10.0
REVIEWS_PER_S, REVIEW_BURST = 200.0, 2000.0
# What a denied review takes of these: a user without rights has 20 a second, after 200.
DENIAL_COST = 10.0
MAX_USERS = 16_384
_CROWDED = "too many requests wait for their access review; try again after the time in Retry-After"
_FLOODED = (
    "too many different requests of this user need an access review; list instead of getting one by one, or "
    "try again after the time in Retry-After"
)


class _Decision(msgspec.Struct):
    """The review's `status`. `evaluationError` is left out on purpose: it decides nothing."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.allowed and not self.denied


class ReviewedAccess(msgspec.Struct):
    """A review, as kube-apiserver answers it."""

    status: _Decision = msgspec.field(default_factory=_Decision)


class AccessReviewer:
    """The application's `Authorizer`."""

    def __init__(self, reviews: ReviewClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews = reviews
        self._clock = clock
        self._decisions: ReviewCache[tuple[Identity, Attributes], _Decision] = ReviewCache(
            max_entries=MAX_ENTRIES, clock=clock
        )
        self._queues = ClientQueues(
            crowded=_CROWDED,
            max_running=MAX_RUNNING,
            max_running_per_client=MAX_RUNNING_PER_USER,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING_PER_USER,
            wait_s=WAIT_S,
        )
        self._buckets = Buckets(per_s=REVIEWS_PER_S, burst=REVIEW_BURST, most=MAX_USERS)

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        """Returns if allowed; raises AccessDenied, ReviewFailed; TooManyRequests when it may not be reviewed
        now."""
        if MASTERS_GROUP in identity.groups:
            return
        if attributes.path in OPEN_PATHS and not attributes.is_resource:
            return
        key = (identity, attributes)
        decision = self._decisions.get(key)
        if decision is None:
            review = _encode_review(identity, attributes)
            if len(review) < MAX_CACHED_BYTES:
                decision = await self._decisions.find(key, lambda: self._admit(client_of(identity), review))
            else:
                decision = await self._admit(client_of(identity), review)
        if not decision.is_allowed:
            raise AccessDenied(identity, attributes, decision.reason[:_REASON_CHARACTERS])

    async def _admit(self, client: str, review: bytes) -> _Decision:
        now = self._clock()
        bucket = self._buckets.of(client, now)
        if not bucket.take(now):
            raise TooManyRequests(_FLOODED)
        async with self._queues.slot(client):
            decision = await self._review(review)
        if not decision.is_allowed:
            bucket.charge(DENIAL_COST - 1.0)
        return decision

    async def _review(self, review: bytes) -> _Decision:
        try:
            return msgspec.json.decode(await self._reviews.post(review), type=ReviewedAccess).status
        except ClusterError as error:
            raise ReviewFailed("the access review could not be made") from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ReviewFailed("the access review could not be read") from error


def _encode_review(identity: Identity, attributes: Attributes) -> bytes:
    spec = {
        "user": identity.user,
        "groups": identity.groups,
        "extra": dict(identity.extra),
        "uid": identity.uid,
    }
    if attributes.is_resource:
        fields, labels = attributes.field_requirements, attributes.label_requirements
        asked = {
            "namespace": attributes.namespace,
            "verb": attributes.verb,
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "name": attributes.name,
            "fieldSelector": {"requirements": fields} if fields else None,
            "labelSelector": {"requirements": labels} if labels else None,
        }
        spec["resourceAttributes"] = _without_empty(asked)
    else:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": _without_empty(spec),
    }
    return msgspec.json.encode(review)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
