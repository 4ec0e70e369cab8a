"""Keeping up with one collection: list, watch, bookmark, relist on 410, back off, distrust silence.

Decodes each object to the few fields of `kind` and hands it on; keeps nothing itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec
import structlog

from .client import KubeClient
from .errors import ApiError, ClusterError, TooLarge, Unreachable
from .shallow import shallow
from .slices import in_slices

log = structlog.get_logger("visibility.watch")

T = TypeVar("T", bound=msgspec.Struct)

PAGE = 500  # objects a list request asks for at once, as client-go's pager
MAX_PAGE_BYTES = 32 * 1024 * 1024  # of a page of one object too, which etcd bounds to 1.5 MiB
WATCH_TIMEOUT_S = (290, 590)  # reflectors ask for 5 to 10 minutes; spread so that streams do not end together
SILENCE_S = 180  # bookmarks come every minute: a stream silent for three is dead
FIRST_DELAY_S, LONGEST_DELAY_S = 0.8, 30.0  # client-go's reflector
ABSENT_DELAY_S = 30.0  # the resource is not served: its CRD may come later


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    cont: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct):
        resourceVersion: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)


class _Identified(msgspec.Struct):
    """What is left of an object whose other fields cannot be read."""

    class Meta(msgspec.Struct):
        name: str
        namespace: str = ""
        uid: str = ""

    metadata: Meta


class _ErrorStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(slots=True, kw_only=True)
class _Listed:
    """What one list has brought so far."""

    version: str = ""  # resourceVersion
    objects: int = 0


@dataclass(slots=True, kw_only=True)
class WatchHealth:
    """What readiness and metrics may know of a watch."""

    synced: bool = False  # a whole list was handed on, or there is none: what is known is all
    attempted: bool = False  # synced, or refused in a way that waiting will not mend soon
    relists: int = 0
    last_error: str = ""


class Backoff:
    """How long to wait after each failure in a row."""

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S

    def reset(self) -> None:
        self._delay_s = FIRST_DELAY_S

    def wait_s(self, *, lasted_s: float) -> float:
        """The next wait; `lasted_s`: how long it had gone well. What worked for long is no row of failures:
        a proxy may cut every stream after some minutes."""
        if lasted_s > LONGEST_DELAY_S:
            self.reset()
        wait_s, self._delay_s = self._delay_s, min(self._delay_s * 2, LONGEST_DELAY_S)
        return wait_s


class Watch(Generic[T]):
    """One collection, followed for ever by `run`.

    on_list: every object of the collection, replacing all that was known once it has come to its end; before
    that it may break off, with an error that must be let through. Read in pages, so that never all of it is
    held at once. The reader may pause, but waits for nobody.
    on_event: ADDED, MODIFIED or DELETED with the object after the change (before it, for DELETED). A plain
    function: a watch never waits for its reader.
    scope: the namespace that `path` is within; None = the whole cluster.
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
    ) -> None:
        self.path = path
        self.scope = scope
        self.health = WatchHealth()
        self._client = client
        self._object = msgspec.json.Decoder(kind)
        self._page = msgspec.json.Decoder(_Page)
        self._event = msgspec.json.Decoder(_Event)
        self._on_list = on_list
        self._on_event = on_event
        self._version = ""  # the last resourceVersion handed on; "" = list first
        self._selectors = [
            pair for pair in (("labelSelector", label_selector), ("fieldSelector", field_selector)) if pair[1]
        ]

    async def run(self) -> None:
        """Follow the collection until cancelled; every failure is logged once, counted and outlived."""
        backoff = Backoff()
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
                if error.status == 410:  # our version is no longer held: the next round lists
                    log.info("watch expired", path=self.path)
                    self.health.relists += 1
                    self._version = ""
                    await asyncio.sleep(random.uniform(0, FIRST_DELAY_S))
                    continue
                self._failed(error)
                self.health.attempted = True
                if error.status == 404 and not self.health.synced:  # no CRD, so there are no objects either
                    await self._on_list(in_slices(()))
                    self.health.synced = True
                if error.status not in (429, 500, 503):
                    self._version = ""  # whatever it was (a version from before a restore, say), list anew
                if error.status in (404, 403, 401):
                    await asyncio.sleep(ABSENT_DELAY_S if error.status == 404 else LONGEST_DELAY_S / 3)
                    continue
                wait_s = max(backoff.wait_s(lasted_s=clock() - began), error.retry_after_s or 0.0)
            except (Unreachable, *_UNDECODABLE) as error:
                self._failed(error)
                if not isinstance(error, Unreachable):
                    self._version = ""
                wait_s = backoff.wait_s(lasted_s=clock() - began)
            await asyncio.sleep(min(wait_s, LONGEST_DELAY_S) * random.uniform(0.5, 1.0))

    async def _list(self) -> None:
        """Hand on the whole collection; what changes afterwards is asked for from its version on."""
        seen = _Listed()
        await self._on_list(self._objects(seen))
        self._version = seen.version
        self.health.synced = self.health.attempted = True
        self._recovered()
        log.debug("listed", path=self.path, objects=seen.objects)

    async def _objects(self, seen: _Listed) -> AsyncIterator[T]:
        """Every object, page by page; `seen` is kept up to date.

        A token that has expired between two pages (410) ends in a new list, like everything that says 410.
        """
        token, limit = "", PAGE
        while True:
            query = [*self._selectors, ("limit", str(limit))]
            if token:
                query.append(("continue", token))
            try:
                body = await self._client.get(
                    self.path, query=query, timeout_s=60.0, max_bytes=MAX_PAGE_BYTES
                )
            except TooLarge:  # some large objects must not keep all others from us
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            page = await _decode(self._page, body)
            seen.version = seen.version or page.metadata.resourceVersion  # the first is never too new
            # A page is as large as the server likes: some know no limit.
            async for item in in_slices(page.items):
                if (object_ := self._object_of(item)) is not None:
                    seen.objects += 1
                    yield object_
            limit = min(PAGE, limit * 2)
            token = page.metadata.cont
            if not token:
                return

    async def _follow(self) -> None:
        """Hand on changes after the last version until the stream ends, however it does."""
        timeout_s = random.randint(*WATCH_TIMEOUT_S)
        query = [
            *self._selectors,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(timeout_s)),
        ]
        began = asyncio.get_running_loop().time()
        async with self._client.lines(self.path, query=query, silence_s=SILENCE_S) as lines:
            async for line in lines:
                event = await _decode(self._event, line)
                self._recovered()
                if event.type == "ERROR":
                    status = msgspec.json.decode(event.object, type=_ErrorStatus)
                    raise ApiError(status.code, status.reason, status.message[:500])
                if event.type == "BOOKMARK":
                    self._version = msgspec.json.decode(
                        event.object, type=_Versioned
                    ).metadata.resourceVersion
                elif event.type in ("ADDED", "MODIFIED", "DELETED"):
                    self._version = msgspec.json.decode(
                        event.object, type=_Versioned
                    ).metadata.resourceVersion
                    if (changed := self._object_of(event.object)) is not None:
                        self._on_event(event.type, changed)  # type: ignore[arg-type]  # narrowed by `in`
                    elif (former := self._identity_of(event.object)) is not None:
                        self._on_event("DELETED", former)  # what was known of it does not hold any more
        if asyncio.get_running_loop().time() - began < 1.0:
            raise Unreachable(f"GET {self.path}: the watch ended within a second")  # do not spin (W9)

    def _object_of(self, raw: msgspec.Raw) -> T | None:
        """One object, or None when a field has another type than it should: it must not hide the rest."""
        try:
            return self._object.decode(raw)
        except _UNDECODABLE:
            log.warning("object skipped: a field has an unexpected type", path=self.path)
            return None

    def _identity_of(self, raw: msgspec.Raw) -> T | None:
        """An object of the same identity and nothing else; None when not even that can be read."""
        try:
            return self._object.decode(msgspec.json.encode(msgspec.json.decode(raw, type=_Identified)))
        except _UNDECODABLE:
            return None

    def _failed(self, error: Exception) -> None:
        # A decoder's message may quote the object; the path of the field it names is all that may be shown.
        text = (
            str(error) if isinstance(error, ClusterError) else f"undecodable answer: {type(error).__name__}"
        )
        if text != self.health.last_error:  # say it when it changes, not at every try
            log.warning("watch interrupted", path=self.path, error=text)
        self.health.last_error = text

    def _recovered(self) -> None:
        if self.health.last_error:
            log.info("watch resumed", path=self.path)
            self.health.last_error = ""


# What msgspec raises for bytes that are not as they should be; the last one for those nested too deep.
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
D = TypeVar("D")


async def _decode(decoder: msgspec.json.Decoder[D], body: bytes) -> D:
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(await shallow(body))
