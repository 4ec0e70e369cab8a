"""Following a list: what comes next, and what of it is news. No I/O and no clock: both clients drive it.

Each change is told once, however often the connection is cut. After a cut the watch goes on from the last
version that was seen. When the server has forgotten that one (410), the list is compared with what was told.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .errors import ApiError, UnreachableError, refusal
from .jobs import Job
from .requests import RETRIES, Answer, Call, Pause, Received, failure_of, pause_after

Key = Tuple[str, str]
_EMPTY_PAUSE_S = 1.0  # after a connection that brought nothing, not even a bookmark


@dataclass(frozen=True)
class JobEvent:
    """One change. `type` is ADDED, MODIFIED or DELETED; a job that is DELETED is as it was last.

    With `resource_version` a later `watch_jobs` goes on after this change. It is None until the whole list
    has been told, for no version has only a part of it.
    """

    type: str
    job: Job
    resource_version: Optional[str] = None


class Watching:
    """One watch over any number of connections."""

    def __init__(
        self, path: str, parameters: Sequence[Tuple[str, str]], *, resource_version: Optional[str] = None
    ) -> None:
        self._path = path
        self._parameters = list(parameters)
        self._version = resource_version
        self._told: Dict[Key, Job] = {}
        self._has_begun = False  # an answer has come
        self._has_heard = False  # since the last call
        self._failures = 0  # in a row

    def next_call(self) -> Call:
        """A list while no version is known, else a watch from it."""
        self._has_heard = False
        if self._version is None:
            return Call(self._path, self._parameters)
        more = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(random.randint(300, 600))),  # as client-go: not all at the same time
        ]
        return Call(self._path, [*self._parameters, *more])

    @property
    def is_listing(self) -> bool:
        return self._version is None

    def take_list(self, answer: Answer) -> List[JobEvent]:
        """What differs from what was told."""
        document = answer.json()
        found = {_key(item): item for item in document.get("items") or ()}
        gone = [key for key in self._told if key not in found]
        events = [JobEvent("DELETED", self._told.pop(key)) for key in gone]
        for key, item in found.items():
            events += self._take(key, item, "ADDED")
        self._succeed()
        return self._advance(document, events)

    def take_line(self, line: bytes) -> List[JobEvent]:
        """The changes that a line of a watch brings. Raises ApiError for an error event."""
        if not line.strip():
            return []
        event = json.loads(line)
        type_, item = event["type"], event["object"]
        if type_ == "ERROR":
            raise refusal(int(item.get("code") or 500), json.dumps(item).encode())
        self._succeed()
        if type_ == "BOOKMARK":
            return self._advance(item, [])
        key = _key(item)
        if type_ != "DELETED":
            return self._advance(item, self._take(key, item, type_))
        self._told.pop(key, None)
        return self._advance(item, [JobEvent("DELETED", Job.model_validate(item))])

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

    def _advance(self, document: Dict[str, Any], events: List[JobEvent]) -> List[JobEvent]:
        """The events of one answer: its version counts from the last one on."""
        before, self._version = self._version, str(document["metadata"]["resourceVersion"])
        versions = [*[before] * (len(events) - 1), self._version]
        return [replace(each, resource_version=version) for each, version in zip(events, versions)]

    def _succeed(self) -> None:
        self._has_begun, self._has_heard, self._failures = True, True, 0

    def _take(self, key: Key, item: Dict[str, Any], type_: str) -> List[JobEvent]:
        known = self._told.get(key)
        metadata = item["metadata"]
        if known is not None and known.metadata.uid != metadata.get("uid"):
            job = self._told[key] = Job.model_validate(item)
            return [JobEvent("DELETED", known), JobEvent("ADDED", job)]
        if known is not None and known.metadata.resource_version == metadata.get("resourceVersion"):
            return []
        job = self._told[key] = Job.model_validate(item)
        return [JobEvent(type_ if known is None else "MODIFIED", job)]


def _key(item: Dict[str, Any]) -> Key:
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]
