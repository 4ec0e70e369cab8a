"""Shares the jobs out among replicas: the part of the one that holds the Lease, and writes the log.

Each partition is held by one replica at most. A member says with each report what it holds, and is told what
it may hold. One that is silent for GONE_S holds nothing any more: HOLD_S after its last report that was
answered it acts no longer, by its own clock. An answer is given only while the Lease is held, whose end for
another replica is HOLD_S later at least.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.lease import LeaseTimes
from visibility_api.store.job_log import JobLog

from .addresses import Address
from .frames import Advanced, BadFrame, Changed, Frame, FrameReader, Gone, decompress
from .partitions import NOBODY, PARTITIONS, Report, Share, partition_of_job, share_out

log = structlog.get_logger("visibility.replication")

BEAT_S = 0.5  # between two reports of a member
HOLD_S = 4.0  # a member holds what it holds for so long after it sent what was answered last
GONE_S = 6.0  # a member that is silent for so long holds nothing
# Others own what a writer has shared out within 15 s of its death. Nobody acts on what it gave by then:
# it gives nothing `renew_within_s` after the last renewal, and what it gave ends HOLD_S later.
LEASE_TIMES = LeaseTimes(duration_s=12, renew_within_s=7.5, request_s=2.5, earlier_s=GONE_S)
# Then kube-apiserver is asked of jobs that either the log or a watch does not show: a watch may be later.
CONFIRM_S = 10.0
STORED_S = 1.0  # until a report is answered that is not stored yet


class Sharing(Protocol):
    """What a term does with partitions."""

    async def gain(self, partitions: Collection[int], holds: Callable[[JobRef], bool]) -> None:
        """Take the jobs of these partitions over, while `holds` says so."""
        ...

    def lose(self, partitions: Collection[int]) -> None:
        """Keep nothing of the jobs of these partitions."""
        ...

    async def confirm(self, partitions: Collection[int]) -> bool:
        """Ask again which jobs of these partitions exist, and end or take over those that differ; False if
        some may be left."""
        ...

    def taken(self, document: JobProgress) -> None:
        """A member has published this."""
        ...

    def gone(self, ref: JobRef) -> None:
        """A member says that the job was deleted; its document is still there to be found."""
        ...


class Written(Protocol):
    """The log as its writer has it."""

    @property
    def position(self) -> int:
        """Counts changes."""
        ...

    @property
    def confirmed(self) -> int:
        """Changes that are stored."""
        ...

    @property
    def sequence(self) -> int:
        """Where what is stored ends."""
        ...

    async def stored(self, position: int, within_s: float) -> bool: ...


@dataclass(slots=True, eq=False)
class _Member:
    address: Address
    heard_at: float
    number: int = 0  # of its last report
    stored: int = 0
    position: int = 0  # of the log, with that report
    is_leaving: bool = False


class Shares:
    """`begin` with each term, in which this replica holds all at first; then `keep`."""

    def __init__(
        self, jobs: JobLog, own: str, *, written: Written, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = jobs
        self._own = own
        self._written = written
        self._clock = clock
        self._term: Sharing | None = None
        self._epoch: Callable[[], int | None] = lambda: None
        self._members: dict[str, _Member] = {}
        self._holders: list[str | None] = [None] * PARTITIONS
        # Positions of the log: what the last holder of a partition has written is before it.
        self._free_from = [0] * PARTITIONS
        self._served: set[int] = set()  # by this replica: their jobs are taken over
        self._is_ending = False

    # --- as a term has it

    def begin(self, term: Sharing, epoch: Callable[[], int | None]) -> None:
        """`epoch`: None while this replica may not write."""
        self._term, self._epoch, self._is_ending = term, epoch, False
        self._members.clear()
        self._holders = [self._own] * PARTITIONS
        self._served = set(range(PARTITIONS))

    def end(self) -> None:
        self._term = None
        self._served.clear()
        self._members.clear()

    def holds(self, ref: JobRef) -> bool:
        """Whether this replica evaluates the job."""
        return self._holders[partition_of_job(ref)] == self._own

    def serves(self, partition: int) -> bool:
        """Whether this replica takes pushes for it."""
        return partition in self._served

    def address(self, partition: int) -> Address | None:
        """Of the member that has it."""
        member = self._members.get(self._holders[partition] or "")
        return None if member is None else member.address

    async def keep(self) -> None:
        """Share out what is free, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(BEAT_S / 2)
                self._drop_silent()
                if self._epoch() is not None and (gained := await self._settle_own()):
                    group.create_task(self._confirm(gained), name="jobs confirmed")

    async def revoke(self) -> None:
        """Until no other replica holds anything. Nothing is given from now on."""
        self._is_ending = True
        until = self._clock() + GONE_S
        while any(each not in (None, self._own) for each in self._holders) and self._clock() < until:
            self._drop_silent()
            await asyncio.sleep(BEAT_S / 20)

    # ---

    def _wanted(self) -> list[str]:
        here = {name for name, each in self._members.items() if not each.is_leaving}
        return list(share_out(frozenset({self._own, *here})))

    def _free(self, partitions: Iterable[int]) -> None:
        for each in partitions:
            self._holders[each] = None
            self._free_from[each] = self._written.position

    def _drop_silent(self) -> None:
        for name, member in list(self._members.items()):
            if self._clock() - member.heard_at > GONE_S:
                held = self._held_by(name)
                if held:
                    log.warning(
                        "member lost: its jobs are given to others", member=name, partitions=len(held)
                    )
                self._free(held)
                del self._members[name]

    def _held_by(self, name: str) -> list[int]:
        return [number for number, holder in enumerate(self._holders) if holder == name]

    async def _settle_own(self) -> set[int]:
        """What is taken over."""
        term, wanted = self._term, self._wanted()
        if term is None or self._is_ending:
            return set()
        lost = {each for each in self._held_by(self._own) if wanted[each] != self._own}
        if lost:
            self._served -= lost
            term.lose(lost)
            self._free(lost)
            log.info("partitions given up", partitions=sorted(lost))
        gained = {
            each for each in range(PARTITIONS) if self._holders[each] is None and wanted[each] == self._own
        }
        if gained:
            for each in gained:
                self._holders[each] = self._own
            await term.gain(gained, self.holds)
            self._served |= gained
            log.info("partitions taken over", partitions=sorted(gained))
        return gained

    async def _confirm(self, partitions: set[int]) -> None:
        """Of those that were taken over, as long as they are held."""
        while partitions:
            await asyncio.sleep(CONFIRM_S)
            partitions = {each for each in partitions if self._holders[each] == self._own}
            if self._term is None or await self._term.confirm(partitions):
                return

    async def heard(self, report: Report) -> Share | None:
        """The answer to a member; None: this replica does not hold the Lease, or the report is an old one."""
        name = report.member
        known = self._members.get(name)
        is_again = known is not None and report.number <= known.number
        frames = () if is_again else await _read(report)  # first: nothing is known of now after a pause
        epoch = self._epoch()
        if epoch is None or self._term is None:
            return None
        member = self._members.get(name)
        if report.held or report.frames:
            if member is None or report.epoch != epoch:
                return self._answer(epoch, None, name)
        elif member is None:
            member = self._members[name] = _Member(report.address, self._clock())
            log.info("member found", member=name, address=report.address.host)
        if report.number < member.number:
            return None
        member.heard_at, member.address = self._clock(), report.address
        member.is_leaving = report.is_leaving
        if report.number > member.number:
            member.number = report.number
            if not self._take(name, frames):
                self._free(self._held_by(name))
                del self._members[name]
                return self._answer(epoch, None, name)  # pods are told 503
            member.position = self._written.position
            self._free(set(self._held_by(name)) - set(report.held))
        if report.frames and await self._written.stored(member.position, STORED_S):
            member.stored = max(member.stored, report.number)
        if self._epoch() != epoch or self._members.get(name) is not member:
            return None
        if self._written.confirmed >= member.position:
            member.stored = member.number
        return self._answer(epoch, member, name)

    def _answer(self, epoch: int, member: _Member | None, name: str) -> Share:
        wanted = self._wanted()
        given: list[int] = []
        if member is not None and not member.is_leaving and not self._is_ending:
            for each in range(PARTITIONS):
                is_free = self._holders[each] is None and self._written.confirmed >= self._free_from[each]
                if is_free and wanted[each] == name:
                    self._holders[each] = name
            given = [each for each in self._held_by(name) if wanted[each] == name]
        names = list(self._members)
        places = {name: place for place, name in enumerate(names[: NOBODY - 1])}
        return Share(
            epoch=epoch,
            is_known=member is not None,
            partitions=given,
            after=self._written.sequence,
            stored=0 if member is None else member.stored,
            addresses=[self._members[each].address for each in names],
            owners=bytes(places.get(holder or "", NOBODY) for holder in self._holders),
        )

    def _take(self, name: str, frames: Sequence[Frame] | None) -> bool:
        """What a member has found out. False if some of it does not count: it cannot be read, or is of a
        partition that the member does not hold."""
        term, is_right = self._term, frames is not None
        if not frames or term is None:
            return is_right
        for frame in frames:
            ref = frame.document.job.ref if isinstance(frame, Changed) else getattr(frame, "ref", None)
            if ref is None or self._holders[partition_of_job(ref)] != name:
                log.error("report of a member refused: it does not own the job", member=name, job=str(ref))
                is_right = False
                continue
            match frame:
                case Changed():
                    self._log.put(frame.document)
                    term.taken(frame.document)
                case Advanced():
                    self._log.apply_state(frame.ref, frame.state, frame.points)
                case Gone():
                    term.gone(frame.ref)
                    self._log.delete(frame.ref)
        return is_right


async def _read(report: Report) -> Sequence[Frame] | None:
    """What the report has found out, read in slices; None if it cannot be read."""
    if not report.frames:
        return ()
    reader, frames = FrameReader(), list[Frame]()
    try:
        async for frame in in_slices(
            frame for piece in decompress(report.frames) for frame in reader.feed(piece)
        ):
            frames.append(frame)
    except BadFrame as error:
        log.error("report of a member cannot be read", member=report.member, reason=str(error))
        return None
    return frames
