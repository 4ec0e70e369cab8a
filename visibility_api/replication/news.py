"""What has changed in the log since it was last sent, as frames: a home of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from visibility_api.errors.text import describe_fault
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.observation import Addition
from visibility_api.store.job_log import JobLog

from .frames import MAX_FRAME_BYTES, Advanced, Beat, Changed, Kept, encode

log = structlog.get_logger("visibility.replication")

MAX_CHANGES = 256  # of one piece: between two, other tasks have their turn


class News:
    """`revision`: everything up to it was sent already."""

    def __init__(self, jobs: JobLog, revision: int, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """`max_bytes`: of one frame."""
        self._log = jobs
        self._max_bytes = max_bytes
        self.revision = revision
        self.gained: dict[JobRef, list[Addition]] = {}  # jobs that have changed, with their new points
        self.position = self.sent = 0  # counts changes: those that there were, those that were taken
        self.wake = asyncio.Event()

    def changed(self, ref: JobRef, points: Sequence[Addition]) -> None:
        self.gained.setdefault(ref, []).extend(points)
        self.position += 1
        self.wake.set()

    def gone(self, ref: JobRef) -> None:
        self.gained.pop(ref, None)
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

    def take(self, *, is_last: bool = False) -> list[bytes] | None:
        """Frames, the last one a Beat. None if the store does not hold all of it any more."""
        store = self._log.store
        changes = store.log_after(self.revision)
        if changes is None:
            return None
        pieces = [
            encode(
                Changed(type=each.type, revision=each.revision, document=each.entry.document), self._max_bytes
            )
            for each in changes[:MAX_CHANGES]
        ]
        if len(changes) > MAX_CHANGES:
            self.revision = changes[MAX_CHANGES - 1].revision
            self.wake.set()
            return [*pieces, encode(self.beat())]
        gained, self.gained = self.gained, {}
        for ref, points in gained.items():
            advanced = Advanced(ref=ref, state=self._state(ref), points=tuple(points))
            pieces.append(encode(advanced, self._max_bytes))
        self.revision = store.revision
        self.sent = self.position
        return [*pieces, encode(self.beat(is_last=is_last))]

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
