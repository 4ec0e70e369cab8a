"""The owner's side of the log in NATS: writes what changes to the stream, and each job to the bucket.

A message of the stream is what a follower of an owner would be sent (`frames`). An entry of the bucket is
one job as it was at some message; messages before `floor` are needed no more.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog
from isal import isal_zlib
from msgspec.structs import replace

from visibility_api.errors.status import Unavailable as UnavailableStatus
from visibility_api.jobs.job import JobRef
from visibility_api.store.job_log import Home, JobLog
from visibility_api.store.memory import EPOCH_BITS

from .addresses import Address
from .frames import Listed, encode
from .nats_client import NatsClient, Refused, Unavailable
from .news import News
from .streams import BEAT_S, CONFIRM_S, GATHER_S, LogStreams

log = structlog.get_logger("visibility.store")

STORED_S = 3.0  # a pod waits 5 s for an answer
LOST_S = 10.0  # an owner that could not write for so long owns the log no longer
RETRY_S = 0.2
ENTRY_S = 120.0  # between a job's change and its entry, which has all until then
ENTRY_PAUSE_S = 0.05
MESSAGE_BYTES = 256 * 1024  # of one message, unless one frame is larger
_UNSAFE = re.compile(r"[^-_A-Za-z0-9]")


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of the stream."""

    writer: str  # a process, and which of its messages
    number: int
    epoch: int
    owner: Address  # where pushes are forwarded to
    floor: int  # what was before this sequence is in the bucket
    is_whole: bool  # the bucket has every job that was not changed since
    frames: bytes  # compressed
    revision: int = 0  # of the log, with this message
    origin: int = 0  # the log was written anew after this sequence
    version: int = 1


class KeptEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of the bucket."""

    epoch: int
    sequence: int  # of the stream: what was until then is in it
    frames: bytes  # compressed


Mark = tuple[str, int]  # the writer and the number of a message
# Of what messages and entries have. A later one is for what this version would read wrongly; fields may be
# added at the end of any structure without it. The fields of a message stay where they are.
VERSION = 1
FOREIGN: Mark = "", 0  # of one that no server has written

encode_message = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(Message).decode
_decode_entry = msgspec.msgpack.Decoder(KeptEntry).decode


def decode_message(body: bytes) -> Message | None:
    """None if somebody else has written it. Raises Unavailable for a version that is not known here."""
    try:
        found = _decode_message(body)
    except msgspec.MsgspecError:
        return None
    if found.version > VERSION:
        raise Unavailable(
            f"the log in NATS is of version {found.version}; this replica reads {VERSION} at most: update it"
        )
    return found


def decode_entry(body: bytes) -> KeptEntry | None:
    """None if somebody else has written it."""
    try:
        return _decode_entry(body)
    except msgspec.MsgspecError:
        return None


class Dirty(NamedTuple):
    """Since when a job has changes that its entry lacks."""

    sequence: int
    at: float
    written: int  # bytes, by then


class Place:
    """Where in the stream this replica is: what it has of it, by following and by writing."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.sequence = 0  # everything up to it is in memory
        self.mark: Mark | None = None  # of the message that has this sequence; None: there is none
        self.revision = 0  # of the log there, if memory has come from it
        self.origin = 0
        self.epoch = 0  # of the last message that was followed
        self.is_whole = False
        self.followed: OrderedDict[JobRef, int] = OrderedDict()  # jobs by the last message about each
        self.followed_floor = 1
        # An owner's: jobs whose entries may lack something, by the message that changed each first.
        self.touched: OrderedDict[JobRef, Dirty] = OrderedDict()
        self.being_put: Dirty | None = None
        self.news: News | None = None  # what an owner's memory has and the stream may lack
        self.unsent: deque[Message] = deque()  # the first may be written, without an answer

    @property
    def floor(self) -> int:
        if self.news is None:
            return self.followed_floor if self.followed else self.sequence + 1
        first = next(iter(self.touched.values())).sequence if self.touched else self.sequence + 1
        return first if self.being_put is None else min(first, self.being_put.sequence)

    def confirm(self, number: int, sequence: int) -> bool:
        """A message of this process is found: whether it is the one that is waited for."""
        if not self.unsent or self.unsent[0].number != number:
            return False
        self.revision = max(self.revision, self.unsent.popleft().revision)
        self.sequence, self.mark = sequence, (self.writer, number)
        return True

    def pass_by(self, message: Message | None, sequence: int) -> None:
        """It changes nothing in memory; None: it is foreign."""
        self.sequence, self.mark = sequence, FOREIGN if message is None else (message.writer, message.number)

    def touch(self, ref: JobRef, sequence: int, written: int = 0) -> None:
        self.touched.setdefault(ref, Dirty(sequence, time.monotonic(), written))

    def follow(self, message: Message, sequence: int, refs: Iterable[JobRef]) -> None:
        """What another process has written is in memory."""
        self.pass_by(message, sequence)
        self.is_whole, self.followed_floor, self.revision = message.is_whole, message.floor, message.revision
        self.origin, self.epoch = message.origin, message.epoch
        for ref in refs:
            self.followed[ref] = sequence
            self.followed.move_to_end(ref)
        while self.followed and next(iter(self.followed.values())) < message.floor:
            self.followed.popitem(last=False)

    def take_over(self, read: Place) -> None:
        """What `read` has followed is in memory."""
        self.sequence, self.mark, self.followed = read.sequence, read.mark, read.followed
        self.is_whole, self.followed_floor = read.is_whole, read.followed_floor
        self.revision, self.origin, self.epoch = read.revision, read.origin, read.epoch

    def own(self, news: News) -> None:
        """Memory has what the stream has; from now on this process writes."""
        self.news = news
        self.touched.clear()
        for ref in self.followed:
            self.touch(ref, self.followed_floor)
        self.followed.clear()

    def disown(self) -> bool:
        """Another process has written; whether memory has nothing that the stream lacks."""
        news, self.news = self.news, None
        self.followed.update(dict.fromkeys(self.touched, self.sequence))
        is_same = not self.unsent and (news is None or not news.is_due)
        self.touched.clear()
        self.unsent.clear()
        return is_same


