"""A follower's side of the log: finds the owner among the other replicas, and takes what it sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
import msgspec
import structlog
from yarl import URL

from visibility_api.errors.text import describe_fault
from visibility_api.history.job_history import restore as restore_history
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.kube.responses import read_start
from visibility_api.store.job_log import JobLog

from .addresses import Address, resolve, split_name
from .frames import (
    ACK,
    Advanced,
    BadFrame,
    Beat,
    Changed,
    Complete,
    Frame,
    FrameReader,
    Hello,
    Kept,
    Listed,
)
from .peer_client import PeerClient
from .streams import PATH

log = structlog.get_logger("visibility.replication")

MAX_PEERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowLimits:
    """Times in seconds."""

    connect_s: float = 2.0
    silence_s: float = 6.0  # the owner says something each second
    first_pause_s: float = 0.1  # between two searches for the owner
    longest_pause_s: float = 1.0
    # Without an owner, until documents say so. Another replica owns the jobs 17 s after the owner has died.
    behind_s: float = 24.0


class Refusal(msgspec.Struct, kw_only=True):
    """The body of a replica that does not own the log: 409."""

    has_log: bool  # it has followed or owned it, so it knows more than one that has just started
    revision: int


class StaleOwner(Exception):
    """Who sends the log has lost the Lease to a later owner."""


class Follower:
    """`run` follows whoever owns the log, for as long as it is running.

    `ended` is called when the owner gives the log up, or its connection is lost: the Lease may be free.
    """

    fault: str | None = None  # the log is where its owner is

    def __init__(
        self,
        jobs: JobLog,
        names: Sequence[str],
        client: PeerClient,
        *,
        port: int,
        ended: Callable[[], None] = lambda: None,
        limits: FollowLimits = FollowLimits(),
    ) -> None:
        self._log = jobs
        self._names = [split_name(name, port) for name in names]
        self._client = client
        self._port = port
        self._ended = ended
        self._limits = limits
        self.owner: Address | None = None  # where pushes are forwarded to; None: not known now
        self.changed = asyncio.Event()  # set when `owner` is known
        self.has_searched = False  # every replica that could be found was asked once
        self.others_have_log = False  # as the last search has shown
        self.must_list = False  # what this replica has may never have reached the others
        self.lost_at: float | None = None  # since when no owner is followed, by time.monotonic; None: one is
        self._is_behind = False  # documents say that no owner is heard

    async def run(self) -> None:
        """Never raises for what another replica does."""
        pause_s = self._limits.first_pause_s
        self.lost_at, self._is_behind = time.monotonic(), False
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            has_followed = await self._search()
            if not self.has_searched:
                self.has_searched = True
                self._ended()
            self._say_if_behind()
            if has_followed and clock() - began > self._limits.longest_pause_s:  # else it may end so again
                pause_s = self._limits.first_pause_s
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, self._limits.longest_pause_s)

    def _say_if_behind(self) -> None:
        """Documents that stand still would look like jobs that do."""
        if self._is_behind or self.lost_at is None or not self._log.is_complete:
            return
        lost_s = time.monotonic() - self.lost_at
        if lost_s < self._limits.behind_s:
            return
        self._is_behind = self.must_list = True
        say_behind(self._log, lost_s, "from the one that owns the jobs")

    async def _search(self) -> bool:
        """Ask each replica in turn, and follow the one that owns the log; whether there was one."""
        others_have_log = False
        for address in await self._addresses():
            try:
                refusal = await self._follow(address)
            except (aiohttp.ClientError, OSError, TimeoutError, BadFrame, StaleOwner) as error:
                log.debug("replica not followed", peer=address.host, **describe_fault(error))
                continue
            if refusal is None:
                return True
            others_have_log |= refusal.has_log
        self.others_have_log = others_have_log
        return False

    async def _addresses(self) -> list[Address]:
        found: set[Address] = set()
        for host, port in self._names:
            with suppress(OSError, UnicodeError, TimeoutError):
                async with asyncio.timeout(self._limits.connect_s):
                    found |= await resolve(host, port, own_port=self._port)
        return sorted(found)[:MAX_PEERS]

    async def _follow(self, address: Address) -> Refusal | None:
        """Take the log of the replica at this address until it ends; or why it does not give it."""
        confirmations: asyncio.Queue[int] = asyncio.Queue()
        since = 0 if self.must_list else self._log.store.revision
        url = URL.build(
            scheme="https", host=address.host, port=address.port, path=PATH, query={"since": str(since)}
        )
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.silence_s
        )
        async with self._client.request(
            "POST", url, data=_confirmations(confirmations), timeout=timeout
        ) as response:
            if response.status != 200:
                body = await read_start(response, 4096)
                if response.status == 409:
                    return msgspec.json.decode(body, type=Refusal)
                raise BadFrame(f"it answers {response.status}")
            reader, taken = FrameReader(), Taken(self._log)
            try:
                async for chunk in response.content.iter_any():
                    for frame in reader.feed(chunk):
                        taken.take(frame)
                        if isinstance(frame, Beat) and taken.is_complete:
                            confirmations.put_nowait(frame.position)
                            if self.owner is None:
                                self._found(address)
                            if frame.is_last:
                                log.info("owner of the log gives it up", peer=address.host)
                                return None
            except (aiohttp.ClientError, OSError, TimeoutError, BadFrame) as error:
                if not taken.is_complete:
                    raise
                log.info("owner of the log lost", peer=address.host, **describe_fault(error))
            finally:
                was_following, self.owner = self.owner is not None, None
                self.changed.clear()
                if was_following:
                    self.lost_at = time.monotonic()
                    self._ended()
        return None

    def _found(self, address: Address) -> None:
        self.must_list = self._is_behind = False
        self.lost_at = None
        self.owner = address
        self.changed.set()
        log.info("following the owner of the log", peer=address.host, port=address.port)


def say_behind(jobs: JobLog, lost_s: float, source: str) -> None:
    """Show every document as old: nothing was heard from its source for so long."""
    now = datetime.now(UTC)
    heard_at = now - timedelta(seconds=lost_s)
    jobs.store.branch(lambda document: document.as_of(heard_at, now, source))
    log.warning(
        "documents are shown as old: no owner of the log is heard", source=source, lost_s=round(lost_s)
    )


class Taken:
    """Puts the frames of one stream into the log. Raises StaleOwner, BadFrame."""

    def __init__(self, jobs: JobLog) -> None:
        self._log = jobs
        self._base: int | None = None  # of the list of documents, while it comes
        self._listed: list[tuple[int, JobProgress]] = []
        self._changes: list[Changed] = []  # since then
        self._kept: set[JobRef] = set()
        self.is_complete = False

    def take(self, frame: Frame) -> None:
        try:
            self._take(frame)
        except ValueError as error:
            raise BadFrame(str(error)) from error

    def forget(self, ref: JobRef) -> None:
        """It was deleted before what is listed."""
        self._kept.discard(ref)

    def _take(self, frame: Frame) -> None:
        store = self._log.store
        match frame:
            case Hello():
                if frame.epoch < store.epoch:
                    raise StaleOwner(f"epoch {frame.epoch}, but {store.epoch} is known")
                store.is_follower = True
                if not frame.is_resumed:
                    self._base = frame.revision
            case Listed():
                self._listed.append((frame.revision, frame.document))
            case Kept():
                self._kept.add(frame.ref)
                history = None if frame.history is None else restore_history(frame.history)
                self._log.set_state(frame.ref, frame.state, history)
            case Complete():
                self._begin()
                self._log.keep_only(self._kept)
                self._log.is_complete = self.is_complete = True
            case Changed() if self._base is not None:
                self._changes.append(frame)
            case Changed():
                self._change(frame)
            case Advanced():
                self._kept.add(frame.ref)
                self._log.apply_state(frame.ref, frame.state, frame.points)
            case Beat() if self._base is None:
                store.advance(frame.revision, is_mark=True)
                self._log.unlisted = frozenset(frame.unlisted)

    def _begin(self) -> None:
        """What was listed takes the place of what was known, in one step: nobody is shown a part of it."""
        if self._base is None:
            return
        self._log.store.reset(self._base, self._listed)
        self._base, self._listed = None, []
        for change in self._changes:
            self._change(change)
        self._changes = []

    def _change(self, change: Changed) -> None:
        ref = change.document.job.ref
        self._log.store.apply(change.type, change.revision, change.document)
        if change.type == "DELETED":
            self._kept.discard(ref)
            self._log.drop(ref)
        else:
            self._kept.add(ref)


async def _confirmations(queue: asyncio.Queue[int]) -> AsyncIterator[bytes]:
    yield ACK.pack(0)  # aiohttp sends the request's head together with the first piece of its body
    while True:
        yield ACK.pack(await queue.get())
