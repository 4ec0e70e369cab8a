"""One probe of one job: the source whose turn it is, and sometimes a second one after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef, Rank0, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

from .choice import Candidate, Choice, is_permanent, member_of

log = structlog.get_logger("visibility.probe")

MAX_SOURCES = 2  # in one probe
QUICK_S = 1.0  # a source that took longer is not followed by a second one

OnProbe = Callable[[str, str, float, float], None]  # source, outcome, duration, lateness in seconds

_UNFORESEEN = Refused(
    reason="InternalError",
    message="The probe failed unexpectedly; this server's log says where.",
    retry=RetryClass.RARELY,
)
OVERDUE = Refused(reason="ProbeTimeout", message="The probe did not end in time.", retry=RetryClass.RARELY)
# From the shortest pause to the longest.
PAUSES = (RetryClass.SOON, RetryClass.LATER, RetryClass.FORBIDDEN, RetryClass.RARELY)


class Source(Protocol):
    """One way to read the report of a rank-0 container. Never raises: a failure is a `Refused`."""

    name: str

    async def probe(self, ref: JobRef, rank0: Rank0) -> Outcome: ...


async def probe(
    job: TrainingJob,
    choice: Choice,
    *,
    sources: Mapping[str, Source],
    now: Callable[[], datetime],
    deadline_s: float,
    is_cheap: bool,
    on_probe: OnProbe,
    lateness_s: float,
) -> Observation:
    """Probe through the candidate that `choice` names; a second one when the first had nothing and is cheap.

    Jobs that are probed rarely are probed through one at a time: candidates take turns from probe to probe.
    A refusal's `retry` is that of the whole job: of every candidate that may yet answer.
    """
    clock = asyncio.get_running_loop().time
    tried: list[Candidate] = []
    met: tuple[Candidate, Refused] | None = None
    retry: RetryClass | None = None
    while True:
        began = clock()
        candidate = choice.next(began)
        if candidate is None or candidate in tried:
            break
        tried.append(candidate)
        member = member_of(job, candidate) or job.rank0
        assert member is not None  # noqa: S101 - or it would not be probed
        outcome = await _probe_safely(sources[candidate.source], job, member, deadline_s)
        took_s = clock() - began
        goes_on = choice.take(candidate, outcome, clock())
        if isinstance(outcome, Progress):
            on_probe(candidate.source, "Reported", took_s, lateness_s)
            return Observation(
                ref=job.ref,
                attempt=member.attempt,
                source=candidate.source,
                at=now(),
                outcome=outcome,
                latency_s=took_s,
                why=choice.why(candidate),
            )
        met = candidate, outcome
        on_probe(candidate.source, outcome.reason, took_s, lateness_s)
        if not is_permanent(outcome):
            retry = outcome.retry if retry is None else max(retry, outcome.retry, key=PAUSES.index)
        if not (goes_on and is_cheap and took_s < QUICK_S and len(tried) < MAX_SOURCES):
            break
    assert met is not None  # noqa: S101 - or it would not be probed
    return _without_report(job, choice, met, retry, now())


def _without_report(
    job: TrainingJob, choice: Choice, met: tuple[Candidate, Refused], retry: RetryClass | None, at: datetime
) -> Observation:
    """`met`: last. Nothing is shown of a log that has answered another process and was rotated since."""
    candidate, outcome = met
    if choice.refused_by is not None and choice.refused is not None:
        candidate, outcome = choice.refused_by, choice.refused
    assert job.rank0 is not None  # noqa: S101 - or it would not be probed
    if choice.is_closed:
        retry = RetryClass.FORBIDDEN if choice.lacks_right else RetryClass.RARELY
    elif retry is None:
        retry = RetryClass.SOON  # the next candidate has not been tried at all
    member = member_of(job, candidate) or job.rank0
    return Observation(
        ref=job.ref,
        attempt=member.attempt,
        source=candidate.source,
        at=at,
        outcome=outcome if outcome.retry is retry else replace(outcome, retry=retry),
        why=choice.why(candidate),
    )


async def _probe_safely(source: Source, job: TrainingJob, rank0: Rank0, deadline_s: float) -> Outcome:
    """A source should neither raise nor hang; if one does, it is that job's trouble alone."""
    try:
        async with asyncio.timeout(deadline_s):
            return await source.probe(job.ref, rank0)
    except TimeoutError:
        return OVERDUE
    except Exception as error:
        log.error("probe failed", job=str(job.ref), **describe_fault(error))
        return _UNFORESEEN
