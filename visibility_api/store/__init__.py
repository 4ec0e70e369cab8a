"""Latest documents, their revisions and the change feed.

`memory.MemoryStore` is what the API reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from visibility_api.jobs.summary import JobProgress

T = TypeVar("T")
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# Jobs of one resource, or of several together, whose names are then qualified (`JobRef.qualified_name`).
Resources = str | frozenset[str]

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
