"""Encodes the events of one watch: those that its selectors match, in the form that was negotiated.

Watches with the same selectors and form share the bytes, by the caches of the store's `Batch` and `Listing`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from visibility_api.errors.status import RequestError, encode_status
from visibility_api.kubeapi.selectors.selection import Selection
from visibility_api.store import Batch, Change, Entry, Listing, Resources

from .forms import Form
from .paging import candidates

# Of initial events: each watcher that reads slowly may hold another slice.
_EVENTS_A_SLICE, _SLICE_BYTES = 100, 64 * 1024
_KEPT_STATES = 4  # whose slices are shared, of all watches of a resource

# Slices of a state, each with the place of the entry after it.
Slices = list[tuple[bytes, int]]

_Event = tuple[str, Entry]


class EventStream:
    """The encoder of one stream. Each event is one line of JSON."""

    def __init__(
        self,
        form: Form,
        resources: Resources,
        namespace: str | None,
        selection: Selection,
        kept: deque[Slices] | None = None,
    ) -> None:
        """`kept`: the slices of the latest states, of all streams of a resource."""
        # Of several resources, the changes of all others are left out.
        self._resources = None if isinstance(resources, str) else resources
        self._kept = deque[Slices]() if kept is None else kept
        self._form = form
        self._namespace = namespace
        self._selection = selection
        # A string caches its hash, and thousands of streams look up the bytes at every change. The namespace
        # is quoted: one that is called `None` must differ from all namespaces.
        self._key = f"{form.key} {sorted(self._resources or ())} {namespace!r} {selection}"
        self.changes_at_once = selection.matched_at_once // 2  # each is matched before and after it
        # The first event of a Table watch has the column definitions, so its bytes are not shared.
        self._is_first = True

    def initial(self, listing: Listing) -> Iterator[bytes]:
        """The current state as ADDED events, in slices; `listing` is of the watch's own namespace.

        Events without selectors are encoded once for all watches: after a restart all clients connect
        together, and a copy of all documents for each would take too much memory. So are Tables, whose ages
        may be as old as in a list.
        """
        entries = candidates(listing.entries, self._namespace, self._selection)
        is_shared = self._selection.is_everything
        slices = self._shared(listing) if is_shared else []
        start = number = 0
        while start < len(entries):
            if number < len(slices):
                self._is_first = False
                slice_, start = slices[number]
            else:
                slice_, start = self._added(entries, start)
                if is_shared and number == len(slices):  # else they have been dropped
                    slices.append((slice_, start))
            number += 1
            yield slice_

    def _shared(self, listing: Listing) -> Slices:
        """The slices that others have encoded, to be continued. Earlier ages and states are dropped."""
        key = self._form.key, self._form.moment()
        slices = listing.kept.get(key)
        if slices is None:
            for other in [each for each in listing.kept if isinstance(each, tuple) and each[0] == key[0]]:
                del listing.kept[other]
            slices = listing.kept[key] = []
            self._kept.append(slices)
            if len(self._kept) > _KEPT_STATES:
                self._kept.popleft().clear()
        return slices

    def changes(self, batch: Batch) -> bytes:
        """The events of a batch of changes for this watch; empty when there are none."""
        if self._is_first and not self._form.is_timeless:
            return self._join(self._events(batch.changes))
        key = self._form.key
        return batch.encoded(
            self._key,
            lambda changes: b"".join([batch.line(key, *each, self._line) for each in self._events(changes)]),
        )

    def bookmark(self, revision: int, *, ends_initial_events: bool = False) -> bytes:
        """A BOOKMARK event; the one that ends the initial events is what `sendInitialEvents` waits for."""
        ending = b',"annotations":{"k8s.io/initial-events-end":"true"}' if ends_initial_events else b""
        metadata = b'{"resourceVersion":"%d"%s}' % (revision, ending)
        return b'{"type":"BOOKMARK","object":%s}\n' % self._form.bookmark(metadata)

    def _added(self, entries: Sequence[Entry], start: int) -> tuple[bytes, int]:
        """A slice of ADDED events of the entries that match, from that place on; and the place after it."""
        lines, size = list[bytes](), 0
        end = min(len(entries), start + min(_EVENTS_A_SLICE, self._selection.matched_at_once))
        for place in range(start, end):
            if self._selection.matches(entries[place].document):
                lines.append(self._line("ADDED", entries[place]))
                size += len(lines[-1])
                if size >= _SLICE_BYTES:
                    end = place + 1
                    break
        return b"".join(lines), end

    def _events(self, changes: Sequence[Change]) -> Iterator[_Event]:
        for change in changes:
            ref = change.entry.document.job.ref
            if self._namespace is not None and ref.namespace != self._namespace:
                continue
            if self._resources is not None and ref.resource not in self._resources:
                continue
            if self._selection.is_everything:
                yield change.type, change.entry
            elif (event := self._transition(change)) is not None:
                yield event

    def _transition(self, change: Change) -> _Event | None:
        """The event of a change by whether the selectors matched before and match now.

        As in `k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`.
        """
        previous, entry = change.previous, change.entry
        matched = previous is not None and self._selection.matches(previous.document)
        if change.type == "DELETED":
            return ("DELETED", entry) if matched else None
        if self._selection.matches(entry.document):
            return ("MODIFIED" if matched else "ADDED"), entry
        left = change.left() if matched else None
        return ("DELETED", left) if left is not None else None

    def _join(self, events: Iterable[_Event]) -> bytes:
        return b"".join([self._line(type_, entry) for type_, entry in events])

    def _line(self, type_: str, entry: Entry) -> bytes:
        shown = self._form.event(entry, is_first=self._is_first)
        self._is_first = False
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), shown)


def error_event(error: RequestError) -> bytes:
    """An ERROR event; its object is a Status in every form of watch."""
    return b'{"type":"ERROR","object":%s}\n' % encode_status(error)
