"""Simulated runs, healthy and not, as a server sees them, and which conditions it gives them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from visibility_api.jobs.conditions import evaluate
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Progress

from . import captures, courses, rhythms
from .jobs import JOB, RANK0, REF, T0

LEAST_REPORTS = 150
APART_S = 60.0  # between two readings of the ranks
WATCHED = timedelta(seconds=15)
STAYS_S = 3600  # how long a run that stands still is watched


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one run."""

    was_stalled: bool  # while it was healthy
    stalled_after_s: float | None = None  # after the last advance of one that hangs; None: never
    diverged_at: int | None = None  # which of its reports; not looked for in one that hangs
    breaks_at: int | None = None  # the first report that was not healthy


class Server:
    """One that probes the job, or is pushed to, and may read what its ranks do."""

    def __init__(self, captured: random.Random | None) -> None:
        self.now = T0
        self.captured = captured
        self.doing, self.state, self.is_silent = captures.HEALTHY["evaluation"], "", False
        self._read_at = T0
        self.tracker = Tracker(
            publish=lambda _: None,
            retract=lambda _: None,
            now=lambda: self.now,
            interval_s=15,
            suspect=self._suspect,
        )
        self.tracker.job_changed(JOB)

    def _suspect(self, _ref: object, still_s: float) -> None:
        """As `Diagnoser` reads them."""
        if self.captured is None or (self.now - self._read_at).total_seconds() < max(APART_S, still_s / 2):
            return
        self._read_at = self.now
        found = captures.capture(
            self.captured, self.doing, still_s, self.now, state=self.state, is_silent=self.is_silent
        )
        is_told = found.is_hang or self.has("Stalled")
        self.tracker.diagnosed(REF, found, is_told=is_told)

    def stand(self, until: datetime) -> bool:
        """Until then nothing is reported. Returns whether the job stalled."""
        while self.captured is not None and self.now + WATCHED < until:
            self.now += WATCHED
            self.tracker.review(1.0)
            self.tracker.review(1.0)
            if self.has("Stalled"):
                return True
        self.now = max(self.now, until)
        return self.has("Stalled")

    def observe(self, report: Progress, source: str) -> None:
        self.tracker.observed(
            Observation(
                ref=REF, attempt=RANK0.attempt, source=source, at=self.now, outcome=report, latency_s=0.01
            )
        )

    def has(self, type_: str) -> bool:
        """Whether the job has this condition now."""
        made = evaluate(self.tracker._records[REF], self.now)
        return any(each.type == type_ and each.status == "True" for each in made)


def judge(
    rng: random.Random,
    *,
    hangs: bool = False,
    diverges: bool = False,
    is_quick: bool = False,
    reports: int = 400,
    captured: random.Random | None = None,
    doing: str = "",
) -> Verdict:
    """One run, until it ends or hangs. `reports`: so many at most, of a run of any length; one that diverges
    has LEAST_REPORTS, and half of them after that. `is_quick`: one of quick steps and short pauses.
    `captured`: its ranks are read where it stands still; `doing`, of HANGS, what they do in a hang."""
    every_s = rng.choice([15.0, 15.0, 5.0])
    source = "exec" if every_s == 15.0 else "push"
    seen: rhythms.Rhythm = []
    while len(seen) < (LEAST_REPORTS if diverges else 1):
        rhythm, epoch, saving_s = (rhythms.quick if is_quick else rhythms.pausing)(rng)
        seen = rhythms.probed(rhythm, max(every_s, rhythm[-1][0] / reports))
    breaks_at = None
    if diverges:
        course, breaks_at = courses.diverging(rng, max(len(seen), 20))
    else:
        course = courses.healthy(rng, max(len(seen), 20))
    if hangs:
        seen = seen[: max(2, int(len(seen) * rng.uniform(0.1, 0.95)))]
    server, was_stalled, diverged_at, last = Server(captured), False, None, T0
    for number, (at_s, step) in enumerate(seen):
        last = T0 + timedelta(seconds=at_s)
        read_at = max(server.now, last + timedelta(seconds=rng.uniform(0, every_s)))
        if number:  # probed a moment before, it has not moved
            if captured is not None:
                server.doing = captures.HEALTHY[captured.choice(list(captures.HEALTHY))]
            was_stalled = server.stand(read_at - timedelta(seconds=0.1)) or was_stalled
        server.now = read_at
        metrics = tuple([(name, f"{value:.4g}") for name, value in course[number].items()])
        report = Progress(
            timestamp=last,
            step=step,
            total_steps=rhythm[-1][1],
            epoch=step / epoch if epoch else None,
            metrics=metrics,
        )
        server.observe(report, source)
        if not hangs and diverged_at is None and server.has("Diverged"):
            diverged_at = number
    stalled_after_s = None
    if hangs:
        if doing:
            server.doing, server.state, server.is_silent = captures.HANGS[doing]
        stalled_after_s = _stalled_after_s(server, last)
    else:
        was_stalled = server.stand(last + timedelta(seconds=saving_s)) or was_stalled
    return Verdict(
        was_stalled=was_stalled,
        stalled_after_s=stalled_after_s,
        diverged_at=diverged_at,
        breaks_at=breaks_at,
    )


def _stalled_after_s(server: Server, last: datetime) -> float | None:
    for waited_s in range(15, STAYS_S, 15):
        server.now = last + timedelta(seconds=waited_s)
        if server.captured is not None:
            server.tracker.review(1.0)
            server.tracker.review(1.0)
        if server.has("Stalled"):
            return waited_s
    return None
