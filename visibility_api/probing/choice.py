"""Which source a job is probed through now, and why, as its observation shows it. Pure.

    what is declared, in its order  ─►  when all of that failed for good: the default file, then the log

The source that brought the last report stays. One that failed for good (no `cat` in the image, no right to
exec) is set aside; one that fails three times in a row makes way for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from visibility_api.jobs.job import Rank0, TrainingJob
from visibility_api.jobs.merge import NO_PROGRESS_IN_LOG
from visibility_api.models.sources import PASSIVE
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

SOURCE_ANNOTATION = "annotation visibility.trainer.kubeflow.org/source"
MAX_FAILURES = 3  # in a row, of a source that has brought a report before
REOPEN_S = 3600.0  # sources that failed for good are tried again, in case it was not for good
RIGHT_REOPEN_S = 300.0  # …and sooner where a right was missing: it may be granted at any time
MAX_ALTERNATES = 3  # an MPI job has one: its launcher or, with runLauncherAsNode, the first node

# Retried rarely because a probe costs the pod something; they may pass, so no reason to give up the source.
_PASSING = frozenset({"ProbeTimeout", "TooLarge", "ExecFailed", "InternalError", "NoProgressFile"})
_UNDECLARED = (("exec", "the default file"), ("logs", "the log"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to probe a job."""

    source: str
    why: str
    member: int = 0  # which pod: 0 = rank 0, from 1 on its alternates (MPI)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The candidates for a job."""

    first: tuple[Candidate, ...] = ()  # in order; declared, or all there is when nothing is declared
    then: tuple[Candidate, ...] = ()  # when each of `first` has failed for good
    is_declared: bool = False  # reports may be expected
    refusal: Refused | None = None  # why the job is not probed, where that is a mistake of its author


_NOTHING = Options()


def options_for(job: TrainingJob, enabled: frozenset[str]) -> Options:
    """The candidates for this job on a server with these sources enabled.

    Jobs that declare the same share one value: it can be compared by identity.
    """
    rank0 = job.rank0
    if rank0 is None:
        return _NOTHING
    return _options(
        job.hints.source,
        rank0.declared,
        has_port=rank0.http_port is not None and not rank0.host_network,
        members=1 + sum(1 for a in job.alternates[:MAX_ALTERNATES] if a.is_running),
        enabled=enabled,
    )


def member_of(job: TrainingJob, candidate: Candidate) -> Rank0 | None:
    """The pod that the candidate means; None when that pod is gone."""
    if candidate.member == 0:
        return job.rank0
    running = [a for a in job.alternates[:MAX_ALTERNATES] if a.is_running]
    return running[candidate.member - 1] if candidate.member <= len(running) else None


@lru_cache(maxsize=1024)  # few combinations, thousands of jobs
def _options(
    hint: str | None,
    declared: tuple[tuple[str, str], ...],
    *,
    has_port: bool,
    members: int,
    enabled: frozenset[str],
) -> Options:
    if hint is not None:
        return _annotated(hint, members, enabled)
    named: dict[str, str] = {}
    left_out = ""
    for source, why in declared:
        if source not in enabled:
            left_out = f"The {why} names {source}, which this server has not enabled"
        elif source == "http" and not has_port:
            left_out = f"The {why} names http, which is not probed in a node's own network"
        else:
            named.setdefault(source, f"Declared by {why}.")
    undeclared = [(source, what) for source, what in _UNDECLARED if source in enabled and source not in named]
    because = left_out or ("No declared source can be read" if named else "The job declares no source")
    # Each candidate names the whole order, so that the text stays the same from probe to probe.
    order = ", then ".join(what for _, what in undeclared)
    first = _each(named.items(), members)
    rest = _each(((source, f"{because}: trying {order}.") for source, _ in undeclared), members)
    return Options(first=first or rest, then=rest if first else (), is_declared=bool(first))


def _annotated(hint: str, members: int, enabled: frozenset[str]) -> Options:
    if hint == "none":
        return _NOTHING
    if hint not in enabled:
        known = ", ".join(sorted(enabled)) or "none"
        message = (
            f"The {SOURCE_ANNOTATION} names {hint}, which this server has not enabled. Use one of: {known}."
        )
        return Options(refusal=Refused(reason="SourceNotEnabled", message=message))
    if hint in PASSIVE:
        return _NOTHING
    return Options(first=_each([(hint, f"Declared by {SOURCE_ANNOTATION}.")], members), is_declared=True)


def _each(named: Iterable[tuple[str, str]], members: int) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(source=source, why=why, member=member) for source, why in named for member in range(members)
    )


def is_permanent(refused: Refused) -> bool:
    """Whether probing this way again is of no use, as far as is known."""
    return refused.retry in (RetryClass.RARELY, RetryClass.FORBIDDEN) and refused.reason not in _PASSING


