"""Which part this replica has: it owns the log while it holds the Lease, and follows it otherwise.

A replica without others has no Lease, and owns the log always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import structlog

from visibility_api.jobs.tracker import Tracker
from visibility_api.kube.lease import DURATION_S, Lease
from visibility_api.pushing.endpoint import PushEndpoint
from visibility_api.store.job_log import JobLog

from .addresses import Address
from .member import Member, give_back
from .shares import Shares

log = structlog.get_logger("visibility.replication")

# A replica that knows nothing leaves the log to one that does, but not if that one has not taken it by then.
KNOWS_NOTHING_S = 45.0
UNFIT_S = 25.0  # the same of one that lacks rights, from when nobody owns the log: a Lease ends within 17 s
FIRST_SEARCH_S = 3.0  # for other replicas, before it takes the Lease without having asked them
FOLLOWED_WITHIN_S = 3.0  # a follower that was cut a moment ago comes back
DRAIN_S = 2.0  # for pushes that are being taken when the log is given up

Loop = Callable[[], Coroutine[Any, Any, None]]


class Term(Protocol):
    """What an owner does, from when it comes to own the log until it owns it no longer."""

    @property
    def owner(self) -> Tracker: ...

    @property
    def pushes(self) -> PushEndpoint | None: ...

    @property
    def loops(self) -> Sequence[tuple[str, Loop]]:
        """By name; each runs until it is cancelled."""
        ...

    async def adopt(self) -> None:
        """Continue with every job that the log has."""
        ...


T = TypeVar("T", bound=Term)


class Following(Protocol):
    """A follower's side of the log."""

    must_list: bool

    @property
    def owner(self) -> Address | None: ...

    @property
    def has_searched(self) -> bool: ...

    @property
    def others_have_log(self) -> bool: ...

    @property
    def lost_at(self) -> float | None: ...

    @property
    def fault(self) -> str | None:
        """Why the end of the log is not known: this replica may not own it."""
        ...

    async def run(self) -> None: ...


