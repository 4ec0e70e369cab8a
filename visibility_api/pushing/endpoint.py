"""The steps of a push: admission, reading the body, parsing it, recording the report.

Responses are Kubeflow Trainer's: 200 with an echo, or a Status with its codes and reasons.
`app/chain.py` sends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from visibility_api.errors.status import InternalError, RequestError, TooManyRequests, Unavailable
from visibility_api.flowcontrol.report_shares import MOST_MS, LoopTurns, expected_ms
from visibility_api.jobs.completion import has_position
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Progress

from .admission import Admission, Grant
from .body import Bodies, ClientGone, Headers, Receive, check_length
from .ownership import Membership
from .paths import Target
from .payload import read_payload

SOURCE = "push"
SWITCHED_OFF = "none"  # of the source annotation: this job's reports are not taken
# The outcomes of a push, for a metric; beside them, the reasons of refusals.
TAKEN = "Taken"
PASSED_OVER = "PassedOver"  # answered 200 without effect: it was empty, or not of the current attempt
GONE = "ClientGone"

_WHY = "Rank 0 pushes."
_WHY_OTHER_RANK = "A process other than rank 0 pushes."


class PushEndpoint:
    """Passes each report that `counts` to `record`, which returns whether it was taken, while `may_write`
    and `owns` allow it. When a taken report has the job's position, `pushed` is called: the job is not
    probed for now. `note_replica` is called with each report of another rank and its pod. None may await.

    `count` is called with each outcome: `TAKEN`, `PASSED_OVER`, `GONE` or the reason of a refusal.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        record: Callable[[Observation], bool],
        counts: Callable[[Observation], bool] = lambda _observation: True,
        may_write: Callable[[], bool] = lambda: True,
        owns: Callable[[JobRef], bool] = lambda _ref: True,
        pushed: Callable[[JobRef], None] = lambda _ref: None,
        note_replica: Callable[[JobRef, str, Progress], None] = lambda _ref, _pod, _report: None,
        count: Callable[[str], None] = lambda _outcome: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        bodies: Bodies | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        self._admission = admission
        self._record = record
        self._counts = counts
        self._may_write = may_write
        self._owns = owns
        self._pushed = pushed
        self._note_replica = note_replica
        self._count = count
        self._now = now
        self._clock = clock
        self._bodies = Bodies() if bodies is None else bodies
        self._turns = LoopTurns() if turns is None else turns

    async def admit(self, target: Target, headers: Headers, client: str) -> Grant:
        """Authenticates a push; `client` is the caller's address. Raises RequestError."""
        try:
            size = check_length(headers)
            return await self._admission.admit(target, headers, client, size)
        except Exception as error:
            self._count(error.reason if isinstance(error, RequestError) else InternalError.reason)
            raise

    async def take(self, grant: Grant, receive: Receive) -> bytes:
        """Reads and records an admitted push; returns the echo. Raises RequestError, ClientGone."""
        try:
            echo, outcome = await self._take(grant, receive)
        except Exception as error:
            reason = error.reason if isinstance(error, RequestError) else InternalError.reason
            self._count(GONE if isinstance(error, ClientGone) else reason)
            if isinstance(error, TooManyRequests):  # there was no place for the body
                await self._admission.hold_refusal(grant)
            raise
        self._count(outcome)
        return echo

    async def renew(self, grant: Grant, target: Target, headers: Headers, client: str) -> None:
        """To be called when a push was answered: its token may have to be reviewed again before the next."""
        await self._admission.renew(grant, target, headers, client)

    async def _take(self, grant: Grant, receive: Receive) -> tuple[bytes, str]:
        target = grant.target
        with self._bodies.place(target.namespace, f"{target.resource}/{target.name}"):
            body = await self._bodies.read(receive)
            await self._turns.wait(target.namespace, len(body))
        began, most_ms = time.perf_counter(), expected_ms(len(body), MOST_MS)
        try:
            payload = read_payload(body)
            job = self._admission.find_job(grant)
            observation = self._observe(job, grant, payload.report)
            needs_pod = observation is not None or _is_of_earlier_pod(job, grant.membership)
            if needs_pod and not self._admission.is_seen(job, grant):
                self._charge(grant, began, most_ms)
                try:
                    await self._admission.check_pod(grant)
                finally:
                    began = time.perf_counter()
                job = self._admission.find_job(grant)  # it may have changed meanwhile
                observation = self._observe(job, grant, payload.report, is_counted=True)
            if not self._may_write() or not self._owns(job.ref):
                raise Unavailable("another replica owns the jobs by now; try again")
            if observation is None or not self._record(observation):
                return payload.echo, PASSED_OVER
            if not observation.is_other_rank and payload.report is not None and has_position(payload.report):
                self._pushed(job.ref)
            return payload.echo, TAKEN
        finally:
            self._charge(grant, began, most_ms)

    def _charge(self, grant: Grant, began: float, most_ms: float) -> None:
        """Elapsed time: to ask for CPU time takes ten times as long. What is beyond `most_ms` is the node's
        fault, which was busy, not the pod's."""
        ms = min(1000 * (time.perf_counter() - began), most_ms)
        grant.shares.charge(ms)
        self._turns.spend(grant.target.namespace, ms)

    def _observe(
        self, job: TrainingJob, grant: Grant, report: Progress | None, *, is_counted: bool = False
    ) -> Observation | None:
        """What is to be recorded: reports of the current attempt, of rank 0 or while rank 0 does not report.

        `is_counted`: it is charged to the budget of other ranks already.
        """
        reporter = _reporter(job, grant.membership)
        if report is None or reporter is None or job.hints.source == SWITCHED_OFF:
            return None
        attempt, is_other_rank = reporter
        observation = Observation(
            ref=job.ref,
            attempt=attempt,
            source=SOURCE,
            at=self._now(),
            outcome=report,
            why=_WHY_OTHER_RANK if is_other_rank else _WHY,
            is_other_rank=is_other_rank,
        )
        if not is_other_rank or is_counted:
            return observation
        self._note_replica(job.ref, grant.membership.pod_name, report)
        is_counted = self._counts(observation) and grant.shares.other_ranks.take(self._clock())
        return observation if is_counted else None


def _is_of_earlier_pod(job: TrainingJob, membership: Membership) -> bool:
    """Its report has no effect; that its pod has ended is noticed all the same. There are few of them."""
    return job.rank0 is not None and _reporter(job, membership) is None


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
    if any(membership.is_same_replica(each.pod_name) for each in (rank0, *job.alternates)):
        return None
    return _Reporter(rank0.attempt, is_other_rank=True)
