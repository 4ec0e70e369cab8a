"""The steps of a push: admission, reading the body, parsing it, recording the report.

Responses are Kubeflow Trainer's: 200 with an echo, or a Status with its codes and reasons.
`app/chain.py` sends them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from cachetools import LRUCache

from visibility_api.errors.status import (
    InternalError,
    Invalid,
    NotFound,
    RequestError,
    TooManyRequests,
    Unavailable,
)
from visibility_api.flowcontrol.deadline import within
from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.jobs.completion import has_position
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Progress

from .admission import Admission, Grant
from .body import ClientGone, Headers, Receive, check_length, read_body
from .ownership import Membership, replica_name
from .paths import UPSTREAM_PREFIX, Target, find_target
from .payload import read_payload
from .shares import PushTurns, charge

SOURCE = "push"
SWITCHED_OFF = "none"  # of the source annotation: this job's reports are not taken
JOB_SHARE = 10  # the pods of one job, however many, may hold 1/10 of PushLimits.bodies
NAMESPACE_SHARE = 4  # those of one namespace 1/4
MAX_JOBS = 16_384
# Reports of all pods of a job that are not rank 0, which are taken while rank 0 does not report. Further ones
# get 200 but are not recorded: the Kubeflow SDK pushes from every process, and retries a refusal at once.
OTHER_RANK_REPORTS_PER_S, OTHER_RANK_BURST = 5.0, 10.0

# The outcomes of a push, for a metric; beside them, the reasons of refusals.
TAKEN = "Taken"
PASSED_OVER = "PassedOver"  # answered 200 without effect: it was empty, or not of the current attempt
GONE = "ClientGone"

_WHY = "Rank 0 pushes."
_WHY_OTHER_RANK = "A process other than rank 0 pushes."


@dataclass(frozen=True, slots=True, kw_only=True)
class PushLimits:
    """Limits on pushes after admission."""

    bodies: int = 1000  # that are being read, or wait to be parsed, at one time
    body_timeout_s: float = 10.0  # for reading one body, as Kubeflow Trainer's read timeout


class Admitted(NamedTuple):
    """A push whose body may be read: the token's pod belongs to the job that the path names."""

    target: Target
    job: TrainingJob
    grant: Grant


