"""A reflector for one collection: list, watch, bookmarks, relist on 410, back-off, a limit for silence.

Decodes each object to the few fields of `kind` and passes it on; stores nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec
import structlog

from .client import JSON, KubeClient
from .decoding import (
    UNDECODABLE,
    ErrorStatus,
    Identified,
    ListMeta,
    ListPage,
    Versioned,
    WatchEvent,
    decode,
)
from .errors import ApiError, ClusterError, TooLarge, Unreachable
from .slices import SLICE_S, in_slices

log = structlog.get_logger("visibility.watch")

T = TypeVar("T", bound=msgspec.Struct)

PAGE = 500  # objects per list request, as in client-go (tools/pager/pager.go: defaultPageSize)
# `timeoutSeconds`, as in client-go's reflector (tools/cache/reflector.go: minWatchTimeout); spread, so that
# the streams do not end together.
WATCH_TIMEOUT_S = (290, 590)
SILENCE_S = 180  # bookmarks arrive every minute; a stream on which nothing arrives for three is dead


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """How long a watch waits before it tries again, and how much it reads at once."""

    # As in client-go's reflector (tools/cache/reflector.go: NewReflectorWithOptions).
    first_delay_s: float = 0.8
    longest_delay_s: float = 30.0
    absent_delay_s: float = 30.0  # the resource is not served; its CRD may be created later
    page_bytes: int = 32 * 1024 * 1024  # one object alone always fits: etcd limits it to 1.5 MiB
    at_once_bytes: int = 4 * 1024 * 1024  # of a page that is decoded in one piece: 500 objects of 8 KiB
    slice_s: float = SLICE_S  # of reading a page, before other tasks get to run


@dataclass(slots=True, kw_only=True)
class _Listed:
    """The state of one list request, page by page."""

    version: str = ""  # resourceVersion
    objects: int = 0


@dataclass(slots=True, kw_only=True)
class WatchHealth:
    """The state of a watch, for readiness and metrics."""

    synced: bool = False  # a complete list was passed on, or the resource is not served at all
    attempted: bool = False  # synced, or refused for a reason that will not go away soon by itself
    last_error: str = ""


class Backoff:
    """Exponential back-off between consecutive failures."""

    def __init__(self, limits: WatchLimits) -> None:
        self._limits = limits
        self._delay_s = limits.first_delay_s

    def reset(self) -> None:
        self._delay_s = self._limits.first_delay_s

    def wait_s(self, *, lasted_s: float) -> float:
        """The next delay. `lasted_s`: how long the connection worked before this failure.

        One that worked for long resets the back-off: a proxy may cut every stream after some minutes.
        """
        longest_s = self._limits.longest_delay_s
        if lasted_s > longest_s:
            self.reset()
        wait_s, self._delay_s = self._delay_s, min(self._delay_s * 2, longest_s)
        return wait_s


class Watch(Generic[T]):
    """Follows one collection as long as `run` is running.

    on_list: called with every object of the collection. At its end they replace all that was known before;
    until then it may raise, and the error must pass through. It is read in pages, so that not all objects are
    in memory at once. The callee may yield to other tasks but must not wait for anything else.
    on_event: called with ADDED, MODIFIED or DELETED, and the object after the change (for DELETED before it).
    scope: the namespace of `path`; None: the whole cluster.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        kind: type[T],
        on_list: Callable[[AsyncIterable[T]], Awaitable[None]],
        on_event: Callable[[Literal["ADDED", "MODIFIED", "DELETED"], T], None],
        label_selector: str = "",
        field_selector: str = "",
        scope: str | None = None,
        limits: WatchLimits = WatchLimits(),
    ) -> None:
        self.path = path
        self.scope = scope
        self._limits = limits
        self.health = WatchHealth()
        self._client = client
        self._object = msgspec.json.Decoder(kind)
        self._page = msgspec.json.Decoder(ListPage[kind])  # type: ignore[valid-type]  # known at run time
        self._raw_page = msgspec.json.Decoder(ListPage[msgspec.Raw])
        self._event = msgspec.json.Decoder(WatchEvent)
        self._on_list = on_list
        self._on_event = on_event
        self._version = ""  # the last resourceVersion passed on; "": list first
        self._selectors = [
            pair for pair in (("labelSelector", label_selector), ("fieldSelector", field_selector)) if pair[1]
        ]

    async def run(self) -> None:
        """Follow the collection until cancelled; retry after every failure."""
        backoff = Backoff(self._limits)
        longest_s = self._limits.longest_delay_s
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                if not self._version:
                    await self._list()
                    backoff.reset()
                await self._follow()
                self._recovered()
                continue
            except ApiError as error:
                if error.status == 410:  # etcd has compacted this version: list again
                    log.info("watch expired", path=self.path)
                    self._version = ""
                    await asyncio.sleep(random.uniform(0, self._limits.first_delay_s))
                    continue
                self._failed(error)
                self.health.attempted = True
                if error.status == 404 and not self.health.synced:  # no CRD, so there are no objects
                    await self._on_list(in_slices(()))
                    self.health.synced = True
                if error.status not in (429, 500, 503):
                    self._version = ""  # for example a version from before a restore of etcd: list again
                if error.status in (404, 403, 401):
                    await asyncio.sleep(self._limits.absent_delay_s if error.status == 404 else longest_s / 3)
                    continue
                wait_s = max(backoff.wait_s(lasted_s=clock() - began), error.retry_after_s or 0.0)
            except (Unreachable, *UNDECODABLE) as error:
                self._failed(error)
                if not isinstance(error, Unreachable):
                    self._version = ""
                wait_s = backoff.wait_s(lasted_s=clock() - began)
            await asyncio.sleep(min(wait_s, longest_s) * random.uniform(0.5, 1.0))

    async def _list(self) -> None:
        """Pass on the whole collection; the watch then starts at its version."""
        seen = _Listed()
        await self._on_list(self._objects(seen))
        self._version = seen.version
        self.health.synced = self.health.attempted = True
        self._recovered()
        log.debug("listed", path=self.path, objects=seen.objects)

    async def _objects(self, seen: _Listed) -> AsyncIterator[T]:
        """Every object, page by page; `seen` is updated meanwhile.

        A continue token that expires between two pages is a 410 as well, so `run` lists again.
        """
        token, limit = "", PAGE
        while True:
            query = [*self._selectors, ("limit", str(limit))]
            if token:
                query.append(("continue", token))
            try:
                body = await self._client.get(
                    self.path,
                    query=query,
                    timeout_s=60.0,
                    max_bytes=self._limits.page_bytes,
                    accept=JSON,
                )
            except TooLarge:  # a few large objects must not block all others
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            page, objects = await self._read_page(body)
            seen.version = (
                seen.version or page.resourceVersion
            )  # the first page's: a later one could skip changes
            async for object_ in in_slices(objects, self._limits.slice_s):
                seen.objects += 1
                yield object_
            limit = min(PAGE, limit * 2)
            token = page.cont
            if not token:
                return

    async def _read_page(self, body: bytes) -> tuple[ListMeta, Iterable[T]]:
        """Its metadata, and its objects without those that have a field of an unexpected type.

        In one piece where that takes no longer than a slice or two: it is a third faster. A server may ignore
        `limit`, so a page may be long.
        """
        if len(body) <= self._limits.at_once_bytes:
            with suppress(*UNDECODABLE):
                page = self._page.decode(body)
                return page.metadata, page.items or ()
        raw = await decode(self._raw_page, body)
        read = (self._object_of(item) for item in raw.items or ())
        return raw.metadata, (object_ for object_ in read if object_ is not None)

    async def _follow(self) -> None:
        """Pass on the changes after the last version until the stream ends."""
        timeout_s = random.randint(*WATCH_TIMEOUT_S)
        query = [
            *self._selectors,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(timeout_s)),
        ]
        began = asyncio.get_running_loop().time()
        stream = self._client.lines(self.path, query=query, silence_s=SILENCE_S, accept=JSON)
        async with stream as lines:
            async for line in lines:
                event = await decode(self._event, line)
                self._recovered()
                if event.type == "ERROR":
                    status = msgspec.json.decode(event.object, type=ErrorStatus)
                    raise ApiError(status.code, status.reason, status.message[:500])
                if event.type == "BOOKMARK":
                    self._version = msgspec.json.decode(event.object, type=Versioned).metadata.resourceVersion
                elif event.type in ("ADDED", "MODIFIED", "DELETED"):
                    self._version = msgspec.json.decode(event.object, type=Versioned).metadata.resourceVersion
                    if (changed := self._object_of(event.object)) is not None:
                        self._on_event(event.type, changed)  # type: ignore[arg-type]  # narrowed by `in`
                    elif (former := self._identity_of(event.object)) is not None:
                        self._on_event("DELETED", former)  # what is known of it is outdated
        if asyncio.get_running_loop().time() - began < 1.0:
            raise Unreachable(
                f"GET {self.path}: the watch ended within a second"
            )  # back off, as client-go does

    def _object_of(self, raw: msgspec.Raw) -> T | None:
        """One object; None when a field has an unexpected type: the other objects are still of use."""
        try:
            return self._object.decode(raw)
        except UNDECODABLE:
            log.warning("object skipped: a field has an unexpected type", path=self.path)
            return None

    def _identity_of(self, raw: msgspec.Raw) -> T | None:
        """The object's name, namespace and uid only; None when not even those can be decoded."""
        try:
            return self._object.decode(msgspec.json.encode(msgspec.json.decode(raw, type=Identified)))
        except UNDECODABLE:
            return None

    def _failed(self, error: Exception) -> None:
        # Not a decoder's message, which may quote the object.
        text = (
            str(error) if isinstance(error, ClusterError) else f"undecodable response: {type(error).__name__}"
        )
        if text != self.health.last_error:  # log it when it changes, not at every retry
            log.warning("watch interrupted", path=self.path, error=text)
        self.health.last_error = text

    def _recovered(self) -> None:
        if self.health.last_error:
            log.info("watch resumed", path=self.path)
            self.health.last_error = ""
