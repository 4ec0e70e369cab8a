"""Authenticates a push: by a bearer token that is bound to a pod of the job which the path names, or of any.

Headers of a front proxy and client certificates have no effect here. The result is cached under a hash of the
token, so that the next push with it costs a dictionary look-up.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from visibility_api.auth.errors import CredentialRejected, TokenReviewFailed
from visibility_api.auth.identity import Identity
from visibility_api.auth.review_admission import ReviewAdmission
from visibility_api.auth.token_review import KNOWN_FOR_S, MAX_TOKEN_BYTES, TokenReviewer
from visibility_api.errors.status import (
    Forbidden,
    InternalError,
    NotFound,
    RequestError,
    TooManyRequests,
    Unavailable,
)
from visibility_api.flowcontrol.report_shares import Budgets, Shares
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.kinds import BUILT_IN, Kinds
from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.workloads.kind import JobKind

from .body import Headers
from .ownership import Membership, Owners
from .paths import Target, read_claims

log = structlog.get_logger("visibility.pushing")

Exists = Callable[[JobRef], Awaitable[bool]]  # whether kube-apiserver has it now. Raises ClusterError
FindJob = Callable[[str, str, str], TrainingJob | None]  # by resource, namespace and name

# How long a reviewed token is accepted, unless its pod goes or it expires earlier. Ten seconds, as elsewhere,
# would mean a review for every other push.
GRANT_TTL_S = 120.0
RENEWED_S = 8.0  # before its time is over, a token that goes on pushing is reviewed while pushes are taken
POD_SEEN_FOR_S = 10.0  # how long a pod counts as being there after it was read, or the watch has shown it
SAME_FOR_S = 1.0  # how long a job whose objects do not change is not looked at again for its pod
TIMEOUT_S = 4.0  # clients wait 5 s
MAX_GRANTS = 32_768
# A token that was refused is seldom accepted a moment later, and its client goes on pushing.
REFUSED_FOR_S = 30.0
# Where the path does not name the job, its appearance cannot end the refusal.
REFUSED_UNNAMED_FOR_S = 5.0
MAX_REFUSALS = 16_384  # more than are reviewed in that time
MAX_LOGGED, LOG_AGAIN_S = 64, 60.0  # how often the same fault of this server is logged

_POD = "authentication.kubernetes.io/pod-"
_ACCOUNT = "system:serviceaccount"
_CROWDED = "too many pushes wait to be authenticated; try again after the time in Retry-After"
_NO_TOKEN = "a bearer token is required: that of the training pod"
_NOT_ACCEPTED = "the token is not accepted: it must be valid, and have this path's audience"
_GONE = "the token's pod has gone, or has ended"
_NO_JOB = "the token's pod belongs to no job that is served here"
_NOT_BOUND = "the token must be bound to a pod of this {}, and its service account must be of this namespace"


@dataclass(slots=True, kw_only=True)
class Grant:
    """One token may push to one job."""

    target: Target  # the job
    membership: Membership
    shares: Shares  # which its pushes are charged to
    until: float
    seen_at: float  # when the pod was last read, or the watch showed that it runs
    is_watched: bool = False  # the watch has shown the pod: it is, or was, rank 0's
    job: TrainingJob | None = None  # as it was when the pod was looked for in it
    is_renewed: bool = False  # or is being renewed


class _JobState(NamedTuple):
    """What the server knows of the job that a path names."""

    job_uid: str  # "" for none
    is_synced: bool


class _Refused(NamedTuple):
    """The refusal of one token; it stands until the job's state changes."""

    job_state: _JobState
    kind: type[RequestError]
    message: str
    until: float


