"""What is remembered of jobs that the cluster has not shown yet in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import Memory
from visibility_api.jobs.saved import SavedJob, restore, restore_history, supersedes

log = structlog.get_logger("visibility.state")

MAX_JOBS = 100_000  # ten times what one server is made for
MAX_HISTORIES = 9  # of one job: that on disk, and one of each replica that is asked
MAX_BYTES = 256 * 1024 * 1024


class Recollections:
    """One state a job, by identity: the newer one when there are two. Bounded: further ones are not kept.

    `count` is called with the source of each state that is taken.
    """

    def __init__(
        self,
        *,
        count: Callable[[str], None] = lambda _source: None,
        max_jobs: int = MAX_JOBS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._count = count
        self._max_jobs, self._max_bytes = max_jobs, max_bytes
        self._held: dict[JobRef, tuple[SavedJob, str]] = {}
        self._histories: dict[JobRef, list[SavedJob]] = {}
        self._bytes = 0
        self._unread = 0  # states and histories of jobs that exist
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._held)

    def add(self, saved: SavedJob, source: str) -> None:
        """Keep this until its job is seen. `source` is where it was found."""
        held = self._held.get(saved.ref)
        if held is not None:
            if supersedes(restore(saved), restore(held[0])):
                self._held[saved.ref] = saved, source
                self._bytes += len(saved.state) - len(held[0].state)
        elif (
            not self._is_closed
            and len(self._held) < self._max_jobs
            and self._bytes + len(saved.state) <= self._max_bytes
        ):
            self._held[saved.ref] = saved, source
            self._bytes += len(saved.state)

    def add_history(self, saved: SavedJob) -> None:
        """Keep this history until its job is seen; those of several replicas are brought together then."""
        size, held = len(saved.state), self._histories.get(saved.ref, [])
        if (
            not self._is_closed
            and len(held) < MAX_HISTORIES
            and len(self._histories) < self._max_jobs
            and self._bytes + size <= self._max_bytes
        ):
            self._histories.setdefault(saved.ref, held).append(saved)
            self._bytes += size

    def take_histories(self, ref: JobRef) -> Iterator[JobHistory]:
        """What is kept of the past of this job, which exists; it is not kept here any longer."""
        for saved in self._histories.pop(ref, ()):
            self._bytes -= len(saved.state)
            history = restore_history(saved)
            if history is not None:
                yield history
            else:
                self._unread += 1

    def take(self, ref: JobRef) -> Memory | None:
        """What is remembered of this job, which exists; it is not kept here any longer."""
        held = self._held.pop(ref, None)
        if held is None:
            return None
        saved, source = held
        self._bytes -= len(saved.state)
        memory = restore(saved)
        if memory is not None:
            self._count(source)
        else:
            self._unread += 1
        return memory

    def close(self) -> list[JobRef]:
        """Every job that exists has been seen: keep nothing more. Returns the jobs that were left."""
        left = list(dict.fromkeys((*self._held, *self._histories)))
        if self._unread:
            log.warning(
                "what was remembered of some jobs is damaged or of another version, and passed over",
                states=self._unread,
            )
        self._held.clear()
        self._histories.clear()
        self._bytes, self._is_closed = 0, True
        return left
