"""The owner's side of the log: a stream to each follower, and what each of them has confirmed."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog
from starlette.types import Receive, Send

from visibility_api.errors.text import describe_fault
from visibility_api.store.job_log import JobLog

from .frames import ACK, Complete, Hello, Listed, encode
from .news import News

log = structlog.get_logger("visibility.replication")

PATH = "/replication/log"
MAX_FOLLOWERS = 8
BEAT_S = 1.0
GATHER_S = 0.005  # changes that come within this time leave together
LATELY_S = 10.0
CONFIRM_S = 2.0  # a follower that confirms nothing for so long is cut, and waited for no longer
SEND_S = 10.0
PAGE = 32  # jobs between two turns of the event loop


class TooManyFollowers(Exception):
    """One stream too many."""


class NotOwner(Exception):
    """This replica does not own the log, or does not know every job yet."""


class LogStreams:
    """The streams of an owner. `epoch` returns the present one; None while this replica owns nothing."""

    fault: str | None = None  # memory can always be written

    def __init__(self, jobs: JobLog, *, epoch: Callable[[], int | None]) -> None:
        self._log = jobs
        self._epoch = epoch
        self._streams: set[_Stream] = set()
        self._lost_at = -math.inf  # when the last of those that had everything has gone

    @property
    def followers(self) -> int:
        """How many have everything."""
        return sum(each.is_in_sync for each in self._streams)

    async def followed(self, within_s: float) -> bool:
        """Whether a follower has everything, within so many seconds if there was one until lately."""
        loop = asyncio.get_running_loop()
        until = min(loop.time() + within_s, self._lost_at + LATELY_S)
        while not self.followers and loop.time() < until:  # noqa: ASYNC110 - the end of a term, once
            await asyncio.sleep(0.05)
        return bool(self.followers)

    async def replicated(self) -> bool:
        """Until every follower that is in sync has confirmed what was written so far, or was cut. Whether
        none was cut."""
        is_confirmed = True
        for each in list(self._streams):
            if each.is_in_sync:
                is_confirmed &= await each.confirmed()
        return is_confirmed

    async def begin(self, epoch: int) -> bool:  # noqa: ARG002 - as a shared log has it
        """Whether this replica may own the log: the Lease alone says so."""
        return True

    async def keep(self) -> None:
        """Until the log cannot be kept any more: each follower's stream keeps itself."""
        await asyncio.Event().wait()

    async def finish(self, release: Callable[[], Awaitable[None]]) -> None:
        """Let the log go with `release`, send what is left, and end the streams."""
        await release()
        for each in list(self._streams):
            each.finish()
        for each in list(self._streams):
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_S):
                    await each.ended.wait()

    def close(self) -> None:
        """End all streams at once."""
        for each in list(self._streams):
            each.cut()

    async def serve(self, since: int, receive: Receive, send: Send) -> None:
        """Stream the log to a follower that has everything up to revision `since`, until either ends.

        Before anything is sent it raises NotOwner or TooManyFollowers.
        """
        epoch = self._epoch()
        if epoch is None or not self._log.is_complete:
            raise NotOwner
        if len(self._streams) >= MAX_FOLLOWERS:
            raise TooManyFollowers
        stream = _Stream(self._log, epoch, since)
        self._streams.add(stream)
        self._log.add_home(stream.news)
        try:
            await stream.run(receive, send)
        finally:
            stream.cut()
            if stream.was_in_sync:
                self._lost_at = asyncio.get_running_loop().time()
            self._log.remove_home(stream.news)
            self._streams.discard(stream)


class _Stream:
    """One follower's."""

    def __init__(self, jobs: JobLog, epoch: int, since: int) -> None:
        self._log = jobs
        self._epoch = epoch
        self.news = News(jobs, since)
        self._confirmed = 0  # counts changes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_last = False
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        self.is_in_sync = self.was_in_sync = False

    # --- of the owner

    async def confirmed(self) -> bool:
        """Whether the follower confirms what was written so far; one that does not is cut."""
        position = self.news.position
        if self._confirmed >= position:
            return True
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((position, done))
        try:
            async with asyncio.timeout(CONFIRM_S):
                await done
        except TimeoutError:
            log.warning("follower cut: it confirms nothing", limit_s=CONFIRM_S)
            self.cut()
        return self._confirmed >= position

    def finish(self) -> None:
        self._is_last = True
        self.news.wake.set()

    def cut(self) -> None:
        self.is_in_sync = False
        self.ended.set()
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)
        for task in self._tasks:
            task.cancel()

    async def run(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with asyncio.TaskGroup() as group:
            for work, name in (
                (self._send_all(send), "log to a follower"),
                (self._read(receive), "confirmations of a follower"),
            ):
                task = group.create_task(_logged(work), name=name)
                task.add_done_callback(lambda _: self.cut())  # neither goes on without the other
                self._tasks.append(task)
        await send({"type": "http.response.body"})

    async def _send_all(self, send: Send) -> None:
        async def write(data: bytes) -> None:
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": data, "more_body": True})

        news = self.news
        async for piece in self._list():
            await write(piece)
        while not self.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await news.wake.wait()
            if not self._is_last:
                await asyncio.sleep(GATHER_S)
            news.wake.clear()
            pieces = news.take(is_last=self._is_last)
            await write(b"".join(pieces))
            if not self.is_in_sync and not news.wake.is_set():
                self.is_in_sync = self.was_in_sync = True
                await write(encode(Complete()) + encode(news.beat()))
            if self._is_last and not news.wake.is_set():
                await self._settled()
                return

    async def _settled(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_S):
                while self._confirmed < self.news.sent:  # noqa: ASYNC110 - the end of a term, once
                    await asyncio.sleep(GATHER_S)

    async def _list(self) -> AsyncIterator[bytes]:
        """`Hello`, and what follows it before the first change."""
        store, news = self._log.store, self.news
        is_resumed = store.knows(news.revision)
        entries = []
        if not is_resumed:
            news.revision, listed = store.log_base()
            entries = [Listed(revision=each.revision, document=each.document) for each in listed]
        yield encode(Hello(epoch=self._epoch, revision=news.revision, is_resumed=is_resumed))
        for start in range(0, len(entries), PAGE):
            yield b"".join(map(encode, entries[start : start + PAGE]))
            await asyncio.sleep(0)
        jobs = list(self._log)
        for start in range(0, len(jobs), PAGE):
            page = jobs[start : start + PAGE]
            for ref in page:
                news.gained.pop(ref, None)  # it is in what is sent now
            yield b"".join(map(news.kept, page))
            await asyncio.sleep(0)
        news.wake.set()

    async def _read(self, receive: Receive) -> None:
        """Take the follower's confirmations until it goes."""
        rest = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            rest += message.get("body", b"")
            whole = len(rest) // ACK.size * ACK.size
            if whole:
                (position,) = ACK.unpack_from(rest, whole - ACK.size)
                rest = rest[whole:]
                self._confirm(position)
            if not message.get("more_body"):
                return

    def _confirm(self, position: int) -> None:
        self._confirmed = max(self._confirmed, min(position, self.news.sent))
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Either end of a connection may go at any time: the follower comes again."""
    try:
        await work
    except Exception as error:
        log.info("stream to a follower ended", **describe_fault(error))
