"""The jobs that a term works on: taken over as it begins, gained and given up with a share of them, and ended
when they were deleted while nobody watched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef, TrainingJob
from visibility_api.jobs.observation import Observation
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kinds import Kinds
from visibility_api.kube.decoding import UNDECODABLE
from visibility_api.kube.errors import ClusterError
from visibility_api.replication.partitions import partition_of_job
from visibility_api.store.job_log import JobLog
from visibility_api.workloads.collections import JobWatch
from visibility_api.workloads.inventory import Inventory

log = structlog.get_logger("visibility.server")

ASK_S = 2.0  # whether jobs exist that the log does not have: pushes to what is taken over wait for it
SYNC_CHECK_S, SYNCED_CHECK_S = 0.1, 1.0  # until every job is known; while some cannot be
# What is kept of jobs that do not exist is forgotten so long after every job that exists is known. A
# kube-apiserver that has just started may answer for a while as if there were no TrainJobs at all.
SETTLED_S = 600.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Handover:
    """What a term does of it: `ownership.OwnersTerm` is one."""

    kinds: Kinds
    jobs: JobLog
    owner: Tracker
    inventory: Inventory
    watches: Sequence[JobWatch[Any]]
    exists: Callable[[JobRef], Awaitable[bool]]  # whether kube-apiserver has it. Raises ClusterError
    published: Callable[[JobProgress], None]
    on_gone: Callable[[JobRef], None]
    on_job: Callable[[TrainingJob, Observation | None], None] = lambda _job, _status: None
    given_up: Callable[[JobRef], None] = lambda _ref: None  # another replica evaluates the job
    is_member: bool = False  # the log is another replica's
    # That a watch shows, and that were not taken over because kube-apiserver did not list them.
    unconfirmed: set[JobRef] = field(default_factory=set)

    @property
    def untried(self) -> list[str]:
        """Paths of collections that were not listed yet, nor refused."""
        return [watch.path for watch in self.watches if not watch.health.attempted]

    @property
    def unlisted(self) -> list[str]:
        """Paths of collections without which it is not known what there is, tried or not."""
        return [watch.path for watch in self.watches if watch.is_awaited]

    async def adopt(self) -> None:
        """Continue with all jobs as they were published last."""
        for resource in self.kinds.resources:
            async for entry in in_slices(self.jobs.store.list(resource.plural).entries):
                self._adopt(entry.document)

    def _adopt(self, document: JobProgress) -> None:
        self.owner.adopt(document)
        self.published(document)

    @property
    def is_ready(self) -> bool:
        """Whether it is known what jobs there are, as far as that can be known."""
        return not self.untried

    async def gain(self, partitions: Collection[int], holds: Callable[[JobRef], bool]) -> None:
        """Take the jobs of these partitions over, while `holds` says so."""
        documents = [
            entry.document
            for resource in self.kinds.resources
            for entry in self.jobs.store.list(resource.plural).entries
            if partition_of_job(entry.document.job.ref) in partitions
        ]
        async for document in in_slices(documents):
            ref = document.job.ref
            if holds(ref) and ref not in self.owner:
                self._of_one(ref, partial(self._adopt, document))
        is_there: bool | None = True
        clock = asyncio.get_running_loop().time
        ask_until = clock() + ASK_S
        async for job, _ in in_slices(self.inventory):
            ref = job.ref
            if partition_of_job(ref) not in partitions or not holds(ref):
                continue
            # The log is right about what it has: a watch that is silently dead shows what there was.
            shown = self.jobs.store.get(ref.resource, ref.namespace, ref.name)
            is_known = shown is not None and shown.document.job.ref == ref
            if not is_known and is_there is not None:  # else kube-apiserver is not asked for each job in vain
                is_there = await self._exists(ref) if clock() < ask_until else None
            if not is_known and is_there is False:
                self.unconfirmed.add(ref)
            elif holds(ref) and (found := self.inventory.find(ref)) is not None:  # as it is by now
                self._of_one(ref, partial(self._gain_job, *found))
        if passed_over := self._unconfirmed(partitions):
            log.warning("jobs not taken over yet: kube-apiserver does not list them", jobs=len(passed_over))

    def _gain_job(self, job: TrainingJob, status: Observation | None) -> None:
        ref = job.ref
        shown = self.jobs.store.get(ref.resource, ref.namespace, ref.name)
        if shown is not None and (before := shown.document.job.ref) != ref:
            self.on_gone(before)  # one of the same name was made while no replica had the jobs
        self.on_job(job, status)

    async def _exists(self, ref: JobRef) -> bool | None:
        """Whether kube-apiserver has the job; None: it does not say."""
        try:
            return await self.exists(ref)
        except (ClusterError, *UNDECODABLE) as error:
            log.warning("it is not known whether a job exists", job=str(ref), **describe_fault(error))
            return None

    def lose(self, partitions: Collection[int]) -> None:
        """Keep nothing of the jobs of these partitions."""
        self.unconfirmed.difference_update(self._unconfirmed(partitions))
        for ref in [ref for ref in self.owner if partition_of_job(ref) in partitions]:
            self._of_one(ref, partial(self.given_up, ref))

    async def confirm(self, partitions: Collection[int]) -> bool:
        """Ask again which jobs of these partitions exist: end those that do not, and take over those that
        `gain` passed over. False if some may be left."""
        is_there: bool | None = True
        for ref in self._unconfirmed(partitions):
            if ref in self.inventory and ref not in self.owner:
                is_there = await self._exists(ref) if is_there is not None else None
                if is_there is False:
                    continue  # a watch that is silently dead shows it until it is listed again
            self.unconfirmed.discard(ref)
            if (found := self.inventory.find(ref)) is not None and ref not in self.owner:
                self._of_one(ref, partial(self._gain_job, *found))
        unsynced = {watch.scope for watch in self.watches if watch.is_awaited}
        unsynced.update(scope for watch in self.watches for scope in watch.down_scopes(0.0))
        is_done = not unsynced and not self._unconfirmed(partitions)
        its = [ref for ref in self.owner if partition_of_job(ref) in partitions]
        for ref in self._missing(unsynced, its):
            if (is_there := await self._exists(ref)) is None:
                return False
            if is_there:  # a watch that is silently dead does not show it
                is_done = False
            elif ref in self.owner and ref not in self.inventory:
                self.on_gone(ref)
        return is_done

    def _unconfirmed(self, partitions: Collection[int]) -> list[JobRef]:
        return [ref for ref in self.unconfirmed if partition_of_job(ref) in partitions]

    def _of_one(self, ref: JobRef, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # of one job; the others go on (decision 0005)
            log.error("job not taken over, or not given up", job=str(ref), **describe_fault(error))

    async def settle(self) -> None:
        """Once every job of a scope is known, end those that were deleted while nobody owned the log.

        When all are known, forget later what is kept of others.
        """
        jobs, before = self.jobs, None
        if self.is_member:
            return  # the owner of the log says so, and what is deleted ends as it is taken over
        if not jobs.is_complete:
            jobs.unlisted = frozenset(watch.scope for watch in self.watches)
        while True:
            unsynced = frozenset(watch.scope for watch in self.watches if watch.is_awaited)
            jobs.unlisted &= unsynced
            jobs.is_complete |= not self.untried  # a right that is missing for one does not block the others
            if unsynced != before:
                before = unsynced
                for ref in self._missing(unsynced, list(self.owner)):
                    self.on_gone(ref)
            if not unsynced:
                break
            await asyncio.sleep(SYNCED_CHECK_S if jobs.is_complete else SYNC_CHECK_S)
        jobs.is_complete = True
        await asyncio.sleep(SETTLED_S)
        jobs.forget_others(self.inventory)

    def _missing(self, unsynced: Collection[str | None], jobs: Iterable[JobRef]) -> list[JobRef]:
        """Jobs that no watch shows. `unsynced`: of jobs in these scopes, None for the whole cluster, it is
        not known whether they exist."""
        if None in unsynced:
            return []
        return [ref for ref in jobs if ref not in self.inventory and ref.namespace not in unsynced]
