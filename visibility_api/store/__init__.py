"""Latest documents, their revisions and the change feed.

`Store` is what the API reads through; `memory` is the store of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from visibility_api.jobs.summary import JobProgress

T = TypeVar("T")
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# Jobs of one resource, or of several together, whose names are then qualified (`JobRef.qualified_name`).
Resources = str | frozenset[str]

REACH_S = 3.0  # as kube-apiserver waits for its cache to become as new as requested
MAX_BATCH_CHANGES = 256  # that a watcher is given in one turn
# Of one batch, as estimated in memory: some 60 KiB of JSON. Each watcher that reads slowly may hold another.
MAX_BATCH_BYTES = 128 * 1024
_MAX_FORMS = 64  # of one batch: as many selectors as clients may invent, so as much memory otherwise


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One document at one revision, with its encoded forms, each made once and shared by all readers."""

    document: JobProgress
    revision: int
    _encoded: dict[str, Any] = field(default_factory=dict, repr=False)  # by form, what its encoder returns

    def encoded(self, form: str, encode: Callable[[Entry], T]) -> T:
        """This entry in `form`, made by `encode` at the first call: bytes, or parts of them."""
        body: T | None = self._encoded.get(form)
        if body is None:
            body = self._encoded[form] = encode(self)
        return body


@dataclass(slots=True, kw_only=True, eq=False)
class Change:
    """One step of a resource's history; DELETED has the last content, at the revision of the deletion."""

    type: ChangeType
    entry: Entry
    previous: Entry | None  # None for ADDED
    _left: Entry | None = field(default=None, repr=False)

    @property
    def revision(self) -> int:
        return self.entry.revision

    def left(self) -> Entry | None:
        """The previous content at this revision: what a watch shows whose selectors match no longer. The
        same object for all watches, so that it is encoded once."""
        if self._left is None and self.previous is not None:
            self._left = Entry(document=self.previous.document, revision=self.revision)
        return self._left


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Changes that follow one another; watchers that stand at the same place are given the same object."""

    changes: Sequence[Change] = ()
    _encoded: dict[Hashable, bytes] = field(default_factory=dict, repr=False)
    _lines: dict[tuple[str, str, int], bytes] = field(default_factory=dict, repr=False)

    def line(self, form: str, type_: str, entry: Entry, encode: Callable[[str, Entry], bytes]) -> bytes:
        """One event in `form`, made once for all watchers, whatever their selectors."""
        key = form, type_, entry.revision
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = encode(type_, entry)
        return line

    def encoded(self, form: Hashable, encode: Callable[[Sequence[Change]], bytes]) -> bytes:
        """All of it joined in `form`, made once for every watcher that wants that form."""
        body = self._encoded.get(form)
        if body is None:
            body = encode(self.changes)
            if len(self._encoded) < _MAX_FORMS:
                self._encoded[form] = body
        return body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listing:
    """A consistent state of some resources: their entries at `revision`, by namespace, then name,
    as kube-apiserver lists them.

    While nothing changes, every caller is given the same object. What readers make of it can be kept in
    `kept`, under a key that names the form.
    """

    revision: int
    entries: Sequence[Entry]
    kept: dict[Hashable, list[tuple[bytes, int]]] = field(default_factory=dict, repr=False)


class RevisionExpired(Exception):
    """The requested revision is older than what is held, or of another process: 410 Expired, after which
    clients list anew (https://kubernetes.io/docs/reference/using-api/api-concepts/#410-gone-responses)."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Feed(Protocol):
    """One watcher's place in the history. Call `close` when done.

    A watcher that falls further behind than the history reaches is cut (`is_cut`), as kube-apiserver cuts
    slow watchers: it resumes from its last revision. The others never wait for it.
    """

    @property
    def revision(self) -> int:
        """Everything up to it has been handed out: what a bookmark may contain."""
        ...

    @property
    def is_cut(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    async def next_batch(self, at_most: int = MAX_BATCH_CHANGES) -> Batch:
        """The changes that are due, in order; waits for the first. Empty when cut, closed or interrupted."""
        ...

    def charge(self, spent_s: float) -> None:
        """This watcher has kept the event loop for so long: its client is woken the later, others are not."""
        ...

    def interrupt(self) -> None:
        """Makes the present or next `next_batch` return at once, so that its caller can do something else."""
        ...

    def close(self) -> None:
        """Ends the feed: `next_batch` returns an empty batch from now on. May be called again."""
        ...


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

    async def reach(self, revision: int, timeout_s: float = REACH_S) -> bool:
        """Wait until `revision` is held; at once for one that is: another replica may have given it out."""
        ...

    def get(self, resource: str, namespace: str, name: str) -> Entry | None: ...

    def list(self, resources: Resources, namespace: str | None = None, *, at: int | None = None) -> Listing:
        """Every entry of the resources, or of one namespace of them, now or as it was at revision `at`.

        Raises RevisionExpired when that state is no longer held, or is of another process.
        """
        ...

    def watch(self, resources: Resources, since: int, client: Hashable = None) -> Feed:
        """Changes after `since`, replayed from history, then live; of all resources when several are named.
        The watches of one client share its part of the wake-ups; None: one of its own.

        Raises RevisionExpired for a revision before the history or after `revision`, which is of
        another process.
        """
        ...
