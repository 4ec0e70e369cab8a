"""The ASGI application of the push endpoint, in front of the Kubernetes API on the same port.

Who pushes → how often → body → what it says → the tracker. Answers are upstream's: exactly 200 with an echo,
or a Status.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

import structlog
from cachetools import LRUCache

from visibility_api.deadline import within
from visibility_api.faults import describe_fault
from visibility_api.progress.completion import tells_position
from visibility_api.progress.document import Progress
from visibility_api.progress.job import JobRef, TrainingJob
from visibility_api.progress.observation import Observation

from .body import ClientGone, Headers, Receive, check_length, read_body
from .bucket import Bucket
from .gate import Gate
from .ownership import Membership
from .paths import UPSTREAM_PREFIX, find_target
from .payload import read_payload
from .refusal import InternalError, Invalid, NotFound, Refusal, TooManyRequests, encode_refusal
from .relay import RELAYED

log = structlog.get_logger("visibility.ingest")

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SOURCE = "push"
SWITCHED_OFF = "none"  # an annotation's wish: this job is to be left alone
BODY_S = 10.0  # for a whole body to come, as upstream's read timeout
SEND_S = 10.0
MAX_BODIES = 1000  # waited for at a time, of admitted callers
JOB_SHARE = 10  # one job's pods, however many, have so small a part of them: 1/10
MAX_JOBS = 16_384
# Of all pods of a job that are not its rank 0, as long as that is silent. What is more is answered but not
# taken: the Kubeflow SDK pushes from every process, and tries again at once when it is refused.
STAND_INS_PER_S, STAND_IN_BURST = 5.0, 10.0

# What a push came to, for a metric: these words, and the reasons of refusals.
TAKEN = "Taken"
PASSED_OVER = "PassedOver"  # answered 200, but it changes nothing: said nothing, or for no current attempt
GONE = "ClientGone"

_WHY = "rank 0 pushes"
_WHY_STAND_IN = "a process other than rank 0 pushes"
_JSON = (b"content-type", b"application/json")


class Ingest:
    """Hands what is pushed to `record`, which tells whether that counts. If it does and tells how far the job
    has come, the job is handed to `pushed`: nobody needs to ask it. Both must not await.

    `count` is told what each push came to: `TAKEN`, `PASSED_OVER`, `GONE` or the reason of a refusal. `relay`
    gets path, headers and body of those that were taken and not relayed to us; it must not await either.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        record: Callable[[Observation], bool],
        pushed: Callable[[JobRef], None] = lambda _ref: None,
        count: Callable[[str], None] = lambda _outcome: None,
        relay: Callable[[str, Headers, bytes], None] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        max_bodies: int = MAX_BODIES,
    ) -> None:
        self._gate = gate
        self._record = record
        self._pushed = pushed
        self._count = count
        self._relay = relay
        self._now = now
        self._clock = clock
        self._max_bodies = max_bodies
        self._bodies = 0  # being waited for
        self._bodies_of: Counter[str] = Counter()  # by the job's uid
        self._stand_ins: LRUCache[JobRef, Bucket] = LRUCache(MAX_JOBS)

    @staticmethod
    def takes(scope: Scope) -> bool:
        """Whether a request is for this endpoint: a POST to either path, anything to upstream's."""
        if scope["type"] != "http":
            return False
        path: str = scope["path"]
        if scope["method"] != "POST" and not path.startswith(UPSTREAM_PREFIX):
            return False
        return find_target(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that it `takes`."""
        headers = [_JSON]
        try:
            body, outcome = await self._take(scope, receive)
            status = 200
        except ClientGone:
            self._count(GONE)
            return
        except Exception as error:
            refusal = error if isinstance(error, Refusal) else _unforeseen(error)
            status, outcome, body = refusal.code, refusal.reason, encode_refusal(refusal)
            if refusal.retry_after_s:
                headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
        self._count(outcome)
        headers.append((b"content-length", b"%d" % len(body)))
        try:
            await within(SEND_S, _send(send, status, headers, body))
        except TimeoutError:
            log.info("client too slow, connection closed")  # by the server below: the answer is not whole

    async def _take(self, scope: Scope, receive: Receive) -> tuple[bytes, str]:
        """The echo, and what the push came to. Raises Refusal, ClientGone."""
        target = find_target(scope["path"])
        if target is None or scope["method"] != "POST":
            raise NotFound("only POST to a TrainJob's status is served here")
        headers = scope["headers"]
        check_length(headers)
        client = scope.get("client")
        job, membership = await self._gate.admit(target, headers, client[0] if client else "")
        body = await self._read(receive, job.ref.uid)
        payload = read_payload(body)
        is_relayed = any(name == RELAYED for name, _ in headers)
        if payload.report is None or not self._hand_on(
            job, membership, payload.report, is_relayed=is_relayed
        ):
            return payload.echo, PASSED_OVER
        if self._relay is not None and not is_relayed:
            self._relay(target.path, headers, body)
        return payload.echo, TAKEN

    async def _read(self, receive: Receive, job_uid: str) -> bytes:
        if self._bodies >= self._max_bodies or self._bodies_of[job_uid] * JOB_SHARE >= self._max_bodies:
            raise TooManyRequests("too many pushes are under way; try again later")
        self._bodies += 1
        self._bodies_of[job_uid] += 1
        try:
            return await within(BODY_S, read_body(receive))
        except TimeoutError:
            raise Invalid(f"the body did not come within {BODY_S:g} s") from None
        finally:
            self._bodies -= 1
            self._bodies_of[job_uid] -= 1
            if not self._bodies_of[job_uid]:
                del self._bodies_of[job_uid]

    def _hand_on(
        self, job: TrainingJob, membership: Membership, report: Progress, *, is_relayed: bool
    ) -> bool:
        """Whether the report was taken. One of an earlier attempt, or of no current one, is not."""
        voice = _voice(job, membership)
        if voice is None or job.hints.source == SWITCHED_OFF:
            return False
        attempt, is_stand_in = voice
        if is_stand_in and not self._may_stand_in(job.ref):
            return False
        is_taken = self._record(
            Observation(
                ref=job.ref,
                attempt=attempt,
                source=SOURCE,
                at=self._now(),
                outcome=report,
                why=_WHY_STAND_IN if is_stand_in else _WHY,
                is_stand_in=is_stand_in,
                is_relayed=is_relayed,
            )
        )
        if is_taken and not is_stand_in and tells_position(report):
            self._pushed(job.ref)
        return is_taken

    def _may_stand_in(self, ref: JobRef) -> bool:
        now = self._clock()
        bucket = self._stand_ins.get(ref)
        if bucket is None:
            bucket = Bucket(per_s=STAND_INS_PER_S, burst=STAND_IN_BURST, now=now)
            self._stand_ins[ref] = bucket
        return bucket.take(now)


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _voice(job: TrainingJob, membership: Membership) -> tuple[str, bool] | None:
    """The attempt that a pod speaks for, and whether only in place of its rank 0; None for no current one."""
    rank0 = job.rank0
    if rank0 is None:
        return None
    for each in (rank0, *job.alternates):
        if each.pod_uid == membership.pod_uid:
            return each.attempt, False
    if membership.restart_attempt != rank0.restart_attempt:
        return None
    # The same replica in another life: a pod that ends while its successor is there already.
    if membership.place in [_place(each.pod_name) for each in (rank0, *job.alternates)]:
        return None
    return rank0.attempt, True


def _place(pod_name: str) -> str:
    return pod_name.rpartition("-")[0]


def _unforeseen(error: Exception) -> InternalError:
    log.error("push failed", **describe_fault(error))
    return InternalError("the push failed in an unforeseen way; the server's log says where")
