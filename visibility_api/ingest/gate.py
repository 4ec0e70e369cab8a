"""Who pushes, and for which job: a bearer token bound to a pod of that very job, and nothing else (1.1).

No header of a front proxy and no client certificate counts here. What was found out about a token is kept
for a while under a keyed hash of it, so that a push that comes again costs a look into a dictionary.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from visibility_api.auth.errors import CredentialRejected, TokenReviewFailed
from visibility_api.auth.identity import Identity
from visibility_api.auth.token_review import TokenReviewer
from visibility_api.cluster.errors import ApiError, ClusterError
from visibility_api.progress.job import TrainingJob

from .bucket import Bucket
from .lanes import Lanes
from .ownership import Membership, Owners
from .paths import Target
from .refusal import Forbidden, InternalError, NotFound, Refusal, TooManyRequests, Unavailable

log = structlog.get_logger("visibility.ingest")

K = TypeVar("K")
V = TypeVar("V")
Headers = Sequence[tuple[bytes, bytes]]
FindJob = Callable[[str, str], TrainingJob | None]  # by namespace and name

# A reviewed token is believed for so long. Ten seconds, as elsewhere, would ask kube-apiserver at every other
# push; and a pod that has gone meanwhile speaks for no current attempt, so nothing it says shows.
BELIEVED_S = 120.0
ADMISSION_S = 4.0  # clients wait 5 s
MAX_GRANTS = 32_768
MAX_TOKEN_BYTES = 16 * 1024
# A token that does not hold is seldom one that holds a moment later, and whoever has it pushes on.
REFUSED_FOR_S = 30.0
MAX_REFUSALS = 16_384  # more than the lanes let through in that time
MAX_TOLD, TOLD_AGAIN_S = 64, 60.0  # the same trouble of ours, in the log
# Reviews that one address may set off: a third of what the lanes let through, and enough for the renewals of
# ten thousand pods behind one gateway; the burst is for their start.
REVIEWS_PER_S, REVIEW_BURST = 100.0, 2000.0
MAX_CLIENTS = 16_384
# Of one pod. The Kubeflow SDK sends one in 5 s from every process, of which a node with many accelerators has
# 32 or 64; when it is refused it tries again at each step, and the step waits for the answer.
PUSHES_PER_S, BURST = 20.0, 64.0

_POD = "authentication.kubernetes.io/pod-"
_ACCOUNT = "system:serviceaccount"
_NO_TOKEN = "a bearer token is required: the one of the pod that trains"
_NOT_ACCEPTED = "the token is not accepted: it must be valid, and meant for this path's audience"
_NOT_BOUND = "the token must be bound to a pod of this TrainJob, and its service account be of this namespace"


@dataclass(slots=True, kw_only=True)
class Grant:
    """One token may push to one job."""

    membership: Membership
    bucket: Bucket  # one a pod, shared by all of its tokens
    until: float


class _Known(NamedTuple):
    """What was known of the job that a path names."""

    job_uid: str  # "" for none
    is_synced: bool


class _Refused(NamedTuple):
    """The answer to one token, for as long as no more is known of the job."""

    known: _Known
    kind: type[Refusal]
    message: str


class Gate:
    """`find_job` tells the job of a namespace and name, `is_synced` whether that is known yet."""

    def __init__(
        self,
        tokens: TokenReviewer,
        owners: Owners,
        *,
        find_job: FindJob,
        is_synced: Callable[[str], bool] = lambda _namespace: True,
        lanes: Lanes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._owners = owners
        self._find_job = find_job
        self._is_synced = is_synced
        self._lanes = Lanes() if lanes is None else lanes
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._grants: dict[tuple[str, bytes], Grant] = {}  # by path and token, the oldest first
        self._refusals: TTLCache[tuple[str, bytes], _Refused] = TTLCache(
            MAX_REFUSALS, REFUSED_FOR_S, timer=clock
        )  # by path and token
        self._buckets: dict[str, Bucket] = {}  # by pod uid, the oldest first
        self._clients: LRUCache[str, Bucket] = LRUCache(MAX_CLIENTS)  # by address
        self._told: TTLCache[str, bool] = TTLCache(MAX_TOLD, TOLD_AGAIN_S, timer=clock)  # by reason

    async def admit(self, target: Target, headers: Headers, client: str) -> tuple[TrainingJob, Membership]:
        """The job, and the pod that speaks. Raises a Refusal. `client` is the caller's address."""
        credentials = next((value for name, value in headers if name == b"authorization"), b"")
        key = (target.path, hashlib.blake2b(credentials, key=self._key, digest_size=16).digest())
        job = self._find_job(target.namespace, target.name)
        grant = self._grants.get(key)
        now = self._clock()
        if grant is None or now >= grant.until or job is None or grant.membership.job_uid != job.ref.uid:
            grant = self._grants[key] = await self._ask(key, target, credentials, client)
            _bound(self._grants, MAX_GRANTS)
            job = self._find_job(target.namespace, target.name)
            if job is None or grant.membership.job_uid != job.ref.uid:
                raise NotFound("there is no such TrainJob")
            now = self._clock()
        if not grant.bucket.take(now):
            raise TooManyRequests(f"a pod may push {PUSHES_PER_S:g} times a second")
        return job, grant.membership

    async def _ask(self, key: tuple[str, bytes], target: Target, credentials: bytes, client: str) -> Grant:
        """By review, unless the answer is no and known."""
        token = _token(credentials)
        job = self._find_job(target.namespace, target.name)
        known = _Known(job.ref.uid if job is not None else "", self._is_synced(target.namespace))
        refused = self._refusals.get(key)
        if refused is not None and refused.known == known:
            raise refused.kind(refused.message)
        bucket = self._clients.get(client)
        if bucket is None:
            bucket = Bucket(per_s=REVIEWS_PER_S, burst=REVIEW_BURST, now=self._clock())
            self._clients[client] = bucket
        if not bucket.take(self._clock()):
            raise TooManyRequests("too many unknown tokens come from this address; try again later")
        # The namespace is whatever a caller writes: only those with jobs have a lane of their own.
        lane = (client, target.namespace if job is not None else "")
        try:
            return await self._review(target, token, lane)
        except (Forbidden, NotFound) as refusal:
            # Not itself: its traceback holds the token.
            self._refusals[key] = _Refused(known, type(refusal), refusal.message)
            raise

    async def _review(self, target: Target, token: str, lane: Hashable) -> Grant:
        is_waiting = True
        try:
            async with asyncio.timeout(ADMISSION_S), self._lanes.turn(lane):
                is_waiting = False
                membership = await self._find_out(target, token)
        except TimeoutError:
            if is_waiting:
                raise TooManyRequests("too many pushes wait to be authenticated; try again later") from None
            raise self._internal("no answer of kube-apiserver in time") from None
        except TokenReviewFailed as error:
            raise self._internal(str(error)) from None
        except CredentialRejected:
            raise Forbidden(_NOT_ACCEPTED) from None
        except ApiError as error:
            raise self._internal(f"the pod's owners could not be read: HTTP {error.status}") from None
        except (ClusterError, msgspec.MsgspecError):
            raise self._internal("the pod's owners could not be read") from None
        now = self._clock()
        bucket = self._buckets.get(membership.pod_uid)
        if bucket is None:
            bucket = self._buckets[membership.pod_uid] = Bucket(per_s=PUSHES_PER_S, burst=BURST, now=now)
            _bound(self._buckets, MAX_GRANTS)
        return Grant(membership=membership, bucket=bucket, until=now + BELIEVED_S)

    async def _find_out(self, target: Target, token: str) -> Membership:
        identity = await self._tokens.identify(token, target.audiences)
        name, uid = _pod_of(identity, target.namespace)
        job = self._find_job(target.namespace, target.name)
        if job is None:
            if not self._is_synced(target.namespace):
                raise Unavailable("the jobs are not known yet")
            raise NotFound("there is no such TrainJob")
        membership = await self._owners.find(target.namespace, name, uid)
        if membership is None or membership.job_uid != job.ref.uid:
            raise Forbidden(_NOT_BOUND)
        return membership

    def _internal(self, why: str) -> InternalError:
        """Told once in a while: every push of every job meets it."""
        if why not in self._told:
            self._told[why] = True
            log.error("push could not be authenticated", reason=why)
        return InternalError("the push could not be authenticated; the server's log says why")


def _token(credentials: bytes) -> str:
    """Scheme in any case, blanks as they come, exactly two fields, as upstream takes it."""
    fields = credentials.split()
    if len(fields) != 2 or fields[0].lower() != b"bearer":
        raise Forbidden(_NO_TOKEN)
    if len(fields[1]) > MAX_TOKEN_BYTES or not fields[1].isascii():
        raise Forbidden(_NOT_ACCEPTED)
    return fields[1].decode()


def _pod_of(identity: Identity, namespace: str) -> tuple[str, str]:
    """Name and uid of the pod that the token is bound to."""
    extra = dict(identity.extra)
    names, uids = extra.get(f"{_POD}name", ()), extra.get(f"{_POD}uid", ())
    account = identity.user.rpartition(":")[0]
    if account != f"{_ACCOUNT}:{namespace}" or len(names) != 1 or len(uids) != 1:
        raise Forbidden(_NOT_BOUND)
    return names[0], uids[0]


def _bound(held: dict[K, V], most: int) -> None:
    """Let the oldest go: whoever it belonged to is looked at anew."""
    while len(held) > most:
        del held[next(iter(held))]
