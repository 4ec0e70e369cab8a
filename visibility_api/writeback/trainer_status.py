"""The summary of a job's progress that is written into `TrainJob.status.trainerStatus`.

The field has no place for steps and epochs: they are written as the metrics that Hugging Face's callback and
our reporter use too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from visibility_api.jobs.summary import JobProgress
from visibility_api.reports.document import Progress
from visibility_api.reports.fields import MAX_METRICS
from visibility_api.reports.trainer_status import MAX_INT32, TrainerMetric, TrainerStatus


def summarize(progress: Progress | JobProgress, at: datetime) -> TrainerStatus:
    """The summary of a report or document, within the limits of the CRD. `at`: aware, UTC."""
    metrics = dict(_position(progress))
    for name, value in progress.metrics:
        if name and value:
            metrics.setdefault(name, value)
    pairs = list(metrics.items())[:MAX_METRICS]
    return TrainerStatus(
        progress_percentage=progress.progress_percentage,
        estimated_remaining_seconds=None
        if progress.remaining_s is None
        else min(progress.remaining_s, MAX_INT32),
        metrics=tuple(TrainerMetric(name=name, value=value) for name, value in pairs) or None,
        last_updated_time=at.isoformat().replace("+00:00", "Z"),
    )


def fingerprint(status: TrainerStatus) -> int:
    """Equal for equal numbers, within one process; the time is not part of it."""
    return hash((status.progress_percentage, status.metrics))


def _position(progress: Progress | JobProgress) -> Iterator[tuple[str, str]]:
    for name, count in (
        ("current_step", progress.step),
        ("total_steps", progress.total_steps),
        ("current_epoch", progress.epoch),
        ("total_epochs", progress.total_epochs),
    ):
        if count is not None:
            yield name, str(int(count) if count == int(count) else count)
