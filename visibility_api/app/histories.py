"""Where an operation finds what a job has reported over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from visibility_api.progress.history import JobHistory
from visibility_api.store import Entry

Found = tuple[Entry, JobHistory | None]  # the job's document; None: it has reported nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySource:
    """The histories of the TrainJobs. `find` takes a namespace and a name; None: there is no such job."""

    find: Callable[[str, str], Found | None] = lambda _namespace, _name: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
