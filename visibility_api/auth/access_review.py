"""Whether a user may: kube-apiserver's SubjectAccessReview, asked for each request again (Z1 to Z13).

Reviewed at a request's start only; a watch outlives a right that is taken away by at most its own timeout,
as it does in the Go library (Z16).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from visibility_api.cluster.errors import ClusterError

from .answer_cache import AnswerCache
from .errors import AccessDenied, ReviewFailed
from .identity import MASTERS_GROUP, Attributes, Identity, Requirement
from .review import Reviews

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPEN_PATHS = frozenset(("/healthz", "/livez", "/readyz"))  # these alone, not what lies below them (Z6)
MAX_ENTRIES = 8192
MAX_CACHED_CHARACTERS = 10_000  # of one question's attributes; longer ones are asked each time (Z12)
_REASON_CHARACTERS = 500


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


class _Question(msgspec.Struct):
    apiVersion: str
    kind: str
    spec: _Spec


class _Verdict(msgspec.Struct):
    """`evaluationError` is left out on purpose: it is no verdict (Z11)."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _Answer(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


class AccessReviewer:
    """The API's `Authorizer`."""

    def __init__(self, reviews: Reviews, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews = reviews
        self._verdicts: AnswerCache[tuple[Identity, Attributes], _Verdict] = AnswerCache(
            max_entries=MAX_ENTRIES, clock=clock
        )

    async def authorize(self, identity: Identity, attributes: Attributes) -> None:
        """Returns if allowed; raises AccessDenied or ReviewFailed."""
        if MASTERS_GROUP in identity.groups:
            return
        if attributes.path in OPEN_PATHS and not attributes.is_resource:
            return
        key = (identity, attributes)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if _count_characters(identity, attributes) < MAX_CACHED_CHARACTERS:
                verdict = await self._verdicts.find(key, lambda: self._review(identity, attributes))
            else:
                verdict = await self._review(identity, attributes)
        if verdict.denied or not verdict.allowed:
            raise AccessDenied(identity, attributes, verdict.reason[:_REASON_CHARACTERS])

    async def _review(self, identity: Identity, attributes: Attributes) -> _Verdict:
        question = _Question("authorization.k8s.io/v1", "SubjectAccessReview", _specify(identity, attributes))
        try:
            body = await self._reviews.post(msgspec.json.encode(question))
            return msgspec.json.decode(body, type=_Answer).status
        except ClusterError as error:
            raise ReviewFailed("the access review could not be made") from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ReviewFailed("the access review could not be read") from error


def _specify(identity: Identity, attributes: Attributes) -> _Spec:
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
            fieldSelector=_select(attributes.field_requirements),
            labelSelector=_select(attributes.label_requirements),
        )
    else:
        spec.nonResourceAttributes = _NonResource(attributes.path, attributes.verb)
    return spec


def _select(requirements: Sequence[Requirement]) -> _Requirements | None:
    return _Requirements(requirements) if requirements else None


def _count_characters(identity: Identity, asked: Attributes) -> int:
    """Of a whole question. Go counts the attributes alone; selectors and groups may be as long here."""
    requirements = asked.field_requirements + asked.label_requirements
    texts = (
        asked.namespace, asked.verb, asked.group, asked.version, asked.resource, asked.subresource,
        asked.name, asked.path,
        *(text for each in requirements for text in (each.key, *each.values)),
        identity.user, identity.uid, *identity.groups,
        *(text for key, values in identity.extra for text in (key, *values)),
    )  # fmt: skip
    return sum(map(len, texts))
