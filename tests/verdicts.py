"""Simulated runs, healthy and not, as a server sees them, and which conditions it gives them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from visibility_api.jobs.conditions import evaluate
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Progress

from . import courses, rhythms
from .jobs import JOB, RANK0, REF, T0

LEAST_REPORTS = 150
STAYS_S = 3600  # how long a run that stands still is watched


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one run."""

    was_stalled: bool  # while it was healthy
    stalled_after_s: float | None = None  # after the last advance of one that hangs; None: never
    diverged_at: int | None = None  # which of its reports
    breaks_at: int | None = None  # the first report that was not healthy


class Server:
    """One that probes the job, or is pushed to."""

    def __init__(self) -> None:
        self.now = T0
        self.tracker = Tracker(
            publish=lambda _: None, retract=lambda _: None, now=lambda: self.now, interval_s=15
        )
        self.tracker.job_changed(JOB)

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
) -> Verdict:
    """One run, until it ends or hangs. `reports`: so many at most, of a run of any length; one that diverges
    has LEAST_REPORTS, and half of them after that. `is_quick`: one of quick steps and short pauses."""
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
    server, was_stalled, diverged_at, last = Server(), False, None, T0
    for number, (at_s, step) in enumerate(seen):
        last = T0 + timedelta(seconds=at_s)
        read_at = max(server.now, last + timedelta(seconds=rng.uniform(0, every_s)))
        if number:  # probed a moment before, it has not moved
            server.now = max(server.now, read_at - timedelta(seconds=0.1))
            was_stalled = was_stalled or server.has("Stalled")
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
        if diverged_at is None and server.has("Diverged"):
            diverged_at = number
    stalled_after_s = None
    if hangs:
        stalled_after_s = _stalled_after_s(server, last)
    else:
        server.now = max(server.now, last + timedelta(seconds=saving_s))
        was_stalled = was_stalled or server.has("Stalled")
    return Verdict(
        was_stalled=was_stalled,
        stalled_after_s=stalled_after_s,
        diverged_at=diverged_at,
        breaks_at=breaks_at,
    )


def _stalled_after_s(server: Server, last: datetime) -> float | None:
    for waited_s in range(15, STAYS_S, 15):
        server.now = last + timedelta(seconds=waited_s)
        if server.has("Stalled"):
            return waited_s
    return None