class PushEndpoint:
    """Passes each report that `counts` to `record`, which returns whether it was taken, while `may_write`
    allows it. When a taken report has the job's position, `pushed` is called with the job: it needs no probe
    for now. None of them may await.

    `count` is called with each outcome: `TAKEN`, `PASSED_OVER`, `GONE` or the reason of a refusal.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        record: Callable[[Observation], bool],
        counts: Callable[[Observation], bool] = lambda _observation: True,
        may_write: Callable[[], bool] = lambda: True,
        pushed: Callable[[JobRef], None] = lambda _ref: None,
        count: Callable[[str], None] = lambda _outcome: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        limits: PushLimits = PushLimits(),
    ) -> None:
        self._admission = admission
        self._record = record
        self._counts = counts
        self._may_write = may_write
        self._pushed = pushed
        self._count = count
        self._now = now
        self._clock = clock
        self._limits = limits
        self._bodies = 0  # being read
        self._bodies_of: Counter[str] = Counter()  # by job's uid, and by namespace
        self._turns = PushTurns()
        self._other_ranks: LRUCache[JobRef, Bucket] = LRUCache(MAX_JOBS)

    @staticmethod
    def takes(method: str, path: str) -> bool:
        """Whether a request is a push: a POST to either path, or any method on Kubeflow Trainer's."""
        if method != "POST" and not path.startswith(UPSTREAM_PREFIX):
            return False
        return find_target(path) is not None

    async def admit(self, method: str, path: str, headers: Headers, client: str) -> Admitted:
        """Authenticates a push; `client` is the caller's address. Raises RequestError."""
        try:
            target = find_target(path)
            if target is None or method != "POST":
                raise NotFound("only POST to the status of a TrainJob is served here")
            size = check_length(headers)
            return Admitted(target, *await self._admission.admit(target, headers, client, size))
        except Exception as error:
            self._count(error.reason if isinstance(error, RequestError) else InternalError.reason)
            raise

    async def take(self, admitted: Admitted, receive: Receive) -> bytes:
        """Reads and records an admitted push; returns the echo. Raises RequestError, ClientGone."""
        try:
            echo, outcome = await self._take(admitted, receive)
        except Exception as error:
            reason = error.reason if isinstance(error, RequestError) else InternalError.reason
            self._count(GONE if isinstance(error, ClientGone) else reason)
            raise
        self._count(outcome)
        return echo

    async def _take(self, admitted: Admitted, receive: Receive) -> tuple[bytes, str]:
        target, job, grant = admitted
        body = await self._read(receive, job.ref)
        began = time.perf_counter()
        try:
            payload = read_payload(body)
            observation = self._observe(job, grant.membership, payload.report)
            if observation is not None and observation.is_other_rank:
                if not self._counts(observation) or not self._may_report_beside_rank0(job.ref):
                    return payload.echo, PASSED_OVER
                self._charge(grant, began)
                try:
                    await self._admission.check_pod(target, grant)  # rank 0's is watched
                finally:
                    began = time.perf_counter()
            if not self._may_write():
                raise Unavailable("another replica owns the jobs by now; try again")
            if observation is None or not self._record(observation):
                return payload.echo, PASSED_OVER
            if not observation.is_other_rank and payload.report is not None and has_position(payload.report):
                self._pushed(job.ref)
            return payload.echo, TAKEN
        finally:
            self._charge(grant, began)

    def _charge(self, grant: Grant, began: float) -> None:
        ms = 1000 * (time.perf_counter() - began)
        charge(grant.budgets, ms)
        self._turns.spend(ms)

    async def _read(self, receive: Receive, ref: JobRef) -> bytes:
        """The body, when it is its turn to be parsed."""
        most, held = self._limits.bodies, self._bodies_of
        job, namespace = ref.uid, ref.namespace
        if self._bodies >= most or held[job] * JOB_SHARE >= most or held[namespace] * NAMESPACE_SHARE >= most:
            raise TooManyRequests("too many pushes are under way; try again later")
        self._bodies += 1
        held[job] += 1
        held[namespace] += 1
        try:
            body = await within(self._limits.body_timeout_s, read_body(receive))
            await self._turns.wait(namespace)
            return body
        except TimeoutError:
            raise Invalid(f"the body was not complete within {self._limits.body_timeout_s:g} s") from None
        finally:
            self._bodies -= 1
            for key in (job, namespace):
                held[key] -= 1
                if not held[key]:
                    del held[key]

    def _observe(
        self, job: TrainingJob, membership: Membership, report: Progress | None
    ) -> Observation | None:
        """What is to be recorded; only reports of the current attempt are."""
        reporter = _reporter(job, membership)
        if report is None or reporter is None or job.hints.source == SWITCHED_OFF:
            return None
        attempt, is_other_rank = reporter
        return Observation(
            ref=job.ref,
            attempt=attempt,
            source=SOURCE,
            at=self._now(),
            outcome=report,
            why=_WHY_OTHER_RANK if is_other_rank else _WHY,
            is_other_rank=is_other_rank,
        )

    def _may_report_beside_rank0(self, ref: JobRef) -> bool:
        now = self._clock()
        bucket = self._other_ranks.get(ref)
        if bucket is None:
            bucket = Bucket(per_s=OTHER_RANK_REPORTS_PER_S, burst=OTHER_RANK_BURST, now=now)
            self._other_ranks[ref] = bucket
        return bucket.take(now)


class _Reporter(NamedTuple):
    """What a pod reports for."""

    attempt: str  # Rank0.attempt
    is_other_rank: bool


def _reporter(job: TrainingJob, membership: Membership) -> _Reporter | None:
    """None for an earlier attempt."""
    rank0 = job.rank0
    if rank0 is None:
        return None
    for each in (rank0, *job.alternates):
        if each.pod_uid == membership.pod_uid:
            return _Reporter(each.attempt, is_other_rank=False)
    if membership.restart_attempt != rank0.restart_attempt:
        return None
    # An earlier pod of the same replica, which is terminating while its successor exists already.
    if membership.replica_name in [replica_name(each.pod_name) for each in (rank0, *job.alternates)]:
        return None
    return _Reporter(rank0.attempt, is_other_rank=True)
