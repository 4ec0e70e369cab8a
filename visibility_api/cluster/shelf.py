"""The objects of one collection, each held as the few hundred bytes it packs into.

As Python objects they would take ten times that; they are looked at only when something of their job changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from .objects import JobSet, Pod, TrainJob
from .rank0 import JOBSET

Key = tuple[str, str]  # namespace, name: of an object, or of the job that it belongs to

T = TypeVar("T", TrainJob, JobSet, Pod)


class Shelf(Generic[T]):
    """Objects by their own names; `put` and `drop` tell which jobs that changes."""

    def __init__(self, kind: type[T]) -> None:
        self._packed: dict[Key, bytes] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def get(self, name: Key) -> T | None:
        packed = self._packed.get(name)
        return self._decoder.decode(packed) if packed is not None else None

    def names(self, scope: str | None) -> list[Key]:
        """Of all objects in namespace `scope`, None for every one."""
        return [name for name in self._packed if scope is None or name[0] == scope]

    def put(self, object_: T) -> Sequence[Key]:
        """Hold this instead of what was held under its name. Nothing changes if it is the same."""
        name, packed = name_of(object_), self._encoder.encode(object_)
        if self._packed.get(name) == packed:
            return ()
        self._packed[name] = packed
        return (name,)

    def drop(self, name: Key) -> Sequence[Key]:
        return (name,) if self._packed.pop(name, None) is not None else ()


class PodShelf(Shelf[Pod]):
    """Pods, and which of them wear the label of a job's JobSet. A pod's labels may change."""

    def __init__(self) -> None:
        super().__init__(Pod)
        self._wearing: dict[Key, tuple[Key, ...]] = {}

    def of(self, job: Key) -> list[Pod]:
        return [pod for name in self._wearing.get(job, ()) if (pod := self.get(name)) is not None]

    def put(self, object_: Pod) -> Sequence[Key]:
        before = self.get(name_of(object_))
        if not super().put(object_):
            return ()
        name, job = name_of(object_), _worn_by(object_)
        if before is None:
            former = None
        elif (former := _worn_by(before)) != job:
            self._forget(former, name)
        if former != job:
            self._wearing[job] = (*self._wearing.get(job, ()), name)
        return (job,) if former in (None, job) else (job, former)

    def drop(self, name: Key) -> Sequence[Key]:
        before = self.get(name)  # what a deletion shows may be no more than the name
        if before is None:
            return ()
        super().drop(name)
        self._forget(job := _worn_by(before), name)
        return (job,)

    def _forget(self, job: Key, name: Key) -> None:
        left = tuple(other for other in self._wearing[job] if other != name)
        if left:
            self._wearing[job] = left
        else:
            del self._wearing[job]


def name_of(object_: TrainJob | JobSet | Pod) -> Key:
    meta = object_.metadata
    return sys.intern(meta.namespace), meta.name  # there are far fewer namespaces than objects


def _worn_by(pod: Pod) -> Key:
    """The job whose JobSet's label the pod wears; whether it is really its own is another matter (2.2)."""
    return sys.intern(pod.metadata.namespace), pod.metadata.label(f"{JOBSET}jobset-name")
