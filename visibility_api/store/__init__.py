"""Latest documents, their revisions and the change feed.

`Store` is what the API reads through; `memory` is the store of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from visibility_api.progress.summary import JobProgress

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One document at one revision, with its encoded forms, each made once and shared by all readers."""

    document: JobProgress
    revision: int
    created_revision: int  # the revision at which this name first appeared in this process
    _encoded: dict[str, bytes] = field(default_factory=dict, repr=False)

    def encoded(self, form: str, encode: Callable[[Entry], bytes]) -> bytes:
        """The bytes of this entry in `form`, made by `encode` at the first call."""
        body = self._encoded.get(form)
        if body is None:
            body = self._encoded[form] = encode(self)
        return body


@dataclass(slots=True, kw_only=True, eq=False)
class Change:
    """One step of a resource's history; DELETED has the last content at the deletion's revision (W13)."""

    type: ChangeType
    entry: Entry
    previous: Entry | None  # None for ADDED
    _encoded: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def revision(self) -> int:
        return self.entry.revision

    def encoded(self, form: str, encode: Callable[[Change], bytes]) -> bytes:
        """The bytes of this event in `form`, made once for all watchers."""
        body = self._encoded.get(form)
        if body is None:
            body = self._encoded[form] = encode(self)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A consistent state of one resource: its entries at `revision`, by namespace, then name (L14)."""

    revision: int
    entries: Sequence[Entry]


class RevisionExpired(Exception):
    """The asked revision is older than what is held, or of another process: 410 (W6, L9)."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class RevisionTooLarge(Exception):
    """The asked revision lies ahead of this store: 504 with cause ResourceVersionTooLarge (L8)."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"Too large resource version: {asked}, current: {current}")
        self.asked = asked
        self.current = current


class Feed(Protocol):
    """One watcher's bounded queue of changes.

    Async context-free: call `close` when done. A watcher that falls more than its bound behind is cut
    (`is_cut`), the others never wait for it (W20).
    """

    @property
    def is_cut(self) -> bool: ...

    async def next_batch(self) -> Sequence[Change]:
        """All queued changes in order, at least one; waits for the first. Empty only when cut or closed."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """What the API reads. Never spans an `await` while it changes, so readers need no lock."""

    @property
    def revision(self) -> int:
        """The newest revision of all resources together."""
        ...

    @property
    def base_revision(self) -> int:
        """Changes after this revision are held; a watch may start at it or later."""
        ...

    def get(self, resource: str, namespace: str, name: str) -> Entry | None: ...

    def list(self, resource: str, namespace: str | None = None) -> Listing:
        """Every entry of the resource, or of one namespace of it."""
        ...

    def watch(self, resource: str, since: int) -> Feed:
        """Changes of the resource after `since`, replayed from history, then live.

        Raises RevisionExpired for a revision before the history or after `revision` (not ours: L9).
        """
        ...