class NatsLog:
    """What the owner of the log does with it: as `LogStreams`, but one log for all."""

    def __init__(
        self, jobs: JobLog, client: NatsClient, place: Place, *, port: int, streams: LogStreams | None = None
    ) -> None:
        """`port`: of this server, for pushes that other replicas forward. `streams`: to replicas that do not
        follow the log in NATS yet, or no longer."""
        self._streams = streams
        self._log = jobs
        self._client = client
        self._place = place
        self._port = port
        self._epoch = 0
        self._version = VERSION
        self._number = 0
        self._written = 0  # bytes
        self._confirmed = 0  # position of the news
        self._confirmation = asyncio.Event()
        self._sending: set[JobRef] = set()  # that are in `unsent`
        self._keys: dict[str, int] = {}  # sequences of the bucket's keys
        self._gone: dict[JobRef, None] = {}
        self._unwritten: set[JobRef] = set()  # the bucket is not whole without them
        self._failing_since: float | None = None
        self._is_over = False  # nothing but the last message is written any more
        self._lock = asyncio.Lock()
        self.fault: str | None = None  # why the log cannot be written now

    # --- a home of the log, beside the news

    def changed(self, ref: JobRef, points: object) -> None:
        """It is in the news."""

    def gone(self, ref: JobRef) -> None:
        self._place.touched.pop(ref, None)
        self._unwritten.discard(ref)
        self._gone[ref] = None

    # ---

    async def followed(self, within_s: float) -> bool:  # noqa: ARG002 - as streams have it
        """Whether another replica can go on: NATS has everything."""
        return self.fault is None

    @property
    def position(self) -> int:
        """Counts changes."""
        return self._place.news.position if self._place.news is not None else 0

    @property
    def confirmed(self) -> int:
        """Changes that are stored."""
        return self._confirmed

    @property
    def sequence(self) -> int:
        """Where what is stored ends."""
        return self._place.sequence

    async def stored(self, position: int, within_s: float) -> bool:
        """Whether what was written until this position is stored, within so many seconds."""
        news = self._place.news

        def is_waiting() -> bool:
            return news is self._place.news and self._confirmed < position

        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while is_waiting():
                    self._confirmation.clear()
                    await self._confirmation.wait()
        return news is not None and news is self._place.news and not is_waiting()

    async def replicated(self) -> bool:
        """Until what was written so far is stored. Raises a Status if it is not stored soon."""
        if not await self.stored(self.position, STORED_S):
            raise UnavailableStatus("the log of the jobs cannot be written now; try again later")
        return self._streams is None or await self._streams.replicated()

    async def begin(self, epoch: int) -> bool:
        """Whether this replica owns the log: no other has written since what it has."""
        place = self._place
        self._epoch, self._is_over = epoch, False
        self._failing_since = None
        first = self._message(b"", epoch << EPOCH_BITS)
        place.unsent.appendleft(first)
        if not await self._append(first):
            if place.unsent and place.unsent[0] is first:
                place.unsent.popleft()
            self.fault = None  # the follower has its own
            return False
        if place.news is None:
            store = self._log.store
            since = store.revision if store.epoch else epoch << EPOCH_BITS  # it begins anew with the epoch
            place.own(News(self._log, since, max_bytes=self._frame_bytes))
            self._confirmed, self._sending = 0, set()
        if not place.is_whole:
            self._unwritten = set(self._every())
            for ref in self._unwritten:
                place.touch(ref, place.sequence)
        for home in self._homes():
            self._log.add_home(home)
        return True

    async def keep(self) -> None:
        """Write until this replica may not, or could not for LOST_S."""
        news = self._place.news
        if news is None:
            return
        news.wake.set()
        async with asyncio.TaskGroup() as group:
            entries = group.create_task(self._keep_entries(news), name="entries of the bucket")
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await news.wake.wait()
                await asyncio.sleep(GATHER_S)
                news.wake.clear()
                if not self._is_over and not await self._write(news):
                    break
            entries.cancel()

    async def finish(self, release: Callable[[], Awaitable[None]]) -> None:
        """Write what is left, let the log go with `release`, and say so."""
        news = self._place.news
        if news is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_S):
                    while news.is_due and await self._write(news):
                        pass
        self._is_over = True
        if self._streams is None:
            await release()
        else:
            await self._streams.finish(release)
        if news is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_S):
                    await self._write(news, is_last=True)

    def close(self) -> None:
        """This replica owns the log no longer."""
        for home in self._homes():
            with suppress(ValueError):
                self._log.remove_home(home)
        if self._streams is not None:
            self._streams.close()
        self._place.being_put = self.fault = None
        self._confirmation.set()

    def _homes(self) -> list[Home]:
        return [self] if self._place.news is None else [self._place.news, self]

    async def _write(self, news: News, *, is_last: bool = False) -> bool:
        """What is new; False when this replica owns the log no longer."""
        place = self._place
        async with self._lock:
            while True:
                is_end = is_last and not place.unsent
                if not place.unsent:
                    before, pieces = news.revision, news.take(is_last=is_last)
                    self._sending = news.taken
                    *parts, last = _parts(pieces)
                    place.unsent.extend(self._message(each, before) for each in parts)
                    place.unsent.append(self._message(last, news.revision))
                for ref in self._sending:
                    place.touch(ref, place.sequence + 1, self._written)
                while place.unsent:
                    if not await self._append(place.unsent[0]):
                        return False
                self._sending = set()
                self._confirmed = news.sent
                self._confirmation.set()
                if is_end or not is_last:
                    return True

    async def _append(self, message: Message) -> bool:
        """Until it is stored; False when that takes too long, or another replica has written."""
        place = self._place
        number, owner = message.number, Address(self._client.own_host, self._port)
        while True:
            try:
                if (why := self._why_full()) is not None:
                    raise Unavailable(why)
                message = replace(
                    message,
                    epoch=self._epoch,
                    owner=owner,
                    floor=place.floor,
                    is_whole=place.is_whole,
                    origin=place.origin,
                    revision=max(message.revision, self._epoch << EPOCH_BITS),
                )
                body = encode_message(message)
                sequence = await self._stored(body, number)
                if not sequence:
                    log.warning("log not written: another replica has written to it", epoch=self._epoch)
                    return False
                break
            except Unavailable as error:
                if not self._is_bearable(str(error)):
                    return False
                await asyncio.sleep(RETRY_S)
        self._written += len(body)
        place.confirm(number, sequence)
        if self.fault is not None:
            log.info("log is written again")
        self.fault = self._failing_since = None
        return True

    async def _stored(self, body: bytes, number: int) -> int:
        """The sequence that it has; 0 if something else was written. Raises Unavailable."""
        try:
            return await self._client.append(body, self._place.sequence)
        except Refused:
            found = await self._client.last()
        last = None if found is None else decode_message(found.body)
        if found is None or last is None or (last.writer, last.number) != (self._place.writer, number):
            return 0
        return found.sequence  # an earlier attempt was stored without an answer

    def _is_bearable(self, fault: str) -> bool:
        """Note that the log cannot be written; whether it is tried again."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if fault != self.fault:
            log.error("log cannot be written, pushes are answered 503", reason=fault)
        self.fault = fault
        self._confirmation.set()
        return now - self._failing_since < LOST_S

    def _why_full(self) -> str | None:
        """What the bucket still lacks must not fall out of the stream, which is limited by size."""
        if not self._place.touched:
            return None
        oldest = next(iter(self._place.touched.values()))
        if oldest.written and self._written - oldest.written > self._client.location.max_bytes / 2:
            return "the bucket is too far behind the stream"
        return None

    def _message(self, frames: bytes, revision: int) -> Message:
        """The rest of it is filled in when it is sent."""
        self._number += 1
        return Message(
            writer=self._place.writer,
            number=self._number,
            epoch=0,
            owner=Address("", 0),
            floor=0,
            is_whole=False,
            frames=isal_zlib.compress(frames, 1) if frames else b"",
            revision=revision,
            version=self._version,
        )

    # --- the bucket

    async def _keep_entries(self, news: News) -> None:
        """For ever. What fails is tried again: the stream has it until then."""
        place = self._place
        is_known = False
        while True:
            try:
                if not is_known:
                    await self._compare_keys()
                    is_known = True
                while self._gone:
                    ref = next(iter(self._gone))
                    await self._purge(self._subject(ref))
                    self._gone.pop(ref, None)
                while (due := self._due(news)) is not None:
                    await self._put(due)
                    place.is_whole |= not self._unwritten  # others may change for ever
                place.is_whole |= not self._unwritten
            except (Unavailable, Refused) as error:
                log.warning("entry of a job not written", reason=str(error))
                is_known = False  # what became of it is looked up
                await asyncio.sleep(BEAT_S)
            await asyncio.sleep(ENTRY_PAUSE_S)

    def _due(self, news: News) -> JobRef | None:
        """The job whose entry is due, of those of which nothing is on its way to the stream."""
        place, now = self._place, time.monotonic()
        for ref, dirty in place.touched.items():
            is_due = now - dirty.at > ENTRY_S or not place.is_whole
            is_due |= self._written - dirty.written > self._client.location.max_bytes / 8
            if not is_due:
                return None
            if ref not in news.gained and ref not in self._sending:
                return ref
        return None

    async def _put(self, ref: JobRef) -> None:
        """Changes of the job that come meanwhile are noted anew. Raises Unavailable, Refused."""
        place, subject = self._place, self._subject(ref)
        frames = isal_zlib.compress(self._entry(ref), 1)
        body = encode_message(KeptEntry(self._epoch, place.sequence, frames))
        dirty = place.being_put = place.touched.pop(ref)
        try:
            if self._has(ref):
                after = self._keys.get(subject, 0)
                self._keys[subject] = await self._client.put(key_of(ref), body, after)
            else:  # it was deleted
                await self._purge(subject)
            self._unwritten.discard(ref)
        except BaseException:
            place.touched[ref] = dirty
            place.touched.move_to_end(ref, last=False)
            raise
        finally:
            place.being_put = None

    async def _compare_keys(self) -> None:
        """Jobs that the bucket has and memory has not were deleted: an earlier owner had no time for it."""
        self._keys = await self._client.keys()
        known = {self._subject(ref) for ref in self._every()}
        for subject in [each for each in self._keys if each not in known]:
            await self._purge(subject)

    async def _purge(self, subject: str) -> None:
        if (at := self._keys.get(subject)) is not None:
            await self._client.purge(subject.removeprefix(self._client.location.key("")), at)
            self._keys.pop(subject, None)

    def _subject(self, ref: JobRef) -> str:
        return self._client.location.key(key_of(ref))

    def _has(self, ref: JobRef) -> bool:
        """Whether memory knows anything of the job."""
        entry = self._log.store.get(ref.resource, ref.namespace, ref.name)
        is_shown = entry is not None and entry.document.job.ref.uid == ref.uid
        return is_shown or self._log.state(ref) is not None or self._log.history(ref) is not None

    def _entry(self, ref: JobRef) -> bytes:
        entry = self._log.store.get(ref.resource, ref.namespace, ref.name)
        listed = b""
        if entry is not None and entry.document.job.ref.uid == ref.uid:
            listed = encode(Listed(revision=entry.revision, document=entry.document), self._frame_bytes)
        return listed + News(self._log, 0, max_bytes=self._frame_bytes).kept(ref)

    @property
    def _frame_bytes(self) -> int:
        return (self._client.max_bytes - 16 * 1024) // 2

    def _every(self) -> list[JobRef]:
        shown = (each.document.job.ref for each in self._log.store.entries())
        return list(dict.fromkeys((*self._log, *shown)))


def key_of(ref: JobRef) -> str:
    return ".".join(_UNSAFE.sub("_", part) for part in (ref.resource, ref.namespace, ref.uid))


def _parts(pieces: list[bytes]) -> list[bytes]:
    """As few messages as may be."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for piece in pieces:
        if size and size + len(piece) > MESSAGE_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(piece)
        size += len(piece)
    return [b"".join(each) for each in parts]