class Admission:
    """`find_job` takes resource, namespace and name; `is_synced`: whether a namespace's jobs are listed;
    `is_watched`: whether the watch of a job's pods works now; `exists` is called for a pod of another job of
    the same name."""

    def __init__(
        self,
        tokens: TokenReviewer,
        owners: Owners,
        *,
        find_job: FindJob,
        kinds: Kinds = BUILT_IN,
        is_synced: Callable[[str], bool] = lambda _namespace: True,
        is_watched: Callable[[JobRef], bool] = lambda _ref: True,
        exists: Exists | None = None,
        reviews: ReviewAdmission | None = None,
        budgets: Budgets | None = None,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._tokens = tokens
        self._owners = owners
        self._find_job = find_job
        self._kinds = kinds.kinds
        self._is_synced = is_synced
        self._is_watched = is_watched
        self._exists = exists
        self._reviews = ReviewAdmission(clock=clock) if reviews is None else reviews
        self._clock = clock
        self._timeout_s = timeout_s
        # By path and credential, those used last. Those whose time is over tell known tokens.
        self._grants: LRUCache[tuple[str, bytes], Grant] = LRUCache(MAX_GRANTS)
        self._refusals: TTLCache[tuple[str, bytes], _Refused] = TTLCache(
            MAX_REFUSALS, REFUSED_FOR_S, timer=clock
        )  # by path and credential
        self._budgets = Budgets(clock=clock) if budgets is None else budgets
        self._logged: TTLCache[str, bool] = TTLCache(MAX_LOGGED, LOG_AGAIN_S, timer=clock)  # by reason

    async def admit(self, target: Target, headers: Headers, client: str, size: int = 0) -> Grant:
        """What the token allows. Raises a RequestError.

        `client` is the caller's address, `size` that of the body in bytes.
        """
        credentials = next((value for name, value in headers if name == b"authorization"), b"")
        key = (target.path, _hash(credentials))
        grant = self._grants.get(key)
        job = self._find(target if grant is None else grant.target)
        if grant is not None:
            self._see(job, grant)
        if (
            grant is None
            or self._clock() >= grant.until
            or job is None
            or grant.membership.job_uid != job.ref.uid
        ):
            grant = self._grants[key] = await self._authenticate(key, target, credentials, client)
            self._see(self.find_job(grant), grant)
        await self._budgets.enter(grant.shares, size)
        return grant

    async def renew(self, grant: Grant, target: Target, headers: Headers, client: str) -> None:
        """Review the token again shortly before its grant ends, once a push with it was answered."""
        if grant.is_renewed or not 0 < grant.until - self._clock() < RENEWED_S:
            return
        grant.is_renewed = True
        credentials = next((value for name, value in headers if name == b"authorization"), b"")
        key = (target.path, _hash(credentials))
        with suppress(RequestError):  # the next push is answered so, when the time is over
            self._grants[key] = await self._authenticate(key, target, credentials, client)

    async def hold_refusal(self, grant: Grant) -> None:
        """Wait before a push is refused that was admitted: most of its cost is that the next one is read."""
        await self._budgets.hold_refusal(grant.shares.refusals)

    def find_job(self, grant: Grant) -> TrainingJob:
        """The job as it is now. Raises NotFound when the grant is for another one of that name."""
        job = self._find(grant.target)
        if job is None or grant.membership.job_uid != job.ref.uid:
            raise NotFound(f"there is no such {grant.target.kind_name}")
        return job

    def _find(self, target: Target) -> TrainingJob | None:
        return self._find_job(target.resource, target.namespace, target.name)

    def is_seen(self, job: TrainingJob, grant: Grant) -> bool:
        """Whether the pod was seen within POD_SEEN_FOR_S; else `check_pod` comes before its report counts.

        The watch shows rank 0's pod, but says too little of one that is being deleted or does not run.
        """
        self._see(job, grant)
        return self._clock() < grant.seen_at + POD_SEEN_FOR_S

    async def check_pod(self, grant: Grant) -> None:
        """Reads the pod. Raises Forbidden when it has gone, InternalError when that cannot be known."""
        now, pod, namespace = self._clock(), grant.membership, grant.target.namespace
        # All pods of a large job come to this at one moment, each ten seconds.
        slot = self._reviews.slot("", namespace, is_known=True)
        try:
            async with self._in_time(slot):
                is_there = await self._owners.is_there(namespace, pod.pod_name, pod.pod_uid)
        except (ClusterError, msgspec.MsgspecError):
            raise self._internal("the pod could not be read") from None
        if not is_there:
            self._end(grant)
            raise Forbidden(_GONE)
        grant.seen_at = now

    def _see(self, job: TrainingJob | None, grant: Grant) -> None:
        """Note what the watch shows of the pod; a grant ends when the watch shows that its pod has gone."""
        if job is None or (job is grant.job and self._clock() < grant.seen_at + SAME_FOR_S):
            return
        if not self._is_watched(job.ref):
            return
        grant.job = job
        uid = grant.membership.pod_uid
        for pod in (job.rank0, *job.alternates):
            if pod is not None and pod.pod_uid == uid:
                grant.is_watched = True
                if pod.is_running and not pod.is_terminating:
                    grant.seen_at = self._clock()
                return
        if grant.is_watched:
            grant.is_watched = False
            self._end(grant)

    def _end(self, grant: Grant) -> None:
        """The token is authenticated anew before another push with it is taken."""
        grant.until = min(grant.until, self._clock())

    async def _authenticate(
        self, key: tuple[str, bytes], target: Target, credentials: bytes, client: str
    ) -> Grant:
        """Review the token, unless its refusal is cached."""
        token = _token(credentials)
        job = self._find(target)
        job_state = _JobState(job.ref.uid if job is not None else "", self._is_synced(target.namespace))
        refused = self._refusals.get(key)
        if refused is not None and refused.job_state == job_state and self._clock() < refused.until:
            raise refused.kind(refused.message)
        # The caller chooses the namespace: only one that has the job gets a queue of its own.
        queue = target.namespace if job is not None else ""
        before = self._grants.get(key)
        is_known = before is not None and self._clock() < before.until + KNOWN_FOR_S
        slot = self._reviews.slot(client, queue, is_known=is_known)
        try:
            found, membership = await self._review(target, token, slot)
        except (Forbidden, NotFound) as refusal:
            # Not the exception itself: its traceback holds the token.
            until = self._clock() + (REFUSED_FOR_S if target.kind is not None else REFUSED_UNNAMED_FOR_S)
            self._refusals[key] = _Refused(job_state, type(refusal), refusal.message, until)
            self._grants.pop(key, None)
            raise
        return Grant(
            target=found,
            membership=membership,
            shares=self._budgets.find(found.namespace, membership.job_uid, membership.pod_uid),
            until=self._clock() + min(GRANT_TTL_S, _valid_s(token)),
            seen_at=self._clock(),
        )

    async def _review(
        self, target: Target, token: str, slot: AbstractAsyncContextManager[None]
    ) -> tuple[Target, Membership]:
        try:
            async with self._in_time(slot):
                return await self._find_membership(target, token)
        except TokenReviewFailed as error:
            raise self._internal(str(error)) from None
        except CredentialRejected:
            raise Forbidden(_NOT_ACCEPTED) from None
        except ApiError as error:
            raise self._internal(f"the pod's owners could not be read: HTTP {error.status}") from None
        except (ClusterError, msgspec.MsgspecError):
            raise self._internal("the pod's owners could not be read") from None

    @asynccontextmanager
    async def _in_time(self, slot: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
        """In the slot. Raises TooManyRequests when there is none in time, InternalError when more is late."""
        is_waiting = True
        try:
            async with asyncio.timeout(self._timeout_s), slot:
                is_waiting = False
                yield
        except TimeoutError:
            if is_waiting:
                raise TooManyRequests(_CROWDED) from None
            raise self._internal("kube-apiserver did not respond in time") from None

    async def _find_membership(self, target: Target, token: str) -> tuple[Target, Membership]:
        identity = await self._tokens.identify(token, target.audiences)
        name, uid = _pod_of(identity, target)
        if target.kind is not None and self._find(target) is None:
            raise self._no_such_job(target)

        namesakes = list[JobRef]()

        def is_served(kind: JobKind, membership: Membership) -> bool:
            name, uid = membership.job_name, membership.job_uid
            job = self._find_job(kind.served.plural, target.namespace, name)
            is_named = target.kind is None or name == target.name
            if is_named and job is not None and job.ref.uid != uid:
                namesakes.append(
                    JobRef(resource=job.ref.resource, namespace=job.ref.namespace, name=name, uid=uid)
                )
            is_it = is_named and job is not None and job.ref.uid == membership.job_uid
            return is_it and job is not None and kind.has_replica(job, membership.pod_name)

        kinds = self._kinds if target.kind is None else (target.kind,)
        found = await self._owners.find(kinds, target.namespace, name, uid, is_served=is_served)
        if found is not None:
            kind, membership = found
            return replace(target, kind=kind, name=membership.job_name), membership
        for ref in namesakes:
            if self._exists is not None and await self._exists(ref):
                raise Unavailable("the pod's job has just taken the place of another one; try again later")
        if target.kind is None:
            raise self._no_such_job(target)
        raise Forbidden(_NOT_BOUND.format(target.kind_name))

    def _no_such_job(self, target: Target) -> RequestError:
        if not self._is_synced(target.namespace):
            return Unavailable("the jobs are not listed yet; try again later")
        return NotFound(_NO_JOB if target.kind is None else f"there is no such {target.kind_name}")

    def _internal(self, why: str) -> InternalError:
        """Logged once in LOG_AGAIN_S for each reason: every push meets the same fault."""
        if why not in self._logged:
            self._logged[why] = True
            log.error("push could not be authenticated", reason=why)
        return InternalError("the push could not be authenticated; the server's log says why")


def _hash(credentials: bytes) -> bytes:
    """One for each token, however its header is spelt; another one for what is not a bearer token."""
    fields = credentials.split()
    is_bearer = len(fields) == 2 and fields[0].lower() == b"bearer"
    return hashlib.blake2b(b"bearer " + fields[1] if is_bearer else credentials, digest_size=32).digest()


def _token(credentials: bytes) -> str:
    """Exactly two fields, the scheme in any case, as Kubeflow Trainer reads it."""
    fields = credentials.split()
    if len(fields) != 2 or fields[0].lower() != b"bearer":
        raise Forbidden(_NO_TOKEN)
    if len(fields[1]) > MAX_TOKEN_BYTES or not fields[1].isascii():
        raise Forbidden(_NOT_ACCEPTED)
    return fields[1].decode()


def _valid_s(token: str) -> float:
    """How long a token that was reviewed is valid; infinity for one that does not say."""
    return read_claims(token).exp - time.time()


def _pod_of(identity: Identity, target: Target) -> tuple[str, str]:
    """Name and uid of the pod that the token is bound to."""
    extra = dict(identity.extra)
    names, uids = extra.get(f"{_POD}name", ()), extra.get(f"{_POD}uid", ())
    account = identity.user.rpartition(":")[0]
    if account != f"{_ACCOUNT}:{target.namespace}" or len(names) != 1 or len(uids) != 1:
        raise Forbidden(_NOT_BOUND.format(target.kind_name))
    return names[0], uids[0]
