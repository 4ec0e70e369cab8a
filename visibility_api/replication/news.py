"""What has changed in the log since it was last sent, as frames: a home of the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Addition
from visibility_api.store import Change
from visibility_api.store.job_log import JobLog

from .frames import MAX_FRAME_BYTES, Advanced, Beat, Changed, Kept, encode

log = structlog.get_logger("visibility.replication")

MAX_CHANGES = 256  # of documents, and as many of states, taken at once: other tasks have their turn


class News:
    """`revision`: everything up to it was sent already."""

    def __init__(self, jobs: JobLog, revision: int, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """`max_bytes`: of one frame."""
        self._log = jobs
        self._max_bytes = max_bytes
        self.revision = revision
        # Jobs that have changed, by the first change that was not taken: its position, and the new points.
        self.gained: dict[JobRef, tuple[int, list[Addition]]] = {}
        self.taken: set[JobRef] = set()  # jobs of the frames that were taken last
        self.position = self.sent = 0  # counts changes: those that there were, those that were taken
        self.wake = asyncio.Event()
        self._deleted: list[Change] = []  # that may not be sent
        # To be sent, in place of changes that memory holds no more.
        self._skipped: deque[Change] = deque()

    def changed(self, ref: JobRef, points: Sequence[Addition]) -> None:
        self.position += 1
        self.gained.setdefault(ref, (self.position, []))[1].extend(points)
        self.wake.set()

    def gone(self, ref: JobRef) -> None:
        self.gained.pop(ref, None)
        last = self._log.store.log_after(self._log.store.revision - 1)
        if last and last[0].type == "DELETED" and last[0].entry.document.job.ref == ref:
            self._deleted.append(last[0])
        self.position += 1
        self.wake.set()

    @property
    def is_due(self) -> bool:
        """Whether there is something that was not taken."""
        return bool(self.gained) or self.revision != self._log.store.revision

    def kept(self, ref: JobRef) -> bytes:
        """All that the next owner needs to know of one job."""
        history = self._log.history(ref)
        saved = None if history is None else history.save()
        return encode(Kept(ref=ref, state=self._state(ref), history=saved), self._max_bytes)

    def take(self, *, is_last: bool = False) -> list[bytes]:
        """Frames, the last one a Beat. `wake` is set if more is due."""
        store = self._log.store
        self.taken = set()
        pieces = []
        for each in self._changes():
            document, self.revision = each.entry.document, each.revision
            self.taken.add(document.job.ref)
            pieces.append(
                encode(Changed(type=each.type, revision=each.revision, document=document), self._max_bytes)
            )
        if not self._skipped and store.log_after(self.revision) == []:
            self.revision = store.revision
            self._deleted.clear()
            for ref in list(islice(self.gained, MAX_CHANGES)):
                _, points = self.gained.pop(ref)
                self.taken.add(ref)
                advanced = Advanced(ref=ref, state=self._state(ref), points=tuple(points))
                pieces.append(encode(advanced, self._max_bytes))
            first_left = next(iter(self.gained.values()), (self.position + 1, []))[0]
            self.sent = first_left - 1
        if self.is_due:
            self.wake.set()
        return [*pieces, encode(self.beat(is_last=is_last and not self.is_due))]

    def _changes(self) -> Sequence[Change]:
        """The next ones. Of changes that memory holds no more, each job's latest at its revision is left."""
        store = self._log.store
        if not self._skipped:
            if (found := store.log_after(self.revision)) is not None:
                return found[:MAX_CHANGES]
            present = (Change(type="MODIFIED", entry=each, previous=None) for each in store.entries())
            left = [each for each in (*present, *self._deleted) if each.revision > self.revision]
            self._skipped.extend(sorted(left, key=attrgetter("revision")))
        return [self._skipped.popleft() for _ in range(min(MAX_CHANGES, len(self._skipped)))]

    def beat(self, *, is_last: bool = False) -> Beat:
        return Beat(
            position=self.sent, revision=self.revision, unlisted=tuple(self._log.unlisted), is_last=is_last
        )

    def _state(self, ref: JobRef) -> bytes | None:
        try:
            return self._log.state(ref)
        except Exception as error:  # about one job; the others go on (decision 0005)
            log.debug("state of a job not encoded", job=str(ref), **describe_fault(error))
            return None
