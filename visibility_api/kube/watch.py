"""A reflector for one collection: list, watch, bookmarks, relist on 410, back-off, a limit for silence.

Decodes each object to the few fields of `kind` and passes it on; stores nothing. An object that is too large
or cannot be decoded is passed on with its metadata alone, and the rest of the collection as ever.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec
import structlog

from visibility_api.flowcontrol.slices import SLICE_S, in_slices

from .client import JSON, KubeClient, Query
from .decoding import (
    UNDECODABLE,
    EventBody,
    EventHead,
    ListMeta,
    ListPage,
    decode,
    truncate_depth,
)
from .errors import ApiError, ClusterError, TooLarge, Unreachable
from .object_reader import TOO_LARGE, UNREADABLE, ObjectReader
from .responses import Oversized
from .separate import SeparateNamespaces

log = structlog.get_logger("visibility.watch")

T = TypeVar("T", bound=msgspec.Struct)

_RAW_PAGE = msgspec.json.Decoder(ListPage[msgspec.Raw])
_RAW_BODY = msgspec.json.Decoder(EventBody[msgspec.Raw])
CHANGES = ("ADDED", "MODIFIED", "DELETED")

PAGE = 500  # objects per list request, as in client-go (tools/pager/pager.go: defaultPageSize)
# `timeoutSeconds`, as in client-go's reflector (tools/cache/reflector.go: minWatchTimeout); spread, so that
# the streams do not end together.
WATCH_TIMEOUT_S = (290, 590)
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
METADATA_S = 10.0  # for the metadata of an object that is not read
SILENCE_S = 180  # bookmarks arrive every minute; a stream without data for three is dead


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """How long a watch waits before it tries again, and how much it reads at once."""

    # As in client-go's reflector (tools/cache/reflector.go: NewReflectorWithOptions).
    first_delay_s: float = 0.8
    longest_delay_s: float = 30.0
    absent_delay_s: float = 30.0  # the resource is not served; its CRD may be created later
    page: int = PAGE  # objects per list request
    page_bytes: int = 32 * 1024 * 1024  # one object alone fits where etcd limits it to 1.5 MiB
    page_commas: int | None = None  # of one page: what many small things take; None: any number
    pages: int | None = None  # of one list
    slice_s: float = SLICE_S  # of reading a page, or events that come at once, before other tasks get to run
    rest_s: float = 0.0  # what other tasks have then at least


# For a server that is not trusted as the cluster's own is: it has a fifth of the event loop at most.
FOREIGN = WatchLimits(page=100, page_bytes=512 * 1024, page_commas=20_000, pages=5_000, rest_s=4 * SLICE_S)


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
    clause: str = ""  # the same for anybody: `ClusterError.clause`
    down_since: float | None = None  # a moment of `time.monotonic`; None while it works

    def is_down(self, for_s: float) -> bool:
        """Whether it has not worked for so many seconds."""
        return self.down_since is not None and time.monotonic() - self.down_since >= for_s


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
    separate: namespaces that this watch leaves out, each with a watch that `run` runs as well.
    mark, count_unread: for objects that are too large or cannot be decoded (`ObjectReader`).
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
        separate: SeparateNamespaces[Watch[T]] | None = None,
        limits: WatchLimits = WatchLimits(),
        mark: Callable[[T, str], T] = lambda object_, _reason: object_,
        count_unread: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.path = path
        self.scope = scope
        self._separate = separate
        self._limits = limits
        self.health = WatchHealth()
        self._client = client
        self._reader = ObjectReader(path, kind, mark=mark, count=count_unread)
        self._on_list = on_list
        self._on_event = on_event
        self._version = ""  # the last resourceVersion passed on; "": list first
        self._was_listed = False
        # The version after which the last stream, and the one before, failed by what it contained.
        self._spoilt = self._failed_at = ""
        self._label_selector, self._field_selector = label_selector, field_selector

    def down_scopes(self, for_s: float) -> Iterator[str | None]:
        """The scopes of this watch and of separate namespaces' that have not worked for so many seconds."""
        if self.health.is_down(for_s):
            yield self.scope
        for watch in self._separate or ():
            yield from watch.down_scopes(for_s)

    def is_down(self, namespace: str) -> bool:
        """Whether what it shows of this namespace, which is in its scope, may be of before."""
        if self.health.down_since is not None:
            return True
        for watch in self._separate or ():
            if watch.scope == namespace and watch.health.down_since is not None:
                return True
        return False

    def reset(self) -> None:
        """Begin anew with the next `run`, as if there had been no watch."""
        self.health = WatchHealth()
        self._version = self._spoilt = self._failed_at = ""
        self._was_listed = False
        if self._separate is not None:
            self._separate.clear()

    async def run(self) -> None:
        """Follow the collection until cancelled; retry after every failure."""
        async with asyncio.TaskGroup() as group:
            await self._run(group)

    async def _run(self, group: asyncio.TaskGroup) -> None:
        backoff = Backoff(self._limits)
        longest_s = self._limits.longest_delay_s
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                if not self._version:
                    await self._list()
                    backoff.reset()
                if (separated := await self._follow()) is not None:
                    log.warning("namespace watched separately", path=separated.path)
                    group.create_task(separated.run(), name=f"watch {separated.path}")
                self._recovered()
                continue
            except ApiError as error:
                if error.status == 410:  # etcd has compacted this version: list again
                    log.info("watch expired", path=self.path)
                    self._version = ""
                    await asyncio.sleep(random.uniform(0, self._limits.first_delay_s))
                    continue
                # A resource or a right that never existed is a state, not a failure.
                self._failed(error, is_down=self._was_listed or error.status not in (403, 404))
                self.health.attempted = True
                if error.status == 404 and not self.health.synced:  # no CRD, so there are no objects
                    await self._on_list(in_slices(()))
                    self.health.synced = True
                if error.status not in (429, 500, 503) or self._fails_again():
                    self._version = ""  # for example a version from before a restore of etcd: list again
                if error.status in (404, 403, 401):
                    await asyncio.sleep(self._limits.absent_delay_s if error.status == 404 else longest_s / 3)
                    continue
                wait_s = max(backoff.wait_s(lasted_s=clock() - began), error.retry_after_s or 0.0)
            except (Unreachable, *UNDECODABLE) as error:
                if isinstance(error, TooLarge):
                    self._spoilt = self._version
                self._failed(error)
                if not isinstance(error, Unreachable) or self._fails_again():
                    self._version = ""
                wait_s = backoff.wait_s(lasted_s=clock() - began)
            await asyncio.sleep(min(wait_s, longest_s) * random.uniform(0.5, 1.0))

    async def _list(self) -> None:
        """Pass on the whole collection; the watch then starts at its version."""
        seen = _Listed()
        await self._on_list(self._objects(seen))
        self._version = seen.version
        self.health.synced = self.health.attempted = self._was_listed = True
        self._recovered()
        log.debug("listed", path=self.path, objects=seen.objects)

    async def _objects(self, seen: _Listed) -> AsyncIterator[T]:
        """Every object, page by page; `seen` is updated meanwhile.

        A continue token that expires between two pages is a 410 as well, so `run` lists again.
        """
        token, limit = "", self._limits.page
        for number in itertools.count(1):
            if number == self._limits.pages:
                raise Unreachable(f"GET {self.path}: the list has more than {number} pages")
            query = [*self._selectors(), ("limit", str(limit))]
            if token:
                query.append(("continue", token))
            try:
                body = await self._page(query, JSON)
                page, objects = await self._reader.page(body)
            except (TooLarge, *UNDECODABLE) as error:  # a few objects must not block all others
                if limit > 1:
                    limit = max(1, limit // 8)
                    continue
                page, objects = await self._metadata_of(
                    query, TOO_LARGE if isinstance(error, TooLarge) else UNREADABLE
                )
            seen.version = (
                seen.version or page.resourceVersion
            )  # the first page's: a later one could skip changes
            await asyncio.sleep(self._limits.rest_s)
            async for object_ in in_slices(objects, self._limits.slice_s, self._limits.rest_s):
                if object_ is not None:
                    seen.objects += 1
                    yield object_
            limit = min(self._limits.page, limit * 2)
            token = page.cont
            if not token:
                return

    async def _page(self, query: Query, accept: str) -> bytes:
        body = await self._client.get(
            self.path, query=query, timeout_s=60.0, max_bytes=self._limits.page_bytes, accept=accept
        )
        if self._limits.page_commas is not None and body.count(b",") > self._limits.page_commas:
            raise TooLarge(f"GET {self.path}: a page has more than {self._limits.page_commas} commas")
        return body

    async def _metadata_of(self, query: Query, reason: str) -> tuple[ListMeta, Iterable[T | None]]:
        """The one object of a page that cannot be read."""
        body = await self._page(query, METADATA_LIST)
        page = await decode(_RAW_PAGE, body)
        return page.metadata, (self._reader.unread_of(item, reason) for item in page.items or ())

    def _selectors(self) -> Query:
        fields = self._field_selector
        if self._separate is not None:
            fields = self._separate.field_selector
        return [
            pair for pair in (("labelSelector", self._label_selector), ("fieldSelector", fields)) if pair[1]
        ]

    async def _follow(self) -> Watch[T] | None:
        """Pass on the changes after the last version until the stream ends, or leaves a namespace out.

        Returns the watch of that namespace.
        """
        timeout_s = random.randint(*WATCH_TIMEOUT_S)
        query = [
            *self._selectors(),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(timeout_s)),
        ]
        began = asyncio.get_running_loop().time()
        stream = self._client.lines(self.path, query=query, silence_s=SILENCE_S, accept=JSON)
        async with stream as lines:
            if not self._spoilt:
                self._recovered()
            turn_began = time.monotonic()
            async for line in lines:
                namespace = await self._take(line)
                self._recovered()
                size = line.size if isinstance(line, Oversized) else len(line)
                if (
                    self._separate is not None
                    and (watch := self._separate.count(namespace, size)) is not None
                ):
                    return watch
                if time.monotonic() - turn_began > self._limits.slice_s:  # hundreds of lines come at once
                    await asyncio.sleep(self._limits.rest_s)
                    turn_began = time.monotonic()
        if asyncio.get_running_loop().time() - began < 1.0:
            raise Unreachable(
                f"GET {self.path}: the watch ended within a second"
            )  # back off, as client-go does
        return None

    async def _take(self, line: bytes | Oversized) -> str:
        """Pass on one event. Returns the namespace of its object."""
        if isinstance(line, Oversized):
            return await self._take_metadata(TOO_LARGE)
        event = None
        with suppress(*UNDECODABLE):
            try:
                event = await self._reader.event(line)
            except RecursionError:
                line = await truncate_depth(line)  # once for all that follows
                event = await self._reader.event(line)
        if event is not None and event.type in CHANGES:
            self._on_event(event.type, event.object)  # type: ignore[arg-type]  # narrowed by `in`
            self._version = event.version or self._version
            return event.namespace
        try:
            head = await self._reader.head(line)
        except UNDECODABLE:
            return await self._take_metadata(UNREADABLE)
        self._raise_error(head)
        if head.type in CHANGES and (changed := await self._reader.body(line)) is not None:
            self._on_event(head.type, changed)  # type: ignore[arg-type]  # narrowed by `in`
        self._version = head.object.metadata.resourceVersion or self._version
        return head.object.metadata.namespace

    async def _take_metadata(self, reason: str) -> str:
        """Pass on the first change after the last version with its metadata alone; as `_take`."""
        self._spoilt = self._version
        query = [
            *self._selectors(),
            ("watch", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", f"{METADATA_S:.0f}"),
        ]
        stream = self._client.lines(self.path, query=query, silence_s=METADATA_S, accept=METADATA)
        async with stream as lines:
            async for line in lines:
                if isinstance(line, Oversized):
                    break
                head = await self._reader.head(line)
                self._raise_error(head)
                if head.type in CHANGES:
                    object_ = (await decode(_RAW_BODY, line)).object
                    if (known := self._reader.unread_of(object_, reason)) is not None:
                        self._on_event(head.type, known)  # type: ignore[arg-type]  # narrowed by `in`
                    self._version = head.object.metadata.resourceVersion
                    return head.object.metadata.namespace
        raise Unreachable(f"GET {self.path}: neither an event nor its metadata can be read")

    def _raise_error(self, head: EventHead) -> None:
        if head.type == "ERROR":
            self._spoilt = self._version
            status = head.object
            code = status.code if isinstance(status.code, int) else 0
            raise ApiError(code, str(status.reason)[:500], str(status.message)[:500])

    def _fails_again(self) -> bool:
        """Whether streams from this version have failed twice by what they contained."""
        again = bool(self._spoilt) and self._spoilt == self._failed_at
        self._failed_at = self._spoilt
        return again

    def _failed(self, error: Exception, *, is_down: bool = True) -> None:
        # Not a decoder's message, which may quote the object.
        text = (
            str(error) if isinstance(error, ClusterError) else f"undecodable response: {type(error).__name__}"
        )
        if is_down and self.health.down_since is None:
            self.health.down_since = time.monotonic()
        if text != self.health.last_error:  # log it when it changes, not at every retry
            log.warning("watch interrupted", path=self.path, error=text)
        self.health.last_error = text
        self.health.clause = error.clause if isinstance(error, ClusterError) else ClusterError.clause

    def _recovered(self) -> None:
        self._spoilt = self._failed_at = ""
        self.health.down_since = None
        if self.health.last_error:
            log.info("watch resumed", path=self.path)
            self.health.last_error = ""
