"""What is known of the jobs beyond one process: put together from `persistence` and `peers`.

at the start:  data directory, then other replicas ─► recollections ─► tracker, as each job is shown
from then on:  tracker ─► data directory, and every replica that starts
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from visibility_api.app.health import Check
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.memory import Memory
from visibility_api.jobs.merge import PUSH
from visibility_api.jobs.saved import (
    SavedJob,
    restore,
    restore_history,
    save,
    save_history,
    supersedes,
)
from visibility_api.jobs.tracker import Tracker
from visibility_api.peers.addresses import Address
from visibility_api.peers.giving import StateGiver
from visibility_api.peers.taking import StateTaker
from visibility_api.persistence.recollections import Recollections
from visibility_api.persistence.state_file import Bounds
from visibility_api.persistence.writer import StateWriter
from visibility_api.settings import Settings
from visibility_api.telemetry import Metrics

Loop = Callable[[], Coroutine[Any, Any, None]]

# What is remembered of jobs that do not exist is forgotten so long after every job that exists is known. A
# kube-apiserver that has just started may answer for a while as if there were no TrainJobs at all.
SETTLED_S, CHECK_S = 600.0, 10.0


class Continuity:
    """The state of the jobs before and after this process, and in others.

    The tracker asks `recall` for each job that is new to it, and is handed in by `connect` before `load` and
    the loops are called. `changed` and `gone` may be called at any time.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        settled_s: float = SETTLED_S,
        check_s: float = CHECK_S,
    ) -> None:
        self._settled_s, self._check_s = settled_s, check_s
        self._settings = settings
        self._metrics = metrics
        self._recollections = Recollections(count=metrics.count_recalled)
        self.recall: Callable[[JobRef], Memory | None] = self._recollections.take
        self.recall_history: Callable[[JobRef], Iterator[JobHistory]] = self._recollections.take_histories
        self.giver: StateGiver | None = None  # None: there are no other replicas
        self._taker: StateTaker | None = None
        self._writer: StateWriter | None = None  # None: there is no data directory
        if settings.data_dir is not None:
            bounds = Bounds(
                max_bytes=settings.data_dir_max_mib * 1024 * 1024,
                max_age_s=settings.data_dir_max_age.total_seconds(),
            )
            writer = self._writer = StateWriter(settings.data_dir, bounds)
            metrics.is_degraded.set_function(lambda: writer.fault is not None)
            metrics.state_bytes.set_function(lambda: writer.size_bytes)

    def connect(
        self,
        tracker: Tracker,
        *,
        certificate: Callable[[], bytes],
        proof: Callable[[], str],
        met: Callable[[Address], None],
        recalled: Callable[[JobRef], None] = lambda _ref: None,
    ) -> None:
        """Give from this tracker and take into it. `recalled` is called with each job of which a peer has a
        later report. Of the others see StateTaker and StateGiver."""
        self._tracker = tracker
        self._recalled = recalled
        if peers := self._settings.peers:
            self.giver = StateGiver(
                proof=proof,
                jobs=lambda: tracker,
                snapshot=self._snapshot,
                history=self._history,
                met=met,
            )
            self._taker = StateTaker(
                peers,
                port=self._settings.secure_port,
                certificate=certificate,
                proof=proof,
                take=self._take,
                take_history=self._take_history,
                catch_up=self._catch_up,
            )

    def changed(self, ref: JobRef) -> None:
        """What is known of this job may have changed."""
        if self._writer is not None:
            self._writer.changed(ref)

    def gone(self, ref: JobRef) -> None:
        """This job was deleted."""
        if self._writer is not None:
            self._writer.gone(ref)

    async def load(self) -> None:
        """Read what an earlier process has kept: the first thing to do."""
        if self._writer is not None:
            states, histories = await self._writer.load()
            for saved in states:
                self._recollections.add(saved, "disk")
            for saved in histories:
                self._recollections.add_history(saved)

    async def taken(self) -> None:
        """Until the other replicas have been asked: jobs are followed by what is known of them already."""
        if self._taker is not None:
            await self._taker.done.wait()

    def loops(self, is_synced: Callable[[], bool]) -> Iterator[tuple[str, Loop]]:
        """By name; each runs until it is cancelled. `is_synced`: every job that exists is known."""
        if self._taker is not None:
            yield "state of other replicas", partial(self._taker.run, is_synced)
        if self._writer is not None:
            write, count = self._writer.run, self._metrics.count_state_writes
            yield (
                "data directory",
                partial(write, self._snapshot, lambda: self._tracker, history=self._history, count=count),
            )
        yield "recollections", partial(self._forget_others, is_synced)

    def checks(self, is_synced: Callable[[], bool]) -> Iterator[Check]:
        """Not ready while other replicas know later pushes, for seconds. And the health of the data
        directory, which never fails: jobs are served without it."""
        if (taker := self._taker) is not None:

            def behind() -> str | None:
                # While not every job is known, other checks say so; that may be for ever, and this must not.
                is_behind = is_synced() and not taker.caught_up.is_set()
                return "pushes to other replicas are still being taken" if is_behind else None

            yield Check(name="peers", run=behind, is_readiness_only=True)
        if (writer := self._writer) is not None:

            def note() -> str | None:
                fault = writer.fault
                return None if fault is None else f"state is kept in memory only: {fault}"

            yield Check(name="data-dir", run=lambda: None, note=note, is_readiness_only=True)

    def _snapshot(self, ref: JobRef) -> SavedJob | None:
        state = self._tracker.remembered_encoded(ref)
        return None if state is None else save(ref, state)

    def _history(self, ref: JobRef) -> SavedJob | None:
        history = self._tracker.history(ref)
        return None if history is None else save_history(ref, history)

    def _take_history(self, saved: SavedJob) -> None:
        """A peer has this of the past of a job."""
        if saved.ref not in self._tracker:
            self._recollections.add_history(saved)
        elif (history := restore_history(saved)) is not None:
            self._tracker.history_recalled(saved.ref, history)

    def _take(self, saved: SavedJob) -> None:
        """A peer knows this of a job, which this replica may know as well, or not yet."""
        if saved.ref not in self._tracker:
            self._recollections.add(saved, "peer")
        elif (memory := restore(saved)) is not None:
            self._merge(saved.ref, memory)

    def _catch_up(self, saved: SavedJob) -> None:
        """A peer knows this long after the start: a push to it may not have been relayed to this replica, or
        this one's watch was interrupted while a pod ended.

        While a job can be probed each replica does it itself.
        """
        if saved.ref not in self._tracker or (memory := restore(saved)) is None:
            return
        if memory.source == PUSH or not self._tracker.can_be_probed(saved.ref):
            self._merge(saved.ref, memory)
        else:
            self._tracker.past_recalled(saved.ref, memory)

    def _merge(self, ref: JobRef, memory: Memory) -> None:
        if supersedes(memory, self._tracker.remembered(ref)):
            self._tracker.recalled(ref, memory)
            self._recalled(ref)
            self._metrics.count_recalled("peer")
        else:
            self._tracker.past_recalled(ref, memory)

    async def _forget_others(self, is_synced: Callable[[], bool]) -> None:
        """Once every job that exists is known, what is remembered of others is of deleted ones."""
        settled_s = 0.0
        while settled_s < self._settled_s:
            await asyncio.sleep(self._check_s)
            settled_s = settled_s + self._check_s if is_synced() else 0.0
        for ref in self._recollections.close():
            self.gone(ref)
