"""The log of the jobs: what each was last, what its owner needs to continue, and what has changed since.

One replica owns the log and writes it; the others follow it. Its homes are told what changes: memory at once,
the data directory (`state_writer`), the streams to followers (`replication/streams`). Another home is another
`Home`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Sequence
from typing import Protocol

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Addition
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker

from .memory import MemoryStore

log = structlog.get_logger("visibility.server")


class Home(Protocol):
    """Where the log is kept. Neither method may await; `JobLog.state` and `history` say what a job has
    come to."""

    def changed(self, ref: JobRef, points: Sequence[Addition]) -> None:
        """The document or the state of this job has changed, and its history has gained these points."""
        ...

    def gone(self, ref: JobRef) -> None:
        """This job was deleted."""
        ...


class JobLog:
    """No method but `disown` awaits, so readers never find half of a change."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.is_complete = False  # all that can be listed was: it was owned or followed
        # Scopes of which not every job is known: namespaces, or None for the whole cluster.
        self.unlisted: frozenset[str | None] = frozenset((None,))
        self._states: dict[JobRef, bytes] = {}  # of jobs that this replica does not evaluate
        self._histories: dict[JobRef, JobHistory] = {}
        self._homes: list[Home] = []
        self._owner: Tracker | None = None
        self._may_write: Callable[[], bool] = _never

    def is_listed(self, namespace: str) -> bool:
        """Whether every job of a namespace ("" = of all) is known."""
        if not namespace or None in self.unlisted:
            return not self.unlisted
        return namespace not in self.unlisted

    def add_home(self, home: Home) -> None:
        self._homes.append(home)

    def remove_home(self, home: Home) -> None:
        self._homes.remove(home)

    def __iter__(self) -> Iterator[JobRef]:
        """Every job that has a state or a history."""
        yield from dict.fromkeys((*(self._owner or ()), *self._states, *self._histories))

    def state(self, ref: JobRef) -> bytes | None:
        """What the next owner needs to know of the job; None if there is nothing."""
        state = self._owner.state(ref) if self._owner is not None else None
        return self._states.get(ref) if state is None else state

    def history(self, ref: JobRef) -> JobHistory | None:
        """What was reported over time; None for a job of which nothing is."""
        history = self._owner.history(ref) if self._owner is not None else None
        return self._histories.get(ref) if history is None else history

    # --- the owner

    def own(self, owner: Tracker, epoch: int, may_write: Callable[[], bool]) -> None:
        """`owner` evaluates the jobs from now on. Raises ValueError for an epoch that is not a later one."""
        self.store.begin_epoch(epoch)
        self.store.is_follower = False
        self._owner, self._may_write = owner, may_write

    async def disown(self) -> None:
        """Keep what the owner knows, for the next one. Nothing is written from now on."""
        if (owner := self._owner) is None:
            return
        self._may_write, left = _never, iter(list(owner))
        self.store.is_follower = True
        try:
            async for ref in in_slices(left):
                self.hand_back(ref)
        finally:
            for ref in left:  # it is cancelled
                self.hand_back(ref)
            self._owner = None

    def recall(self, ref: JobRef) -> tuple[bytes | None, JobHistory | None]:
        """What an earlier owner knew of a job; from now on the present one does."""
        return self._states.pop(ref, None), self._histories.pop(ref, None)

    def put(self, document: JobProgress) -> None:
        """Make it the latest of its job. Nothing happens when this replica may write no more."""
        if self._may_write():
            self.store.put(document)

    def kept(self, ref: JobRef, points: Sequence[Addition]) -> None:
        """What the owner knows of the job has changed. Follows `put`, where there was one."""
        if self._may_write():
            self._changed(ref, points)

    def delete(self, ref: JobRef) -> None:
        """The job was deleted."""
        if self._may_write():
            self.store.delete(ref)
            self.drop(ref)

    def hand_back(self, ref: JobRef) -> None:
        """Keep what the owner knows of this job: another replica evaluates it from now on."""
        if (owner := self._owner) is None:
            return
        try:
            if (state := owner.state(ref)) is not None:
                self._states[ref] = state
        except Exception as error:  # about one job; the others go on (decision 0005)
            log.error("state of a job not kept", job=str(ref), **describe_fault(error))
        if (history := owner.history(ref)) is not None:
            self._histories[ref] = history

    def forget_others(self, exist: Container[JobRef] = ()) -> list[JobRef]:
        """Every job that exists is known: forget what was kept of others, and say of which."""
        left = [ref for ref in dict.fromkeys((*self._states, *self._histories)) if ref not in exist]
        for ref in left:
            self.drop(ref)
        return left

    # --- a follower, or the data directory at the start

    def keep_only(self, jobs: Collection[JobRef]) -> None:
        """The owner has listed all that it knows: others are gone."""
        for ref in [ref for ref in self if ref not in jobs]:
            self.drop(ref)

    def set_state(self, ref: JobRef, state: bytes | None, history: JobHistory | None) -> None:
        """All that is known of this job."""
        if state is not None:
            self._states[ref] = state
        if history is not None:
            self._histories[ref] = history
        self._changed(ref, ())

    def apply_state(self, ref: JobRef, state: bytes | None, points: Sequence[Addition]) -> None:
        """The owner says this of the job now; its history has gained these points."""
        if state is not None:
            self._states[ref] = state
        if points:
            history = self._histories.setdefault(ref, JobHistory())
            for each in points:
                each.add_to(history)
        self._changed(ref, points)

    def drop(self, ref: JobRef) -> None:
        """The owner says that it was deleted."""
        self._states.pop(ref, None)
        self._histories.pop(ref, None)
        self._gone(ref)

    def _changed(self, ref: JobRef, points: Sequence[Addition]) -> None:
        for home in self._homes:
            home.changed(ref, points)

    def _gone(self, ref: JobRef) -> None:
        for home in self._homes:
            home.gone(ref)


def _never() -> bool:
    return False
