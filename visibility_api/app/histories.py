"""Where an operation finds what a job has reported over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from visibility_api.flowcontrol.client_queues import ClientQueues
from visibility_api.history.job_history import JobHistory
from visibility_api.store import Entry

MAX_WAITING, MAX_WAITING_PER_USER, WAIT_S = 400, 100, 10.0

Found = tuple[Entry, JobHistory | None]  # the job's document; None: it has reported nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySource:
    """The histories of the TrainJobs. `find` takes a namespace and a name; None: there is no such job."""

    find: Callable[[str, str], Found | None] = lambda _namespace, _name: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    # By user. One takes some milliseconds, as YAML twenty: one is made in each turn of the event loop.
    queues: ClientQueues = field(
        default_factory=lambda: ClientQueues(
            crowded="too many requests for histories wait; try again after the time in Retry-After",
            max_running=1,
            max_running_per_client=1,
            max_waiting=MAX_WAITING,
            max_waiting_per_client=MAX_WAITING_PER_USER,
            wait_s=WAIT_S,
        )
    )