@dataclass(slots=True, kw_only=True)
class Choice:
    """What probing one attempt brought so far, and so which candidate is next. Times are loop seconds."""

    options: Options
    answered: Candidate | None = None  # the last that brought a report; it stays
    has_answered: bool = False  # any of them, ever
    refused: Refused | None = None  # what is shown while none has a report: of the likeliest candidate
    refused_by: Candidate | None = None
    lacks_right: bool = False  # one of those set aside failed because a right is missing
    _turn: int = 0
    _failures: int = 0  # in a row, of the candidate that answered
    _closed: tuple[tuple[Candidate, str], ...] = ()  # failed for good, with the reason
    _closed_at: float = 0.0

    def recall(self, source: str) -> bool:
        """This source has brought a report of rank 0, to another process: it stays, if it is one of ours.
        Returns whether it is."""
        found = next((each for each in self._known() if each.source == source), None)
        if found is not None:
            self.answered, self.has_answered, self._failures = found, True, 0
            self.refused = self.refused_by = None
        return found is not None

    def next(self, now: float) -> Candidate | None:
        """The one to probe through; None when there is none."""
        if self._closed and now - self._closed_at > (RIGHT_REOPEN_S if self.lacks_right else REOPEN_S):
            if self.lacks_right:
                self.answered, self._turn = None, 0  # the likeliest has its turn again
            self._closed, self.lacks_right = (), False
        if self.answered is not None:
            return self.answered
        open_ = self._open()
        return open_[self._turn % len(open_)] if open_ else None

    def why(self, candidate: Candidate) -> str:
        """Why this one, and why not others."""
        others = dict.fromkeys(f"{c.source} failed with {why}" for c, why in self._closed if c != candidate)
        return f"{candidate.why} Not used: {', '.join(others)}." if others else candidate.why

    def take(self, candidate: Candidate, outcome: Outcome, now: float) -> bool:
        """Note what the candidate brought. Returns whether another one may follow in the same probe."""
        if candidate not in self._known():  # any more: the options changed while it was probed
            if isinstance(outcome, Refused):
                self._keep(candidate, outcome)
            return False
        is_final = isinstance(outcome, Refused) and is_permanent(outcome)
        if not is_final:
            self._closed = tuple(c for c in self._closed if c[0] != candidate)
        if isinstance(outcome, Progress) or self._is_rotated_log(candidate, outcome):
            self.answered, self.has_answered, self._failures = candidate, True, 0
            self.refused = self.refused_by = None
            return False
        if is_final:
            self._close(candidate, outcome, now)
            self.lacks_right = self.lacks_right or outcome.retry is RetryClass.FORBIDDEN
        elif self.answered == candidate or outcome.retry is RetryClass.SOON:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._move_on(candidate)
        else:
            self._move_on(candidate)
        self._keep(candidate, outcome)
        return self.answered is None and (is_final or outcome.retry is RetryClass.LATER)

    def _is_rotated_log(self, candidate: Candidate, outcome: Refused) -> bool:
        """Whether the log has answered another process, and its end shows no more what it showed then: for
        one that has followed the log that is nothing new."""
        return candidate == self.answered and outcome.reason == NO_PROGRESS_IN_LOG

    def change(self, options: Options) -> bool:
        """Other options from now on. Returns whether the job is worth a probe at once."""
        if options is self.options or options == self.options:
            return False
        self.options = options
        known = self._known()
        self._closed = tuple(c for c in self._closed if c[0] in known)
        if self.answered in known:
            return False
        self.answered, self._failures, self._turn = None, 0, 0
        if self.refused_by not in known:
            self.refused = self.refused_by = None
        return True

    def _known(self) -> tuple[Candidate, ...]:
        return self.options.first + self.options.then

    def _open(self) -> tuple[Candidate, ...]:
        closed = {c for c, _ in self._closed}
        if not closed:
            return self.options.first
        return (
            tuple(c for c in self.options.first if c not in closed)
            or tuple(c for c in self.options.then if c not in closed)
            or self._known()  # all failed for good: try them again, rarely
        )

    @property
    def is_closed(self) -> bool:
        """Every candidate has failed for good."""
        return len(self._closed) == len(self._known())

    def _close(self, candidate: Candidate, outcome: Refused, now: float) -> None:
        if not self._closed:
            self._closed_at = now
        if all(c != candidate for c, _ in self._closed):
            self._closed += ((candidate, outcome.reason),)
        else:
            self._turn += 1  # all are: go round
        self.answered, self._failures = None, 0
        if self.refused_by == candidate:
            self.refused_by = None  # the refusal of one that is still open counts more

    def _move_on(self, candidate: Candidate) -> None:
        open_ = self._open()
        self._turn = open_.index(candidate) + 1 if candidate in open_ else 0
        self.answered, self._failures = None, 0

    def _keep(self, candidate: Candidate, outcome: Refused) -> None:
        """Of several that bring nothing the likeliest is shown, or each probe would change what is shown."""
        if self.answered is not None or self.refused_by is None:
            self.refused, self.refused_by = outcome, candidate
            return
        open_ = self._open()
        held = open_.index(self.refused_by) if self.refused_by in open_ else len(open_)
        if held == len(open_) or (candidate in open_ and open_.index(candidate) <= held):
            self.refused, self.refused_by = outcome, candidate
