"""The part of a replica that does not own the log: it watches, probes, evaluates and takes pushes for a
share of the jobs, and reports what it finds out to the one that owns it. It shows all from the log.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import aiohttp
import msgspec
import structlog
from isal import isal_zlib
from yarl import URL

from visibility_api.errors.status import Unavailable
from visibility_api.errors.text import describe_fault
from visibility_api.history.job_history import JobHistory, restore as restore_history
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Addition
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kube.responses import read_start
from visibility_api.store.job_log import JobLog

from .addresses import Address
from .frames import Advanced, Changed, Gone, encode
from .partitions import Report, Share, decode_share, encode_message, partition_of_job
from .peer_client import PeerClient
from .shares import BEAT_S, CONFIRM_S, HOLD_S

log = structlog.get_logger("visibility.replication")

PATH = "/replication/share"
EXCHANGE_S = 2.5
GATHER_S = 0.03  # what comes within this time is one report: it costs a millisecond
STORED_S = 3.0  # a pod waits 5 s for an answer
FOLLOW_CHECK_S = 0.02
LEAVE_S = 3.0
MAX_SHARE_BYTES = 64 * 1024
# That wait to be reported: a second and a half of 3,000 pushes a second. Then one change a job is kept.
MAX_CHANGES, MAX_CHANGE_BYTES = 4096, 16 * 1024 * 1024


class Working(Protocol):
    """The parts that work on the jobs of a share."""

    @property
    def owner(self) -> Tracker: ...

    @property
    def loops(self) -> Sequence[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]: ...

    @property
    def is_ready(self) -> bool:
        """Whether it is known what jobs there are."""
        ...

    async def gain(self, partitions: Collection[int], holds: Callable[[JobRef], bool]) -> None: ...

    def lose(self, partitions: Collection[int]) -> None: ...

    async def confirm(self, partitions: Collection[int]) -> bool: ...


W = TypeVar("W", bound=Working)


def give_back() -> None:
    """What a term kept that has ended: its parts refer to each other, and to all jobs. Without this they
    would stay for good: full collections are as good as never (server.py), and what is frozen is in none."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Outbox:
    """What was found out and not reported yet, each change of a document for itself; a term's log. Beyond
    the limits each job's newer change takes the place of the one before. `state`: of a job, as it is now."""

    def __init__(
        self,
        jobs: JobLog,
        state: Callable[[JobRef], bytes | None],
        *,
        max_changes: int = MAX_CHANGES,
        max_bytes: int = MAX_CHANGE_BYTES,
    ) -> None:
        self._log = jobs
        self._state = state
        self._max_changes, self._max_bytes = max_changes, max_bytes
        self._frames: dict[int, bytes] = {}  # in order
        self._numbers = itertools.count()
        self._bytes = 0
        self._last: dict[JobRef, int] = {}  # the frame with the last change of the job
        self._gained: dict[JobRef, list[Addition]] = {}
        self.position = 0  # counts what was found out
        self.wake = asyncio.Event()

    def recall(self, ref: JobRef) -> tuple[bytes | None, JobHistory | None]:
        """What the log has of a job. It goes on to have it."""
        history = self._log.history(ref)
        return self._log.state(ref), None if history is None else restore_history(history.save())

    def put(self, document: JobProgress) -> None:
        ref = document.job.ref
        self._join(ref)
        self._last[ref] = self._add(encode(Changed(type="MODIFIED", revision=0, document=document)))
        self._changed()

    def kept(self, ref: JobRef, points: Sequence[Addition]) -> None:
        self._gained.setdefault(ref, []).extend(points)
        self._changed()

    def delete(self, ref: JobRef) -> None:
        self._last.pop(ref, None)
        self._gained.pop(ref, None)
        self._add(encode(Gone(ref=ref)))
        self._changed()

    def seal(self) -> None:
        """Encode all of it: some of the jobs are given up."""
        gained, self._gained = self._gained, {}
        for ref, points in gained.items():
            try:
                state = self._state(ref)
            except Exception as error:  # about one job; the others go on (decision 0005)
                log.error("state of a job not encoded", job=str(ref), **describe_fault(error))
                state = None
            self._add(encode(Advanced(ref=ref, state=state, points=tuple(points))))

    def take(self) -> bytes:
        """All of it."""
        self.seal()
        frames = b"".join(self._frames.values())
        self.clear()
        return frames

    def clear(self) -> None:
        self._frames.clear()
        self._last.clear()
        self._gained.clear()
        self._bytes = 0

    def _join(self, ref: JobRef) -> None:
        """There are too many changes: leave out the last one of this job, which has another one now."""
        is_full = len(self._frames) >= self._max_changes or self._bytes >= self._max_bytes
        if is_full and (before := self._last.get(ref)) is not None:
            self._bytes -= len(self._frames.pop(before))

    def _add(self, frame: bytes) -> int:
        number = next(self._numbers)
        self._frames[number] = frame
        self._bytes += len(frame)
        return number

    def _changed(self) -> None:
        self.position += 1
        self.wake.set()


