"""One look at one job: the source that is its turn is asked, and sometimes another after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from visibility_api.faults import describe_fault
from visibility_api.progress.document import Progress, Refused
from visibility_api.progress.job import Rank0, TrainingJob

from .choice import Candidate, Choice, is_for_good, member_of
from .source import Answer, Patience, Source

log = structlog.get_logger("visibility.probe")

MAX_ASKS = 2  # in one look
QUICK_S = 1.0  # whoever has kept us waiting longer had enough of this look

OnAsk = Callable[[str, str, float, float], None]  # source, outcome, duration, lateness in seconds

_UNFORESEEN = Answer(
    outcome=Refused(
        reason="InternalError", message="the look failed in an unforeseen way; see the server's log"
    ),
    patience=Patience.RARELY,
)
_OVERDUE = Answer(
    outcome=Refused(reason="ProbeTimeout", message="the look did not end in time"), patience=Patience.RARELY
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one look brought."""

    source: str
    why: str
    attempt: str
    outcome: Progress | Refused
    patience: Patience | None  # how soon to look again; None = there is a document
    latency_s: float | None  # of the document


async def ask(
    job: TrainingJob,
    choice: Choice,
    *,
    sources: Mapping[str, Source],
    deadline_s: float,
    is_cheap: bool,
    on_ask: OnAsk,
    lateness_s: float,
) -> Found:
    """Ask the candidate that `choice` names; a second one when the first had nothing and this is cheap.

    Seldom asked jobs are asked through one at a time: candidates take turns from look to look.
    """
    clock = asyncio.get_running_loop().time
    asked: list[Candidate] = []
    patience: Patience | None = None
    while True:
        began = clock()
        candidate = choice.next(began)
        if candidate is None or candidate in asked:
            break
        asked.append(candidate)
        member = member_of(job, candidate) or job.rank0
        assert member is not None  # noqa: S101 - or it would not be asked
        answer = await _ask_safely(sources[candidate.source], job, member, deadline_s)
        took_s = clock() - began
        goes_on = choice.take(candidate, answer, clock())
        outcome = answer.outcome
        if isinstance(outcome, Progress):
            on_ask(candidate.source, "Reported", took_s, lateness_s)
            return Found(
                source=candidate.source,
                why=choice.why(candidate),
                attempt=member.attempt,
                outcome=outcome,
                patience=None,
                latency_s=took_s,
            )
        on_ask(candidate.source, outcome.reason, took_s, lateness_s)
        patience = _longer(patience, answer)
        if not (goes_on and is_cheap and took_s < QUICK_S and len(asked) < MAX_ASKS):
            break
    return _nothing(job, choice, patience)


def _nothing(job: TrainingJob, choice: Choice, patience: Patience | None) -> Found:
    said_by, outcome = choice.refused_by, choice.refused
    assert said_by is not None and outcome is not None and job.rank0 is not None  # noqa: S101, PT018 - asked
    member = member_of(job, said_by) or job.rank0
    if choice.is_closed:
        patience = Patience.FORBIDDEN if choice.lacks_right else Patience.RARELY
    return Found(
        source=said_by.source,
        why=choice.why(said_by),
        attempt=member.attempt,
        outcome=outcome,
        patience=patience or Patience.SOON,  # the next candidate has not been asked at all
        latency_s=None,
    )


def _longer(patience: Patience | None, answer: Answer) -> Patience | None:
    """Of the candidates that may yet answer the one that asks for the longest pause counts."""
    if is_for_good(answer):
        return patience
    order = (None, Patience.SOON, Patience.LATER, Patience.FORBIDDEN, Patience.RARELY)
    return max(patience, answer.patience, key=order.index)


async def _ask_safely(source: Source, job: TrainingJob, rank0: Rank0, deadline_s: float) -> Answer:
    """A source should neither raise nor hang; if one does, it is that job's trouble alone."""
    try:
        async with asyncio.timeout(deadline_s):
            return await source.ask(job.ref, rank0)
    except TimeoutError:
        return _OVERDUE
    except Exception as error:
        log.error("look failed", job=str(job.ref), **describe_fault(error))
        return _UNFORESEEN
