"""Pushes that are passed on share one connection to each other replica: a frame each, and one for its answer.

With a request for each, three replicas took a tenth more CPU at 600 pushes a second (docs/scale.md).
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import aiohttp
import structlog
from starlette.types import Receive, Send
from yarl import URL

from visibility_api.errors.text import describe_fault

from .addresses import Address
from .frames import Answered, BadFrame, FrameReader, Passed, encode
from .peer_client import PeerClient

log = structlog.get_logger("visibility.replication")

PATH = "/replication/pushes"
CONNECT_S = 2.0
IDLE_S = 60.0  # after which the replica that is passed pushes ends a connection
SILENT_S = 1.0  # a replica that has answered none of the pushes of this time may be gone without a word
EARLIER_S = 60.0  # a replica of a version without this path is asked for it again


Respond = Callable[[Answered], None]


class Frames:
    """What is to be sent: all that was added until the connection takes more is one piece."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._wake = asyncio.Event()
        self._is_over = False

    def add(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._wake.set()

    def end(self) -> None:
        self._is_over = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._frames:
                frames, self._frames = self._frames, []
                yield b"".join(frames)
            elif self._is_over:
                return
            else:
                await self._wake.wait()
                self._wake.clear()


class PushStream:
    """To one replica."""

    def __init__(self, client: PeerClient, address: Address) -> None:
        self._client = client
        self._url = URL.build(scheme="https", host=address.host, port=address.port, path=PATH)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Answered | None]] = {}
        self._frames = Frames()
        self._running: asyncio.Task[None] | None = None
        self._heard_at = -math.inf
        self.is_over = self.is_refused = False

    async def exchange(self, push: Passed, within_s: float) -> Answered | None:
        """None: there is no answer."""
        number, loop = next(self._numbers), asyncio.get_running_loop()
        answer: asyncio.Future[Answered | None] = loop.create_future()
        sent_at = loop.time()
        self._waiting[number] = answer
        self._frames.add(encode(Passed(number, push.path, push.client, push.headers, push.body)))
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            if loop.time() - max(sent_at, self._heard_at) >= SILENT_S and self._running is not None:
                self._running.cancel()
            return None
        finally:
            self._waiting.pop(number, None)

    async def run(self) -> None:
        """Until either replica ends it. Never raises for what the other one does."""
        reader, timeout = FrameReader(), aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        loop, self._running = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with self._client.request(
                "POST", self._url, data=aiter(self._frames), timeout=timeout
            ) as response:
                self.is_refused = response.status != 200
                if not self.is_refused:
                    async for chunk in response.content.iter_any():
                        self._heard_at = loop.time()
                        for frame in reader.feed(chunk):
                            if isinstance(frame, Answered):
                                self._answered(frame)
        except (aiohttp.ClientError, OSError, TimeoutError, BadFrame) as error:
            log.debug("pushes not passed on", url=str(self._url), **describe_fault(error))
        except Exception as error:  # of one connection; each push is passed on anew (decision 0005)
            log.error("pushes not passed on", url=str(self._url), **describe_fault(error))
        finally:
            self.end()

    def end(self) -> None:
        self.is_over = True
        self._frames.end()
        for each in self._waiting.values():
            if not each.done():
                each.set_result(None)

    def _answered(self, frame: Answered) -> None:
        answer = self._waiting.get(frame.number)
        if answer is not None and not answer.done():
            answer.set_result(frame)


class PushStreams:
    """One to each replica that pushes are passed on to. `run` owns them."""

    def __init__(self, client: PeerClient) -> None:
        self._client = client
        self._streams: dict[Address, PushStream] = {}
        self._earlier: dict[Address, float] = {}  # until when they are of a version without this path
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """For ever."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await asyncio.Event().wait()
        finally:
            self._group = None

    def find(self, address: Address) -> PushStream | None:
        """The one to this replica; None: it takes none, or nothing runs."""
        stream = self._streams.get(address)
        if stream is not None and not stream.is_over:
            return stream
        if self._group is None or asyncio.get_running_loop().time() < self._earlier.get(address, 0):
            return None
        stream = self._streams[address] = PushStream(self._client, address)
        self._group.create_task(self._follow(address, stream), name="pushes that are passed on")
        return stream

    async def _follow(self, address: Address, stream: PushStream) -> None:
        try:
            await stream.run()
        finally:
            if self._streams.get(address) is stream:
                del self._streams[address]
        if stream.is_refused:
            self._earlier[address] = asyncio.get_running_loop().time() + EARLIER_S


class ServedStreams:
    """The other end: those on which other replicas pass pushes on to this one."""

    def __init__(self, answer: Callable[[Passed, Respond], Coroutine[Any, Any, None]]) -> None:
        """`answer` calls its second argument with the answer to a push, and raises nothing."""
        self._answer = answer
        self._reading: set[asyncio.Task[None]] = set()

    def end(self) -> None:
        """Take no more. What was taken is answered."""
        for each in self._reading:
            each.cancel()

    async def serve(self, receive: Receive, send: Send) -> None:
        """One of them, of a replica that was recognised."""
        frames = Frames()
        headers = [(b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(frames, send), name="answers to pushes")
            async with asyncio.TaskGroup() as pushes:
                reading = pushes.create_task(self._read(receive, frames, pushes), name="pushes to answer")
                self._reading.add(reading)
                reading.add_done_callback(self._reading.discard)
            frames.end()

    async def _read(self, receive: Receive, frames: Frames, pushes: asyncio.TaskGroup) -> None:
        def respond(answered: Answered) -> None:
            frames.add(encode(answered))

        reader = FrameReader()
        try:
            async for piece in _pieces(receive):
                for frame in reader.feed(piece):
                    if isinstance(frame, Passed):
                        pushes.create_task(self._answer(frame, respond), name="push that was passed on")
        except BadFrame as error:
            log.error("pushes of another replica cannot be read", reason=str(error))


async def _send(frames: Frames, send: Send) -> None:
    async for piece in frames:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Of the body, until it ends or nothing comes for IDLE_S: the sender may be gone without a word."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(IDLE_S):
                message = await receive()
            if message["type"] != "http.request":
                return
            yield message.get("body", b"")
            if not message.get("more_body"):
                return
