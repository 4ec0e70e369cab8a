"""A follower's side of the log in NATS: the bucket and what the stream has since, then what comes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec
import structlog
from isal import isal_zlib

from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.store.job_log import JobLog
from visibility_api.store.memory import EPOCH_BITS, MAX_CHANGES

from .addresses import Address
from .follower import FollowLimits, StaleOwner, Taken, say_behind
from .frames import Advanced, BadFrame, Beat, Changed, Complete, Frame, FrameReader, Hello, Kept, Listed
from .nats_client import Bounds, NatsClient, Refused, Stored, Unavailable
from .nats_log import LOST_S, RETRY_S, Message, Place, decode_entry, decode_message

log = structlog.get_logger("visibility.store")

HISTORY_MESSAGES = 1000  # before what is needed, so that watches resume that other replicas have begun
NOT_READ = "the log in NATS is not read yet"


class MustList(Exception):
    """What this replica has is not what the log says: the message says why."""


class NatsFollower:
    """`run` follows the log; `owner` is whoever has written lately. As `Follower` has it."""

    others_have_log = False  # it is in NATS

    def __init__(
        self,
        jobs: JobLog,
        client: NatsClient,
        place: Place,
        *,
        ended: Callable[[], None] = lambda: None,
        limits: FollowLimits = FollowLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._log = jobs
        self._client = client
        self._place = place
        self._ended = ended
        self._limits = limits
        self.owner: Address | None = None
        self.has_searched = False
        self.must_list = False
        self.lost_at: float | None = None
        self.fault: str | None = NOT_READ  # why the end of the log is not known
        self._is_behind = False
        self._is_listed = False  # memory has what the stream has, up to its place
        self._seen = 0, 0.0  # a sequence at which the log was not whole, and when it was seen first

    @property
    def followed(self) -> tuple[int, int]:
        """The epoch and the sequence up to which memory has what the stream has; zeros: it has something
        else."""
        place = self._place
        return (place.epoch, place.sequence) if self._is_listed and not self._is_behind else (0, 0)

    def forget(self) -> None:
        """What memory has is not from here: it is read anew."""
        self._place.disown()
        self._place.followed.clear()
        self._place.sequence, self._is_listed = 0, False
        self.lost_at, self.fault = time.monotonic(), NOT_READ

    async def is_whole(self) -> bool:
        """Whether NATS has all that is shown here, by its present owner. Raises Unavailable, Refused."""
        shown, found = self._log.store.revision, await self._client.last()
        last = None if found is None else decode_message(found.body)
        return last is not None and last.is_whole and last.revision >= shown

    async def run(self) -> None:
        """Never raises for what NATS does, or has."""
        self.lost_at, self.fault = time.monotonic(), NOT_READ
        if self._place.news is not None:  # it has owned the log since
            self._is_behind, self._is_listed = False, True
        try:
            await self._follow_for_ever()
        finally:
            self.fault = NOT_READ  # what comes from now on

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                await self._follow()
            except (Unavailable, Refused) as error:
                self._failed(str(error))
            except MustList as error:
                log.info("log of the jobs is read anew", reason=str(error))
                self.fault, self._place.sequence = NOT_READ, 0
                await asyncio.sleep(RETRY_S)
                continue
            except (BadFrame, StaleOwner, msgspec.MsgspecError, isal_zlib.error) as error:  # type: ignore[misc]
                self._failed(f"the log cannot be read: {error}")
            finally:
                self._lose()
            self._say_if_behind()
            await asyncio.sleep(self._limits.longest_pause_s)

    def _failed(self, fault: str) -> None:
        if fault != self.fault:
            log.warning("log of the jobs not followed", reason=fault)
        self.fault = fault

    def _lose(self) -> None:
        if self.owner is not None:
            self.owner, self.lost_at = None, time.monotonic()
            self._ended()

    def _say_if_behind(self) -> None:
        """Documents that stand still would look like jobs that do. What this replica shows then is its own:
        the log is read anew, unless it goes on writing it itself."""
        if self._is_behind or self.lost_at is None or not self._log.is_complete:
            return
        lost_s = time.monotonic() - self.lost_at
        if lost_s > (LOST_S if self.fault else self._limits.behind_s):
            self._is_behind = True
            why = "from the log in NATS" if self.fault else "from the one that owns the jobs"
            say_behind(self._log, lost_s, why)

    async def _follow(self) -> None:
        """Until an error."""
        place = self._place
        bounds = await self._client.bounds()
        if not place.sequence or not bounds.first - (place.mark is None) <= place.sequence <= bounds.last:
            await self._list(bounds)
        taken, silent_since, epoch = Taken(self._log), time.monotonic(), 0
        is_same = place.mark is None  # the stream has the message that memory ends with
        start = place.sequence + is_same
        async for found in self._client.read(self._client.location.stream, start):
            if found is None:
                if is_same and place.sequence >= bounds.last:
                    self._caught_up()
                if time.monotonic() - silent_since > self._limits.silence_s:
                    self._lose()
                self._say_if_behind()
                continue
            silent_since = time.monotonic()
            message = decode_message(found.body)
            if not is_same:
                before = place.sequence, place.mark
                place.pass_by(message, found.sequence)
                if before != (place.sequence, place.mark):
                    raise MustList("the log in NATS is another one")
                is_same = True
            elif found.sequence != place.sequence + 1:
                raise MustList("messages are missing")
            elif message is None:
                log.warning("message passed by: no server has written it", sequence=found.sequence)
                place.pass_by(None, found.sequence)
            elif message.writer == place.writer and (
                place.confirm(message.number, found.sequence) or not message.frames
            ):
                place.pass_by(message, found.sequence)
            else:
                try:
                    self._take(taken, message, found, is_new=message.epoch != epoch)
                except (BadFrame, StaleOwner) as error:
                    raise MustList(str(error)) from error
                epoch = message.epoch
            if not found.pending:
                self._caught_up()

    def _caught_up(self) -> None:
        if self.fault is not None:
            self.fault = None
            self.has_searched = True
            self._ended()  # the Lease may be free

    def _start_from(self, bounds: Bounds, newest: Stored | None) -> None:
        """What memory has is not what the log has: whoever owns it next writes all anew."""
        place = self._place
        place.disown()
        place.followed.clear()
        if newest is None:
            place.sequence, place.mark = bounds.last, None
        else:
            place.pass_by(decode_message(newest.body), newest.sequence)
        place.is_whole, place.followed_floor, place.origin = False, 1, place.sequence
        self._is_listed = False

    def _take(self, taken: Taken, message: Message, found: Stored, *, is_new: bool) -> None:
        """What another process has written, or this one in an earlier life of its memory."""
        place = self._place
        if place.news is not None and not place.disown():
            raise MustList("another replica has written to it")
        is_anew = place.is_whole and not message.is_whole
        if not self._is_listed and not message.is_whole and self._log.is_complete:
            place.pass_by(message, found.sequence)
            place.origin = found.sequence
            return
        if not self._is_listed or self._is_behind or is_anew:
            raise MustList("what is shown is not what it has")
        if is_new:
            taken.take(Hello(epoch=message.epoch, revision=0, is_resumed=True))
        refs, is_last = set(), False
        for frame in _frames(message.frames):
            taken.take(frame)
            match frame:
                case Changed():
                    refs.add(frame.document.job.ref)
                case Advanced():
                    refs.add(frame.ref)
                case Beat():
                    is_last = frame.is_last
        place.follow(message, found.sequence, refs)
        if is_last:
            self._lose()
        elif self.owner != message.owner:
            self.owner, self.lost_at = message.owner, None
            log.info("following the log in NATS", owner=message.owner.host, epoch=message.epoch)

    # --- the whole

    async def _list(self, bounds: Bounds) -> None:
        """The bucket, and what the stream has since; shown in one step."""
        place, newest = self._place, await self._client.last()
        last = await self._last_of_ours(bounds, newest)
        if self._log.is_complete and (why := self._why_anew(last)) is not None:
            log.error("the next owner writes the log anew from memory", reason=why, place=place.sequence)
            self._start_from(bounds, newest)
            return
        if last is not None and not last.is_whole and self._is_being_written(newest):
            raise Unavailable("the log in NATS is being written anew")
        self._is_listed, place.sequence = False, 0  # until all of it is read
        place.disown()
        place.followed.clear()
        taken, listing, since, epoch = Taken(self._log), Listing(), dict[JobRef, int](), 0
        async for each in self._client.entries():
            if (entry := decode_entry(each.body)) is None:
                continue
            epoch = max(epoch, entry.epoch)
            for frame in _frames(entry.frames):
                if isinstance(frame, Listed):
                    listing.add(frame.document, frame.revision)
                elif isinstance(frame, Kept):
                    since[frame.ref] = entry.sequence
                    taken.take(frame)
        for ref in [each for each in self._log if each not in since and self._log.history(each) is not None]:
            self._log.set_state(ref, None, JobHistory())  # the stream has all of it
        beat = None
        if newest is not None and last is not None:
            beat = await self._list_stream(bounds, newest, last, taken, listing, since)
        else:
            self._start_from(bounds, newest)
        if last is not None or since:
            self._show(taken, listing, epoch if last is None else last.epoch, beat)

    async def _list_stream(
        self,
        bounds: Bounds,
        newest: Stored,
        last: Message,
        taken: Taken,
        listing: Listing,
        since: dict[JobRef, int],
    ) -> Beat | None:
        """Its last beat. `since`: the message at which the bucket has each job."""
        place, beat = Place(self._place.writer), None
        start = max(bounds.first, min(last.floor, newest.sequence - HISTORY_MESSAGES), last.origin + 1)
        async for found in self._client.read(self._client.location.stream, start):
            if found is None:
                continue
            if (message := decode_message(found.body)) is None:
                place.pass_by(None, found.sequence)
            else:
                refs = set[JobRef]()
                for frame in _frames(message.frames):
                    match frame:
                        case Changed():
                            listing.change(frame)
                            refs.add(frame.document.job.ref)
                            if frame.type == "DELETED":
                                taken.forget(frame.document.job.ref)
                        case Advanced() if found.sequence >= last.floor:
                            refs.add(frame.ref)
                            if found.sequence > since.get(frame.ref, 0):
                                taken.take(frame)
                        case Beat():
                            beat = frame
                place.follow(message, found.sequence, refs)
            if found.sequence >= newest.sequence:
                break
        self._place.take_over(place)
        return beat

    async def _last_of_ours(self, bounds: Bounds, newest: Stored | None) -> Message | None:
        """None: the stream has nothing that a server has written."""
        if newest is None:
            return None
        last = decode_message(newest.body)
        if last is None:  # it is foreign: look before it
            async for each in self._client.read(self._client.location.stream, bounds.first):
                if each is not None:
                    last = decode_message(each.body) or last
                    if each.sequence >= newest.sequence:
                        break
        return last

    def _why_anew(self, last: Message | None) -> str | None:
        """Why what memory has takes the place of what NATS has."""
        if last is None:
            return "the log in NATS was lost"
        if last.epoch < self._log.store.epoch or last.revision < self._place.revision:
            return "the log in NATS is older than what is known"
        return None if last.is_whole else "the log in NATS is not whole"

    def _is_being_written(self, newest: Stored | None) -> bool:
        """Of a log that is not whole. When its owner has died, what is there is taken."""
        sequence, now = 0 if newest is None else newest.sequence, time.monotonic()
        if self._seen[0] != sequence:
            self._seen = sequence, now
        return now - self._seen[1] < LOST_S

    def _show(self, taken: Taken, listing: Listing, epoch: int, beat: Beat | None) -> None:
        first = epoch << EPOCH_BITS if beat is None else beat.revision
        for frame in listing.frames(epoch, first):
            taken.take(frame)
        if beat is not None:
            taken.take(beat)
        self._is_behind, self._is_listed = False, True
        if self.lost_at is not None:
            self.lost_at = time.monotonic()  # until now what is shown is what the log has
        log.info("log of the jobs read", jobs=sum(1 for _ in self._log), sequence=self._place.sequence)


class Listing:
    """Works out the oldest state that is known of every job, and each change since.

    `add` is called with each entry, then `change` with each change of the stream, in order; of some, the
    entries have what came of them.
    """

    def __init__(self) -> None:
        self._base: dict[JobRef, tuple[int, JobProgress]] = {}  # at `_revision`, in the end
        self._changes: deque[Changed] = deque()
        self._seen: set[JobRef] = set()  # jobs that a change was of
        self._revision = 0

    def add(self, document: JobProgress, revision: int) -> None:
        self._base[document.job.ref] = revision, document

    def change(self, change: Changed) -> None:
        ref = change.document.job.ref
        if ref not in self._seen:
            self._seen.add(ref)
            known = self._base.get(ref)
            if change.type == "ADDED":
                self._base.pop(ref, None)
            elif known is None or known[0] >= change.revision:
                # What it was before is not known: no state before this one can be shown.
                self._settle(change.revision)
                self._set(change)
                return
        self._changes.append(change)
        if len(self._changes) > MAX_CHANGES:
            self._set(self._changes.popleft())

    def frames(self, epoch: int, newest: int) -> Iterator[Frame]:
        """All of it, as an owner would list it."""
        self._settle(max((revision for revision, _ in self._base.values()), default=0))
        base = self._revision or (self._changes[0].revision - 1 if self._changes else newest)
        yield Hello(epoch=epoch, revision=base, is_resumed=False)
        for revision, document in self._base.values():
            yield Listed(revision=revision, document=document)
        yield from self._changes
        yield Complete()

    def _settle(self, revision: int) -> None:
        """Nothing before this revision is shown."""
        self._revision = max(self._revision, revision)
        while self._changes and self._changes[0].revision <= self._revision:
            self._set(self._changes.popleft())

    def _set(self, change: Changed) -> None:
        self._revision = max(self._revision, change.revision)
        if change.type == "DELETED":
            self._base.pop(change.document.job.ref, None)
        else:
            self._base[change.document.job.ref] = change.revision, change.document


def _frames(compressed: bytes) -> Iterable[Frame]:
    return FrameReader().feed(isal_zlib.decompress(compressed)) if compressed else ()
