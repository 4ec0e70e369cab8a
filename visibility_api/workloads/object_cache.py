"""The objects of one collection, each packed into a few hundred bytes.

As Python objects they would take ten times the memory; they are unpacked only when something of their job
changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from .objects import JobSet, Pod, TrainJob
from .rank0 import JOBSET

Key = tuple[str, str]  # namespace and name, of an object or of the job that it belongs to

T = TypeVar("T", TrainJob, JobSet, Pod)


class ObjectCache(Generic[T]):
    """Objects by key; `put` and `drop` return the jobs that the change affects."""

    def __init__(self, kind: type[T]) -> None:
        self._packed: dict[Key, bytes] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def get(self, key: Key) -> T | None:
        packed = self._packed.get(key)
        return self._decoder.decode(packed) if packed is not None else None

    def keys(self, scope: str | None) -> list[Key]:
        """Of all objects in namespace `scope`; None: in every namespace."""
        return [key for key in self._packed if scope is None or key[0] == scope]

    def put(self, object_: T) -> Sequence[Key]:
        """Store the object under its key. One that equals the stored one affects no job."""
        key, packed = key_of(object_), self._encoder.encode(object_)
        if self._packed.get(key) == packed:
            return ()
        self._packed[key] = packed
        return (key,)

    def drop(self, key: Key) -> Sequence[Key]:
        return (key,) if self._packed.pop(key, None) is not None else ()


class PodCache(ObjectCache[Pod]):
    """Pods, indexed by the job that their JobSet label names. A pod's labels may change."""

    def __init__(self) -> None:
        super().__init__(Pod)
        self._by_job: dict[Key, tuple[Key, ...]] = {}

    def of(self, job: Key) -> list[Pod]:
        return [pod for key in self._by_job.get(job, ()) if (pod := self.get(key)) is not None]

    def put(self, object_: Pod) -> Sequence[Key]:
        before = self.get(key_of(object_))
        if not super().put(object_):
            return ()
        key, job = key_of(object_), _labelled_job(object_)
        if before is None:
            former = None
        elif (former := _labelled_job(before)) != job:
            self._remove_from_index(former, key)
        if former != job:
            self._by_job[job] = (*self._by_job.get(job, ()), key)
        return (job,) if former in (None, job) else (job, former)

    def drop(self, key: Key) -> Sequence[Key]:
        before = self.get(key)  # for its labels: a deletion may bring only name and namespace
        if before is None:
            return ()
        super().drop(key)
        self._remove_from_index(job := _labelled_job(before), key)
        return (job,)

    def _remove_from_index(self, job: Key, key: Key) -> None:
        left = tuple(other for other in self._by_job[job] if other != key)
        if left:
            self._by_job[job] = left
        else:
            del self._by_job[job]


def key_of(object_: TrainJob | JobSet | Pod) -> Key:
    meta = object_.metadata
    return sys.intern(meta.namespace), meta.name  # there are far fewer namespaces than objects


def _labelled_job(pod: Pod) -> Key:
    """The job named by the pod's JobSet label; `rank0_pod` checks whether the pod belongs to it."""
    return sys.intern(pod.metadata.namespace), pod.metadata.label(f"{JOBSET}jobset-name")
