"""The events of one watch as bytes: what its selection makes of each change, in the form it asked for.

Watches that ask for the same share the bytes, by way of the store's `Batch` and `Listing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visibility_api.api.selectors.selection import Selection
from visibility_api.api.status import RequestError, encode_status
from visibility_api.store import Batch, Change, Entry, Listing

from .forms import Form
from .paging import candidates

_EVENTS_A_SLICE = 100

_Event = tuple[str, Entry]


class EventStream:
    """Encodes for one stream. Every event is one line (W1)."""

    def __init__(self, form: Form, namespace: str | None, selection: Selection) -> None:
        self._form = form
        self._namespace = namespace
        self._selection = selection
        # A string keeps its hash, and thousands of streams look themselves up at every change. The
        # namespace is quoted, or one that is called `None` would read like all of them.
        self._key = f"{form.key} {namespace!r} {selection}"
        # Only the first event of a Table watch says what the columns are (W15), so its bytes are no other's.
        self._is_first = True

    def initial(self, listing: Listing) -> Iterator[bytes]:
        """The state as ADDED events, in slices; `listing` is of the watch's own namespace (W5, W8).

        What others ask for as well is made once, by whoever comes to it first: after a restart all come
        together, and a copy of everything for each would be more than there is memory.
        """
        entries = candidates(listing.entries, self._namespace, self._selection)
        is_shared = self._selection.is_everything and self._form.is_timeless
        slices = listing.kept.setdefault(f"events {self._form.key}", []) if is_shared else []
        for number, start in enumerate(range(0, len(entries), _EVENTS_A_SLICE)):
            if number < len(slices):
                yield slices[number]
                continue
            slice_ = self._added(entries[start : start + _EVENTS_A_SLICE])
            if is_shared:
                slices.append(slice_)
            yield slice_

    def changes(self, batch: Batch) -> bytes:
        """The events a batch of changes makes for this watch; empty when it makes none."""
        if self._is_first and not self._form.is_timeless:
            return self._join(self._events(batch.changes))
        return batch.encoded(self._key, lambda changes: self._join(self._events(changes)))

    def bookmark(self, revision: int, *, ends_initial_events: bool = False) -> bytes:
        """How far the watch has come (W8, W10)."""
        ending = b',"annotations":{"k8s.io/initial-events-end":"true"}' if ends_initial_events else b""
        metadata = b'{"resourceVersion":"%d"%s}' % (revision, ending)
        return b'{"type":"BOOKMARK","object":%s}\n' % self._form.bookmark(metadata)

    def _added(self, entries: Sequence[Entry]) -> bytes:
        """Those of them that match; there may be none."""
        return self._join([("ADDED", entry) for entry in entries if self._selection.matches(entry.document)])

    def _events(self, changes: Sequence[Change]) -> Iterator[_Event]:
        for change in changes:
            if self._namespace is not None and change.entry.document.job.ref.namespace != self._namespace:
                continue
            if self._selection.is_everything:
                yield change.type, change.entry
            elif (event := self._transition(change)) is not None:
                yield event

    def _transition(self, change: Change) -> _Event | None:
        """What a change means to those who see only what their selectors match (W12)."""
        previous, entry = change.previous, change.entry
        matched = previous is not None and self._selection.matches(previous.document)
        if change.type == "DELETED":
            return ("DELETED", entry) if matched else None
        if self._selection.matches(entry.document):
            return ("MODIFIED" if matched else "ADDED"), entry
        if previous is None or not matched:
            return None
        # It leaves with what was last seen of it, at the revision of its leaving (W13).
        return "DELETED", Entry(document=previous.document, revision=change.revision)

    def _join(self, events: Iterator[_Event] | Sequence[_Event]) -> bytes:
        lines = []
        for type_, entry in events:
            shown = self._form.event(entry, is_first=self._is_first)
            lines.append(b'{"type":"%s","object":%s}\n' % (type_.encode(), shown))
            self._is_first = False
        return b"".join(lines)


def error_event(error: RequestError) -> bytes:
    """An ERROR event: its object is a Status in every form of watch (W6, W15)."""
    return b'{"type":"ERROR","object":%s}\n' % encode_status(error)
