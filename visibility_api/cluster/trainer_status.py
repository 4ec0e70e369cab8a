"""`TrainJob.status.trainerStatus`: read as a report, and written as a summary of one (1.1).

Its form has no place for steps and epochs: they travel as the metrics that Hugging Face's callback and our
reporter use too, and are lifted out of them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from visibility_api.progress.document import MAX_METRICS, Progress, read_trainer_status
from visibility_api.progress.summary import JobProgress

from .objects import TrainerMetric, TrainerStatus

MAX_INT32 = 2**31 - 1


def reported_progress(status: TrainerStatus | None) -> Progress | None:
    """The report in a TrainJob's status; None when there is none, or none that can be read or dated."""
    if status is None:
        return None
    outcome = read_trainer_status(msgspec.to_builtins(status))
    return outcome if isinstance(outcome, Progress) else None


def summarize(said: Progress | JobProgress, at: datetime) -> TrainerStatus:
    """What a status would say of it, within the bounds of the CRD. `at`: aware, UTC."""
    metrics = dict(_position(said))
    for name, value in said.metrics:
        if name and value:
            metrics.setdefault(name, value)
    pairs = list(metrics.items())[:MAX_METRICS]
    return TrainerStatus(
        progress_percentage=said.progress_percentage,
        estimated_remaining_seconds=None if said.remaining_s is None else min(said.remaining_s, MAX_INT32),
        metrics=tuple(TrainerMetric(name=name, value=value) for name, value in pairs) or None,
        last_updated_time=at.isoformat().replace("+00:00", "Z"),
    )


def fingerprint(status: TrainerStatus) -> int:
    """The same, in this process, for the same numbers. A time is none of them: it passes by itself."""
    return hash((status.progress_percentage, status.metrics))


def _position(said: Progress | JobProgress) -> Iterator[tuple[str, str]]:
    for name, count in (
        ("current_step", said.step),
        ("total_steps", said.total_steps),
        ("current_epoch", said.epoch),
        ("total_epochs", said.total_epochs),
    ):
        if count is not None:
            yield name, str(int(count) if count == int(count) else count)
