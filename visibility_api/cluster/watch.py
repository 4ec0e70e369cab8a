"""Keeping up with one collection: list, watch, bookmark, relist on 410, back off, distrust silence.

Decodes each object to the few fields of `kind` and hands it on; keeps nothing itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec
import structlog

from .client import KubeClient
from .errors import ApiError, ClusterError, Unreachable

log = structlog.get_logger("visibility.watch")

T = TypeVar("T", bound=msgspec.Struct)

PAGE = 500  # objects a list request asks for at once, as client-go's pager
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


class _ErrorStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(slots=True, kw_only=True)
class WatchHealth:
    """What readiness and metrics may know of a watch."""

    synced: bool = False  # a whole list was handed on at least once
    attempted: bool = False  # synced, or refused in a way that waiting will not mend soon
    relists: int = 0
    last_error: str = ""


class Watch(Generic[T]):
    """One collection, followed for ever by `run`.

    on_list: every object of the collection, replacing all that was known.
    on_event: ADDED, MODIFIED or DELETED with the object after the change (before it, for DELETED).
    Both are plain functions: a watch never waits for its reader.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        kind: type[T],
        on_list: Callable[[Sequence[T]], None],
        on_event: Callable[[Literal["ADDED", "MODIFIED", "DELETED"], T], None],
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        self.path = path
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
        delay_s = FIRST_DELAY_S
        while True:
            try:
                if not self._version:
                    self._version = await self._list()
                    delay_s = FIRST_DELAY_S
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
                if error.status not in (429, 500, 503):
                    self._version = ""  # whatever it was (a version from before a restore, say), list anew
                if error.status in (404, 403, 401):
                    await asyncio.sleep(ABSENT_DELAY_S if error.status == 404 else LONGEST_DELAY_S / 3)
                    continue
                wait_s = max(delay_s, error.retry_after_s or 0.0)
            except (Unreachable, msgspec.MsgspecError) as error:
                self._failed(error)
                if isinstance(error, msgspec.MsgspecError):
                    self._version = ""
                wait_s = delay_s
            await asyncio.sleep(min(wait_s, LONGEST_DELAY_S) * random.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    async def _list(self) -> str:
        """Hand on the whole collection, read in pages; return its resourceVersion."""
        objects: list[T] = []
        token = ""
        while True:
            query = [*self._selectors, ("limit", str(PAGE))]
            if token:
                query.append(("continue", token))
            page = self._page.decode(await self._client.get(self.path, query=query, timeout_s=60.0))
            objects.extend(o for item in page.items if (o := self._decode(item)) is not None)
            token = page.metadata.cont
            if not token:
                break
        self._on_list(objects)
        self.health.synced = self.health.attempted = True
        self._recovered()
        log.debug("listed", path=self.path, objects=len(objects))
        return str(page.metadata.resourceVersion)

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
                event = self._event.decode(line)
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
                    if (changed := self._decode(event.object)) is not None:
                        self._on_event(event.type, changed)  # type: ignore[arg-type]  # narrowed by `in`
        if asyncio.get_running_loop().time() - began < 1.0:
            raise Unreachable(f"GET {self.path}: the watch ended within a second")  # do not spin (W9)

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """One object, or None when a field has another type than it should: it must not hide the rest."""
        try:
            return self._object.decode(raw)
        except msgspec.MsgspecError:
            log.warning("object skipped: a field has an unexpected type", path=self.path)
            return None

    def _failed(self, error: ClusterError | msgspec.MsgspecError) -> None:
        # A decoder's message may quote the object; the path of the field it names is all that may be shown.
        text = (
            str(error) if isinstance(error, ClusterError) else f"undecodable object: {type(error).__name__}"
        )
        if text != self.health.last_error:  # say it when it changes, not at every try
            log.warning("watch interrupted", path=self.path, error=text)
        self.health.last_error = text

    def _recovered(self) -> None:
        if self.health.last_error:
            log.info("watch resumed", path=self.path)
            self.health.last_error = ""