class Sending(Protocol):
    """The owner's side of the log."""

    @property
    def fault(self) -> str | None:
        """Why it cannot be written now."""
        ...

    async def begin(self, epoch: int) -> bool:
        """Whether this replica may own the log."""
        ...

    async def keep(self) -> None:
        """While it does; ends when the log cannot be kept."""
        ...

    async def followed(self, within_s: float) -> bool: ...

    async def replicated(self) -> bool: ...

    async def finish(self, release: Callable[[], Awaitable[None]]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What a replica with others needs beside its own part."""

    lease: Lease
    follower: Following
    streams: Sending
    drained: Callable[[float], Awaitable[None]]  # waits so many seconds for pushes that are being taken
    # The jobs are shared out: the part of the replica that holds the Lease, and that of the others.
    shares: Shares | None = None
    member: Member[Any] | None = None


class Role(Generic[T]):
    """`run` is this replica's part in the log. `others` None: there are no other replicas."""

    def __init__(
        self,
        jobs: JobLog,
        build_term: Callable[[Callable[[], bool]], T],
        *,
        others: Callable[[Role[T]], Others] | None,
        is_fit: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_fit`: whether this replica may do what an owner does."""
        self._log = jobs
        self._build_term = build_term
        self._is_fit = is_fit
        self._term: T | None = None
        self._leave = asyncio.Event()
        self._left = asyncio.Event()
        self._renew = asyncio.Event()
        self._began = time.monotonic()
        self.others = others(self) if others is not None else None

    @property
    def term(self) -> T | None:
        """While this replica owns the log."""
        return self._term

    @property
    def working(self) -> T | None:
        """While this replica works on jobs: as the owner of the log, or on a share of them."""
        if self._term is not None or self.others is None or self.others.member is None:
            return self._term
        found: T | None = self.others.member.term
        return found

    def works_on(self, partition: int) -> T | None:
        """The parts here that work on the jobs of this partition; None: another replica does."""
        others = self.others
        if others is None or others.shares is None or others.member is None:
            return self._term
        if self._term is not None:
            return self._term if others.shares.serves(partition) else None
        return self.working if others.member.serves(partition) else None

    def endpoint(self, partition: int) -> PushEndpoint | None:
        """For pushes to the jobs of this partition, if they are taken here."""
        working = self.works_on(partition)
        return working.pushes if working is not None and not self._leave.is_set() else None

    @property
    def admits(self) -> PushEndpoint | None:
        """One that finds out which job a push is for, wherever it is taken."""
        return self.working.pushes if self.working is not None and not self._leave.is_set() else None

    def address(self, partition: int) -> Address | None:
        """Of the replica that works on the jobs of this partition; None: not known now."""
        others = self.others
        if others is None or others.shares is None or others.member is None:
            return self.owner
        return (
            others.shares.address(partition) if self._term is not None else others.member.address(partition)
        )

    @property
    def owner(self) -> Address | None:
        return self.others.follower.owner if self.others is not None else None

    @property
    def out_of_sync_s(self) -> float:
        """For how long another replica has owned the log, by its Lease, and this one has not followed it.
        A Lease that cannot be read now and then is still held; after its duration nobody may own the log."""
        if self._term is not None or self.others is None or self.others.lease.failing_s > DURATION_S:
            return 0.0
        if self.others.follower.fault is not None and not self.others.lease.is_anothers:
            return 0.0  # nobody can own it
        lost_at = self.others.follower.lost_at
        return 0.0 if lost_at is None else time.monotonic() - lost_at

    @property
    def epoch(self) -> int | None:
        """Of the present term; None while this replica must not write."""
        return self._log.store.epoch if self.may_write() else None

    def may_write(self) -> bool:
        """Whether this replica may assign a revision at this moment."""
        return self._term is not None and (self.others is None or self.others.lease.is_held)

    async def run(self) -> None:
        """For ever. What one of a term's loops raises ends the process."""
        while True:
            if self.others is None:
                epoch = max(int(time.time()), self._log.store.epoch + 1)
            else:
                epoch = await self._follow_until_acquired(self.others)
                if self.others.member is not None:
                    give_back()
                if not await self.others.streams.begin(epoch):
                    await self.others.lease.release()
                    continue
            await self._own(epoch, self.others)
            give_back()

    def renew(self) -> None:
        """Begin the present term anew, if there is one: it was built for kinds that have changed since."""
        self._renew.set()
        if self.others is not None and self.others.member is not None:
            self.others.member.renew()

    async def leave(self) -> None:
        """Give the log up in order, if a follower can take over; the process goes on as a follower itself."""
        if self.others is not None and self.others.member is not None:
            await self.others.member.leave()
        if self._term is None or self.others is None:
            return
        if await self.others.streams.followed(FOLLOWED_WITHIN_S):
            self._leave.set()
            await self._left.wait()
        elif self.others.shares is not None:
            await self.others.shares.revoke()  # the Lease is free in the end, for one that begins with all

    async def end(self) -> None:
        """The process ends: let another one begin at once."""
        if self.others is not None and self.others.lease.is_held:
            await self.others.lease.release()

    async def _follow_until_acquired(self, others: Others) -> int:
        def may() -> bool:
            return self._may_own(others.follower)

        async with asyncio.TaskGroup() as group:
            following = group.create_task(others.follower.run(), name="follower")
            working = group.create_task(others.member.run(), name="share") if others.member else None
            epoch = await others.lease.acquire(may=may, after=lambda: self._log.store.epoch)
            following.cancel()
            if working is not None:
                working.cancel()
        return epoch

    def _may_own(self, follower: Following) -> bool:
        """A replica that knows nothing leaves the log to one that does, and one that has given it up as
        well. One that still sends has given up the Lease a moment ago: what is left comes first."""
        if follower.owner is not None or follower.fault is not None:
            return False
        if not self._is_fit():
            lost_at = follower.lost_at
            if lost_at is None or time.monotonic() - lost_at < UNFIT_S:
                return False
        if self._log.is_complete:
            return not self._leave.is_set()
        waited_s = time.monotonic() - self._began
        if not follower.has_searched and waited_s < FIRST_SEARCH_S:
            return False
        return not follower.others_have_log or waited_s > KNOWS_NOTHING_S

    async def _own(self, epoch: int, others: Others | None) -> None:
        """Own the log until the Lease is lost, or given up, or the term is to begin anew."""
        self._renew.clear()
        term = self._term = self._build_term(self.may_write)
        self._log.own(term.owner, epoch, self.may_write)
        shares = others.shares if others is not None else None
        try:
            await term.adopt()
            if shares is not None:
                shares.begin(cast(Any, term), lambda: self.epoch)
            log.info("owning the log", epoch=epoch, jobs=sum(1 for _ in term.owner))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop(), name=name) for name, loop in term.loops]
                renewal = group.create_task(self._renew.wait(), name="renewal")
                if others is None:
                    await renewal
                    ends = []
                else:
                    holding = group.create_task(others.lease.hold(), name="lease")
                    leaving = group.create_task(self._leave.wait(), name="leaving")
                    keeping = group.create_task(others.streams.keep(), name="log")
                    ends = [renewal, holding, leaving, keeping]
                    if shares is not None:
                        tasks.append(group.create_task(shares.keep(), name="shares of the jobs"))
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    if shares is not None and not leaving.done() and others.lease.is_held:
                        await shares.revoke()  # the next term holds all from its beginning
                    if keeping.done():
                        log.warning("giving the log up: it cannot be written", epoch=epoch)
                        await others.lease.release()  # another replica may be able to keep it
                    if leaving.done() and others.lease.is_held:
                        await self._give_up(others, tasks)
                    elif not renewal.done():
                        others.follower.must_list = True  # what was written last may have reached nobody
                for task in (*tasks, *ends):
                    task.cancel()
        finally:
            self._term = None
            if shares is not None:
                shares.end()
            await self._log.disown()
            if others is not None:
                others.streams.close()
            if self._leave.is_set():
                self._left.set()

    async def _give_up(self, others: Others, tasks: Sequence[asyncio.Task[None]]) -> None:
        if others.shares is not None:
            await others.shares.revoke()
        await others.drained(DRAIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=DRAIN_S)
        log.info("giving the log up", epoch=self._log.store.epoch)
        await others.streams.finish(others.lease.release)
