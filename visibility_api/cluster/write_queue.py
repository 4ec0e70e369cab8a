"""Whose status is written next, and when. Pure: times are the event loop's seconds, given by the caller."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

from visibility_api.progress.document import Progress
from visibility_api.progress.job import JobRef
from visibility_api.progress.summary import JobProgress

FORGOTTEN_S = 86400.0  # what was held so long ago and never since


@dataclass(slots=True, kw_only=True)
class Entry:
    """One job that has had something to say."""

    document: JobProgress | None = None  # the latest; None = nothing of it may be written now
    status: Progress | None = None  # what the job's status says, as far as we have seen
    written: int | None = None  # the fingerprint of what this process wrote last
    may_own: bool = True  # fields of the status may be ours; a process before this one may have written them
    not_before: float = 0.0
    is_writing: bool = False
    number: int = 0  # of its valid place in the queue, 0 = none; earlier places are void


class WriteQueue:
    """Jobs by due time: the one that has waited longest comes first, one that has just ended before it."""

    def __init__(self) -> None:
        self._entries: dict[JobRef, Entry] = {}
        self._heap: list[tuple[float, int, JobRef]] = []
        self._numbers = itertools.count(1)
        self._held: dict[str, float] = {}  # until when nothing is written in a namespace

    def __len__(self) -> int:
        """Jobs that wait for their turn."""
        return sum(1 for entry in self._entries.values() if entry.number)

    def put(self, document: JobProgress, now: float) -> None:
        """Let this be written when the job's turn comes, in place of what waited until now."""
        ref = document.job.ref
        entry = self._entries.get(ref)
        if entry is None:
            entry = self._entries[ref] = Entry(status=document.job.trainer_status)
        has_ended = _has_ended(document) and not _has_ended(entry.document)
        entry.document = document
        if entry.is_writing:
            return
        if has_ended:
            entry.not_before = now
            self._place(ref, entry, 0.0)
        elif not entry.number:
            self._place(ref, entry, max(now, entry.not_before))

    def silence(self, ref: JobRef) -> None:
        """Nothing that is known of this job now may be written."""
        if (entry := self._entries.get(ref)) is not None:
            entry.document, entry.number = None, 0

    def drop(self, ref: JobRef) -> None:
        """The job is no more."""
        self._entries.pop(ref, None)

    def note_status(self, ref: JobRef, status: Progress | None, *, not_before: float) -> None:
        """Somebody has written this into the job's status: we, another replica, or Kubeflow Trainer."""
        entry = self._entries.get(ref)
        if entry is None or entry.status == status:
            return
        entry.status = status
        if status is None:  # taken away
            entry.written = None
        if not _has_ended(entry.document):
            entry.not_before = max(entry.not_before, not_before)

    def hold(self, namespace: str, *, until: float) -> bool:
        """Write nothing in this namespace until then; whether it is news that this must be."""
        is_news = namespace not in self._held
        self._held[namespace] = until
        # Those where nobody has tried again meanwhile have no jobs any more, or are no more themselves.
        self._held = {name: ends for name, ends in self._held.items() if ends > until - FORGOTTEN_S}
        return is_news

    def release(self, namespace: str) -> None:
        self._held.pop(namespace, None)

    def take(self, now: float) -> tuple[JobRef, Entry] | None:
        """The job whose turn it is; it must be given back with `done`."""
        while (due := self.next_due()) is not None and due <= now:
            _, _, ref = heapq.heappop(self._heap)
            entry = self._entries[ref]
            later = max(entry.not_before, self._held.get(ref.namespace, 0.0))
            if later > now:
                self._place(ref, entry, later)
                continue
            entry.number, entry.is_writing = 0, True
            return ref, entry
        return None

    def done(
        self, ref: JobRef, entry: Entry, said: JobProgress, *, not_before: float, again: bool = False
    ) -> None:
        """`said` was dealt with. The job's turn comes again if it must, or if it has said more by now."""
        entry.is_writing, entry.not_before = False, not_before
        if self._entries.get(ref) is not entry or entry.document is None:
            return
        if _has_ended(entry.document) and not _has_ended(said):
            entry.not_before = 0.0
            self._place(ref, entry, 0.0)
        elif again or entry.document is not said:
            self._place(ref, entry, not_before)

    def next_due(self) -> float | None:
        """When the next turn comes; None when nobody waits."""
        while self._heap:
            due, number, ref = self._heap[0]
            entry = self._entries.get(ref)
            if entry is not None and entry.number == number:
                return due
            heapq.heappop(self._heap)
        return None

    def _place(self, ref: JobRef, entry: Entry, due: float) -> None:
        entry.number = next(self._numbers)
        heapq.heappush(self._heap, (due, entry.number, ref))


def _has_ended(document: JobProgress | None) -> bool:
    return document is not None and document.phase.is_final
