"""Following a list: what comes next, and what of it is news. No I/O and no clock: sessions drive it.

Each change is told once, however often the connection is cut. After a cut the watch goes on from the last
version that was seen. When the server has forgotten that one (410), the list is compared with what was told.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .errors import ApiError, UnreachableError, refusal
from .requests import JSON, RETRIES, Answer, Call, Pause, Received, failure_of, pause_after

Key = Tuple[str, str]  # namespace and name
Item = Dict[str, Any]  # a document, or a row of a Table with the metadata of one
_EMPTY_PAUSE_S = 1.0  # after a connection that brought nothing, not even a bookmark


@dataclass(frozen=True)
class Event:
    """See `JobEvent` in jobs.py."""

    type: str
    item: Item
    resource_version: Optional[str] = None


class Watching:
    """One watch over any number of connections, of documents or of Tables."""

    def __init__(
        self,
        path: str,
        parameters: Sequence[Tuple[str, str]],
        accept: str = JSON,
        *,
        resource_version: Optional[str] = None,
        known: Sequence[Item] = (),
    ) -> None:
        """`known`: documents that the first list is compared with."""
        self.columns: List[Dict[str, Any]] = []  # of Tables
        self._path = path
        self._parameters = list(parameters)
        self._accept = accept
        self._version = resource_version
        self._told: Dict[Key, Item] = {key_of(item): item for item in known}
        self._has_begun = False  # an answer has come
        self._has_heard = False  # since the last call
        self._failures = 0  # in a row

    def next_call(self) -> Call:
        """A list while no version is known, else a watch from it."""
        self._has_heard = False
        if self._version is None:
            return Call(self._path, self._parameters, self._accept)
        more = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(random.randint(300, 600))),  # as client-go: not all at the same time
        ]
        return Call(self._path, [*self._parameters, *more], self._accept)

    @property
    def is_listing(self) -> bool:
        return self._version is None

    def take_list(self, answer: Answer) -> List[Event]:
        """What differs from what was told."""
        document = answer.json()
        found = {key_of(item): item for item in self._items(document)}
        gone = [key for key in self._told if key not in found]
        events = [Event("DELETED", self._told.pop(key)) for key in gone]
        for key, item in found.items():
            events += self._take(key, item, "ADDED")
        self._succeed()
        return self._advance(document, events)

    def take_line(self, line: bytes) -> List[Event]:
        """The changes that a line of a watch brings. Raises ApiError for an error event."""
        if not line.strip():
            return []
        event = json.loads(line)
        type_, document = event["type"], event["object"]
        if type_ == "ERROR":
            raise refusal(int(document.get("code") or 500), json.dumps(document).encode())
        self._succeed()
        if type_ == "BOOKMARK":
            return self._advance(document, [])
        events: List[Event] = []
        for item in self._items(document):
            if type_ == "DELETED":
                self._told.pop(key_of(item), None)
                events.append(Event(type_, item))
            else:
                events += self._take(key_of(item), item, type_)
        return self._advance(document, events)

    def refuse(self, failure: Union[ApiError, UnreachableError]) -> Pause:
        """What comes before the next call. Raises what another try does not change."""
        if isinstance(failure, ApiError) and failure.code == 410 and self._version is not None:
            self._version = None
            return Pause(0.0)
        pause = pause_after(failure, self._failures)
        # Before the first answer it may be a wrong address; later the server is known to have been there.
        if pause is None or (not self._has_begun and self._failures >= RETRIES):
            raise failure
        self._failures += 1
        return pause

    def end(self, received: Received) -> Pause:
        """A watch has ended in order, or what came was no 200."""
        if not isinstance(received, Answer) or received.code != 200:
            return self.refuse(failure_of(received))
        return Pause(0.0 if self._has_heard else _EMPTY_PAUSE_S * random.uniform(0.5, 1.0))

    def _advance(self, document: Dict[str, Any], events: List[Event]) -> List[Event]:
        """The events of one answer: its version counts from the last one on."""
        before, self._version = self._version, str(document["metadata"]["resourceVersion"])
        versions = [*[before] * (len(events) - 1), self._version]
        return [replace(each, resource_version=version) for each, version in zip(events, versions)]

    def _succeed(self) -> None:
        self._has_begun, self._has_heard, self._failures = True, True, 0

    def _items(self, document: Dict[str, Any]) -> List[Item]:
        """Of a list, or of an event."""
        if "rows" in document:
            self.columns = document.get("columnDefinitions") or self.columns  # later events leave them out
            return document["rows"] or []
        return document.get("items") or [] if "items" in document else [document]

    def _take(self, key: Key, item: Item, type_: str) -> List[Event]:
        known = self._told.get(key)
        self._told[key] = item
        if known is None:
            return [Event(type_, item)]
        before, now = metadata_of(known), metadata_of(item)
        if before["uid"] != now["uid"]:
            return [Event("DELETED", known), Event("ADDED", item)]
        is_news = before["resourceVersion"] != now["resourceVersion"]
        return [Event("MODIFIED", item)] if is_news else []


def metadata_of(item: Item) -> Dict[str, Any]:
    metadata: Dict[str, Any] = (item["object"] if "cells" in item else item)["metadata"]
    return metadata


def key_of(item: Item) -> Key:
    metadata = metadata_of(item)
    return metadata.get("namespace") or "", metadata["name"]
