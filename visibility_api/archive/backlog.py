"""Deleted jobs that wait to be written, by namespace. Beyond so many bytes the namespace that has most loses
its oldest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from visibility_api.jobs.job import JobRef

MAX_WAITING_BYTES = 64 * 1024 * 1024


class Encoded(NamedTuple):
    """A job as it is archived, as compact JSON."""

    line: bytes  # what a list shows
    record: bytes  # all of it
    pods: tuple[str, ...] = ()  # whose Events belong to it


class Waiting(NamedTuple):
    """What waits to be written. `encoded` None: the job exists still, so it is made when its turn comes."""

    ref: JobRef
    created_at: datetime | None
    encoded: Encoded | None

    @property
    def size_bytes(self) -> int:
        return len(self.encoded.record) if self.encoded is not None else 0


class Backlog:
    """It outlives a term of the owner."""

    def __init__(self) -> None:
        self._of: dict[str, dict[JobRef, Waiting]] = {}  # oldest first
        self._bytes = Counter[str]()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __contains__(self, ref: JobRef) -> bool:
        return ref in self._of.get(ref.namespace, ())

    @property
    def namespaces(self) -> Iterator[str]:
        return iter(self._of)

    def of(self, namespace: str) -> Iterator[JobRef]:
        return iter(self._of.get(namespace, ()))

    def add(self, kept: Waiting) -> list[JobRef]:
        """Which ones are lost for it."""
        namespace = kept.ref.namespace
        if kept.ref in self:
            self.take(kept.ref)
        self._of.setdefault(namespace, {})[kept.ref] = kept
        self._bytes[namespace] += kept.size_bytes
        lost: list[JobRef] = []
        while self._bytes.total() > MAX_WAITING_BYTES:
            ((most, _),) = self._bytes.most_common(1)
            lost.append(next(self.of(most)))
            self.take(lost[-1])
        return lost

    def take(self, ref: JobRef) -> Waiting:
        line = self._of[ref.namespace]
        kept = line.pop(ref)
        self._bytes[ref.namespace] -= kept.size_bytes
        if not line:
            del self._of[ref.namespace], self._bytes[ref.namespace]
        return kept
