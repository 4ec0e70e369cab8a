"""An informer's reflector, as client-go's: it lists, watches, and lists anew when it is told to (W19).

It holds what it was told and nothing else, and every event must be possible after what it holds: a change
that was missed or came twice is an AssertionError at once, not a difference at the end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import aiohttp

Key = tuple[str, str]  # namespace, name
Object = dict[str, Any]

_PAGE = 500  # what client-go asks for; the server may give less or more
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BROKEN = (aiohttp.ClientError, ConnectionError, TimeoutError)


class Cut(Exception):
    """The line was cut by whoever drives the reflector."""


class Relist(Exception):
    """The server no longer has what follows our revision."""


class Reflector:
    """Follows one list path. `streams_lists`: begins with sendInitialEvents, as client-go from 1.35 on (W7).

    `allow_bytes` says how many bytes of bodies may still arrive before the line is cut, wherever that is:
    between two events, in one, in a page of a list. None: it is not cut.
    """

    def __init__(
        self, session: aiohttp.ClientSession, path: str, *, streams_lists: bool, selector: str = ""
    ) -> None:
        self.held: dict[Key, Object] = {}
        self.revision = ""  # of the last event, list or bookmark
        self.lists = 0
        self.allow_bytes: int | None = None
        self._session = session
        self._path = path
        self._selector = {"labelSelector": selector} if selector else {}
        self._streams_lists = streams_lists
        self._is_synced = False
        self._is_revision_lost = False  # the server has refused ours: the next list asks for the newest

    async def run_until_cut(self) -> None:
        """Goes on from where it stands until the line breaks; what it holds stays true."""
        try:
            if not self._is_synced:
                await self._sync()
            while True:
                await self._watch()
        except Relist:
            self._is_synced = False
        except (Cut, *_BROKEN):
            pass

    async def run_until(self, revision: int) -> None:
        """Goes on, uncut, until it knows of `revision`, which must be that of the newest change."""
        self.allow_bytes = None
        while not (self._is_synced and int(self.revision) >= revision):
            try:
                if not self._is_synced:
                    await self._sync()
                else:
                    await self._watch(until=revision)
            except Relist:
                self._is_synced = False

    async def _sync(self) -> None:
        self.lists += 1
        try:
            await (self._stream_list() if self._streams_lists else self._list())
        except Relist:
            self._is_revision_lost = True
            raise
        self._is_synced, self._is_revision_lost = True, False

    def _asked_revision(self) -> str:
        """As new as what we have had, so that time never goes backwards; the newest after a refusal."""
        return "" if self._is_revision_lost else self.revision

    async def _list(self) -> None:
        found: dict[Key, Object] = {}
        revision = self._asked_revision() or ("" if self._is_revision_lost else "0")
        query = {"resourceVersion": revision}
        if revision in ("", "0"):
            query["limit"] = str(_PAGE)
        while True:
            async with aclosing(self._read(query)) as parts:
                body = json.loads(b"".join([part async for part in parts]))
            found |= {key_of(item): item for item in body["items"]}
            token = body["metadata"].get("continue")
            if not token:
                break
            query = {"limit": str(_PAGE), "continue": token}
        self.held, self.revision = found, body["metadata"]["resourceVersion"]

    async def _stream_list(self) -> None:
        found: dict[Key, Object] = {}
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._asked_revision(),
            "timeoutSeconds": "300",
        }
        async with aclosing(self._events(query)) as events:
            async for type_, thing in events:
                if type_ == "BOOKMARK":
                    assert thing["metadata"]["annotations"] == {_INITIAL_EVENTS_END: "true"}
                    self.held, self.revision = found, thing["metadata"]["resourceVersion"]
                    return
                assert type_ == "ADDED", f"{type_} among the initial events"
                assert key_of(thing) not in found, f"{key_of(thing)} came twice"
                found[key_of(thing)] = thing
        raise ConnectionError("the stream ended before its closing bookmark")

    async def _watch(self, until: int | None = None) -> None:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.revision,
            "timeoutSeconds": "300",
        }
        async with aclosing(self._events(query)) as events:
            async for type_, thing in events:
                self._take(type_, thing)
                if until is not None and int(self.revision) >= until:
                    return

    def _take(self, type_: str, thing: Object) -> None:
        revision = thing["metadata"]["resourceVersion"]
        if type_ == "BOOKMARK":
            assert int(revision) >= int(self.revision), "a bookmark went back"
            self.revision = revision
            return
        key = key_of(thing)
        assert int(revision) > int(self.revision), f"{key} came twice or out of order"
        assert (key in self.held) is (type_ != "ADDED"), f"{type_} of {key}: something was missed or doubled"
        self.revision = revision
        if type_ == "DELETED":
            del self.held[key]
        else:
            self.held[key] = thing

    async def _events(self, query: dict[str, str]) -> AsyncGenerator[tuple[str, Object], None]:
        rest = b""
        async with aclosing(self._read(query)) as parts:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _refusal(event["object"])
                    yield event["type"], event["object"]

    async def _read(self, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """The body of one answer as it comes, up to the cut."""
        async with self._session.get(self._path, params=query | self._selector) as answer:
            if answer.status != 200:
                raise _refusal(await answer.json())
            try:
                async for part in answer.content.iter_any():
                    allowed = part[: self.allow_bytes]
                    yield allowed
                    if self.allow_bytes is not None:
                        self.allow_bytes -= len(allowed)
                        if not self.allow_bytes:
                            raise Cut
            finally:  # whoever leaves before the end leaves without a word
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()


def key_of(thing: Object) -> Key:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]


def _refusal(status: Object) -> Exception:
    """Relist for what a reflector lists anew for; any other refusal is a fault."""
    causes = {cause.get("reason") for cause in (status.get("details") or {}).get("causes") or []}
    if status["reason"] == "Expired" or "ResourceVersionTooLarge" in causes:
        return Relist(status["message"])
    return AssertionError(f"refused: {status}")