class Member(Generic[W]):
    """`run` while another replica owns the log. `term` is there while it works, on jobs that it `holds`."""

    def __init__(
        self,
        name: str,
        jobs: JobLog,
        client: PeerClient,
        build: Callable[[Member[W]], W],
        *,
        holder: Callable[[], Address | None],
        own: Callable[[], Address],
        followed: Callable[[], tuple[int, int]],
        may_work: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`holder`: of the Lease; `own`: where this replica is; `followed`: where it is in the log, by epoch
        and sequence, which begins anew with another stream; zeros: it follows none."""
        self._name, self._log, self._client, self._build = name, jobs, client, build
        self._holder, self._own, self._followed = holder, own, followed
        self._may_work, self._clock = may_work, clock
        self._leave = asyncio.Event()
        self._left = asyncio.Event()
        self._renew = asyncio.Event()
        self._number = 0
        self._epoch = 0
        self._held: dict[int, object] = {}  # partitions, each with what tells this holding from another
        self._worked_on: set[int] = set()  # of those: what others have found out of their jobs is here
        self._served: set[int] = set()
        self._holding = object()  # another one after all was given up without being reported
        self._gains: set[asyncio.Task[None]] = set()
        self._held_until = 0.0
        self._unanswered: Report | None = None
        self._positions: deque[tuple[int, int]] = deque()  # of reports that are not stored: number, position
        self._stored = 0  # position
        self._confirmation = asyncio.Event()
        self._share: Share | None = None
        self.term: W | None = None
        self.outbox = Outbox(jobs, self._state)

    def may_write(self) -> bool:
        """Whether what this replica holds is its own at this moment."""
        return bool(self._held) and self._clock() < self._held_until

    def holds(self, ref: JobRef) -> bool:
        return partition_of_job(ref) in self._worked_on

    def serves(self, partition: int) -> bool:
        return partition in self._served and self.may_write() and not self._leave.is_set()

    def address(self, partition: int) -> Address | None:
        """Of the replica that works on this partition; where that is not known, of the log's owner."""
        share = self._share
        if share is None or (place := share.owners[partition]) >= len(share.addresses):
            return self._holder()
        address = Address(*share.addresses[place])
        return None if address == self._own() else address

    def renew(self) -> None:
        """Begin anew: what the parts were built for has changed."""
        self._renew.set()

    async def leave(self) -> None:
        """Give all up, in order."""
        self._leave.set()
        self.outbox.wake.set()
        if self.term is not None and self._held:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._left.wait()

    async def replicated(self) -> bool:
        """Until what was found out so far is stored. Raises a Status if it is not stored soon."""
        holding, position = self._holding, self.outbox.position
        with suppress(TimeoutError):
            async with asyncio.timeout(STORED_S):
                while self._stored < position and holding is self._holding:
                    self._confirmation.clear()
                    await self._confirmation.wait()
        if self._stored < position or holding is not self._holding:
            raise Unavailable("the log of the jobs cannot be written now; try again later")
        return True

    async def run(self) -> None:
        """For ever."""
        while not self._leave.is_set():
            while not (self._log.is_complete and self._may_work()):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(BEAT_S)
            self._renew.clear()
            await self._work()
            give_back()
        await asyncio.Event().wait()

    async def _work(self) -> None:
        """One term: until it is renewed, or this replica leaves."""
        try:
            self.term = term = self._build(self)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop(), name=name) for name, loop in term.loops]
                reports = group.create_task(self._report_for_ever(term, group), name="reports to the owner")
                renewal = group.create_task(self._renew.wait(), name="renewal")
                await asyncio.wait([reports, renewal], return_when=asyncio.FIRST_COMPLETED)
                for task in (*tasks, reports, renewal):
                    task.cancel()
                self._give_all_up()
        finally:
            self._give_all_up()
            self.term = self._share = None

    # ---

    def _state(self, ref: JobRef) -> bytes | None:
        return None if self.term is None else self.term.owner.state(ref)

    async def _report_for_ever(self, term: W, group: asyncio.TaskGroup) -> None:
        """Until this replica leaves."""
        holder: Address | None = None
        while True:
            if not self._leave.is_set() and self._unanswered is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await self.outbox.wake.wait()
            await asyncio.sleep(GATHER_S)
            self.outbox.wake.clear()
            if self._held and not self.may_write():
                log.warning("partitions given up: no answer from the owner of the log")
                self._give_all_up()
            sent_at = self._clock()
            if (found := self._holder()) is not None or sent_at >= self._held_until:
                holder = found  # else NATS is silent, and the owner of the log is there all the same
            if holder is None or not term.is_ready:
                await asyncio.sleep(BEAT_S)
                continue
            if self._leave.is_set() and self._held:
                self._lose(set(self._held))
            report = self._unanswered = self._unanswered or self._next()
            share = await self._exchange(holder, report)
            if share is None:
                await asyncio.sleep(BEAT_S)
                continue
            self._unanswered = None
            self._answered(term, group, report, share, sent_at)
            if self._left_with(report) and (self._stored >= self.outbox.position or not share.is_known):
                self._left.set()
                return

    def _left_with(self, report: Report) -> bool:
        return self._leave.is_set() and report.is_leaving and not report.held

    def _next(self) -> Report:
        frames = self.outbox.take()
        self._number += 1
        self._positions.append((self._number, self.outbox.position))
        return Report(
            member=self._name,
            number=self._number,
            epoch=self._epoch,
            address=self._own(),
            held=sorted(self._held),
            # Without the log it could take nothing over.
            is_leaving=self._leave.is_set() or self._followed() == (0, 0),
            frames=isal_zlib.compress(frames, 1) if frames else b"",
        )

    async def _exchange(self, holder: Address, report: Report) -> Share | None:
        """The answer; None if there is none."""
        url = URL.build(scheme="https", host=holder.host, port=holder.port, path=PATH)
        timeout = aiohttp.ClientTimeout(total=EXCHANGE_S)
        try:
            async with self._client.request(
                "POST", url, data=encode_message(report), timeout=timeout
            ) as response:
                body = await read_start(response, MAX_SHARE_BYTES)
                return decode_share(body) if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            log.debug("no answer from the owner of the log", **describe_fault(error))
            return None

    def _answered(
        self, term: W, group: asyncio.TaskGroup, report: Report, share: Share, sent_at: float
    ) -> None:
        if not share.is_known or share.epoch != report.epoch:
            self._give_all_up()
            self._epoch = share.epoch
            if not share.is_known or report.frames:
                self._share = None
                return
        self._share = share
        while self._positions and self._positions[0][0] <= share.stored:
            self._stored = self._positions.popleft()[1]
        self._confirmation.set()
        self._held_until = sent_at + HOLD_S
        given = set() if self._leave.is_set() else set(share.partitions)
        if lost := self._held.keys() - given:
            self._lose(lost)
        if gained := {each: object() for each in given - self._held.keys()}:
            self._held |= gained
            gain = self._gain(term, gained, (share.epoch, share.after))
            task = group.create_task(gain, name="jobs taken over")
            self._gains.add(task)
            task.add_done_callback(self._gains.discard)

    async def _gain(self, term: W, gained: dict[int, object], after: tuple[int, int]) -> None:
        def still() -> set[int]:
            return {each for each, token in gained.items() if self._held.get(each) is token}

        while self._followed() < after:
            if not still():
                return
            await asyncio.sleep(FOLLOW_CHECK_S)

        def holds(ref: JobRef) -> bool:
            partition = partition_of_job(ref)
            return partition in gained and self._held.get(partition) is gained[partition]

        self._worked_on |= still()
        await term.gain(still(), holds)
        self._served |= still()
        log.info("partitions taken over", partitions=sorted(still()))
        while True:
            await asyncio.sleep(CONFIRM_S)
            if not (left := still()) or await term.confirm(left):
                return

    def _lose(self, partitions: Collection[int]) -> None:
        """What was found out of their jobs is still reported."""
        log.info("partitions given up", partitions=sorted(partitions))
        for each in partitions:
            self._held.pop(each, None)
        self._worked_on -= set(partitions)
        self._served -= set(partitions)
        if self.term is not None:
            self.outbox.seal()
            self.term.lose(partitions)

    def _give_all_up(self) -> None:
        """Nothing that was not reported counts any more."""
        if self._held:
            self._lose(set(self._held))
        self.outbox.clear()
        self._unanswered, self._share, self._epoch = None, None, 0
        self._positions.clear()
        self._holding, self._stored = object(), self.outbox.position
        for task in self._gains:
            task.cancel()
        self._confirmation.set()
