"""Which job's status is written next, and when. Pure: times are the event loop's, given by the caller."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass

from visibility_api.jobs.job import JobRef
from visibility_api.jobs.summary import JobProgress
from visibility_api.reports.document import Progress

LINED_UP_AT_ONCE = 256  # jobs that have become due, in one step
FORGOTTEN_S = 86400.0  # a namespace that was not held again for this time is forgotten


@dataclass(slots=True, kw_only=True)
class Entry:
    """One job that has had a report, here or in its status."""

    document: JobProgress | None = None  # the latest; None: there is nothing to write
    status: Progress | None = None  # the report in the job's status, as last seen
    written: int | None = None  # the fingerprint of what this process wrote last
    may_own: bool = True  # fields of the status may be ours: an earlier process may have written them
    not_before: float = 0.0
    is_writing: bool = False
    number: int = 0  # of its valid place in the heap, 0: none; places with other numbers are void


class WriteQueue:
    """Jobs that are due, in turns by namespace. In one the job that has waited longest comes first, but
    before it one that has just ended."""

    def __init__(self) -> None:
        self._entries: dict[JobRef, Entry] = {}
        self._heap: list[tuple[float, int, JobRef]] = []
        self._due: dict[str, deque[tuple[JobRef, int]]] = {}  # places, by namespace; the next in turn first
        self._numbers = itertools.count(1)
        self._held: dict[str, float] = {}  # by namespace, until when nothing is written there

    def __len__(self) -> int:
        """The number of jobs that wait."""
        return sum(1 for entry in self._entries.values() if entry.number)

    def put(self, document: JobProgress, now: float) -> None:
        """Queue this document, instead of the one of the same job that waits."""
        ref = document.job.ref
        entry = self._entries.get(ref)
        if entry is None:
            entry = self._entries[ref] = Entry()
        has_ended = _has_ended(document) and not _has_ended(entry.document)
        entry.document = document
        if entry.is_writing:
            return
        if has_ended:
            entry.not_before = now
            self._place(ref, entry, 0.0)
        elif not entry.number:
            self._place(ref, entry, max(now, entry.not_before))

    def withhold(self, ref: JobRef) -> None:
        """Do not write this job until the next `put`."""
        if (entry := self._entries.get(ref)) is not None:
            entry.document, entry.number = None, 0

    def drop(self, ref: JobRef) -> None:
        """The job was deleted."""
        self._entries.pop(ref, None)

    def note_status(self, ref: JobRef, status: Progress | None, *, not_before: float) -> None:
        """The job's status has this report: of this process, an earlier one, or Kubeflow Trainer."""
        entry = self._entries.get(ref)
        if entry is None:
            if status is not None:  # it was there before there was anything to write
                self._entries[ref] = Entry(status=status)
            return
        if entry.status == status:
            return
        entry.status = status
        if status is None:  # removed
            entry.written = None
        if not _has_ended(entry.document):
            entry.not_before = max(entry.not_before, not_before)

    def hold(self, namespace: str, *, until: float) -> bool:
        """Write nothing in this namespace until then; True unless it was held already."""
        is_new = namespace not in self._held
        self._held[namespace] = until
        # Namespaces in which no write was tried since have no jobs any more, or do not exist any more.
        self._held = {name: ends for name, ends in self._held.items() if ends > until - FORGOTTEN_S}
        return is_new

    def release(self, namespace: str) -> None:
        self._held.pop(namespace, None)

    def take(self, now: float) -> tuple[JobRef, Entry] | None:
        """The next job that is due; must be followed by `done`."""
        self._line_up(now)
        while self._due:
            namespace = next(iter(self._due))
            line = self._due.pop(namespace)
            ref, number = line.popleft()
            if line:
                self._due[namespace] = line
            entry = self._entries.get(ref)
            if entry is None or entry.number != number:
                continue
            later = max(entry.not_before, self._held.get(namespace, 0.0))
            if later > now:
                self._place(ref, entry, later)
                continue
            entry.number, entry.is_writing = 0, True
            return ref, entry
        return None

    def _line_up(self, now: float) -> None:
        for _ in range(LINED_UP_AT_ONCE):
            due = self.next_due()
            if due is None or due > now:
                return
            _, number, ref = heapq.heappop(self._heap)
            line = self._due.setdefault(ref.namespace, deque())
            if _has_ended(self._entries[ref].document):
                line.appendleft((ref, number))
            else:
                line.append((ref, number))

    def done(
        self, ref: JobRef, entry: Entry, document: JobProgress, *, not_before: float, again: bool = False
    ) -> None:
        """`document` was handled. Queue the job again if `again`, or if it has a newer document by now."""
        entry.is_writing, entry.not_before = False, not_before
        if self._entries.get(ref) is not entry or entry.document is None:
            return
        if _has_ended(entry.document) and not _has_ended(document):
            entry.not_before = 0.0
            self._place(ref, entry, 0.0)
        elif again or entry.document is not document:
            self._place(ref, entry, not_before)

    def next_due(self) -> float | None:
        """When the next job is due; None when none waits."""
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
