"""A tracker of one job, as the cluster and its training process speak in turn, on a clock moved by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from tests.jobs import RANK0, REF, T0
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Addition, Observation
from visibility_api.jobs.record import State
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary
from visibility_api.jobs.tracker import Tracker
from visibility_api.reports.document import Progress, Refused


def at(seconds: float) -> datetime:
    """So long after the job was made."""
    return T0 + timedelta(seconds=seconds)


class Bench:
    """A tracker, its published documents, and a clock. `state`: what another process had remembered."""

    def __init__(self, *, now: datetime = T0, state: bytes | None = None) -> None:
        self.now = now
        self.published: list[JobProgress] = []
        self.retracted: list[JobRef] = []
        self.suspected: list[float] = []  # seconds for which the run stood still
        self.points: list[Addition] = []  # that histories have gained
        self.tracker = Tracker(
            publish=self.published.append,
            kept=lambda _ref, points: self.points.extend(points),
            retract=self.retracted.append,
            now=lambda: self.now,
            interval_s=15.0,
            suspect=lambda _ref, still_s: self.suspected.append(still_s),
            recall=lambda _ref: (state, None),
        )

    @property
    def last(self) -> JobProgress:
        return self.published[-1]

    @property
    def observation(self) -> ObservationSummary:
        assert self.last.observation is not None
        return self.last.observation

    def shown(self, type_: str) -> Condition:
        found = self.last.condition(type_)
        assert found is not None
        return found

    def condition(self, type_: str) -> tuple[str, str]:
        found = self.shown(type_)
        return found.status, found.reason

    def job(self, job: TrainingJob, *, status: Progress | None = None) -> None:
        """The cluster shows this job, its own status with this report."""
        seen = status and Observation(ref=job.ref, attempt="", source="status", at=self.now, outcome=status)
        self.tracker.job_changed(job, seen)

    def observe(
        self,
        outcome: Progress | Refused,
        *,
        attempt: str = RANK0.attempt,
        source: str = "exec",
        is_other_rank: bool = False,
        is_final_read: bool = False,
    ) -> None:
        self.tracker.observed(
            Observation(
                ref=REF,
                attempt=attempt,
                source=source,
                at=self.now,
                outcome=outcome,
                latency_s=0.01,
                is_other_rank=is_other_rank,
                is_final_read=is_final_read,
            )
        )

    def report(self, step: int, *, attempt: str = RANK0.attempt, **more: object) -> None:
        self.observe(
            Progress(timestamp=self.now, step=step, total_steps=1000, **more),  # type: ignore[arg-type]
            attempt=attempt,
        )

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def review(self) -> None:
        """Evaluates the job."""
        for _ in range(2):  # the first round may have been at its end
            self.tracker.review(1.0)

    def state(self) -> bytes:
        """What is remembered of the job."""
        state = self.tracker.state(REF)
        assert state is not None
        return state

    def memory(self) -> State:
        return msgspec.msgpack.decode(self.state(), type=State)

    def heir(self) -> Bench:
        """Another process, which starts now and goes on from what this one remembers."""
        return Bench(now=self.now, state=self.state())
