"""The objects of one collection, each packed into a few hundred bytes.

As Python objects they would take ten times the memory; they are unpacked only when something of their job
changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from visibility_api.kube.object_reader import TOO_LARGE

from .objects import BatchJob, JobSet, OwnerReference, Pod, TrainJob, without_all_else
from .rank0 import precedence

Key = tuple[str, str]  # namespace and name, of an object or of its owner
# Of one object: those that keep to what Kubernetes is used with take some KiB. Labels are in each document.
MAX_KEPT_BYTES, MAX_LABELS_BYTES = 64 * 1024, 16 * 1024
MAX_PODS_OF_ONE = 32  # that claim index 0 of one Job; its controller keeps one and deletes the others

AnyObject = TrainJob | JobSet | BatchJob | Pod
T = TypeVar("T", bound=AnyObject)
Owned = TypeVar("Owned", bound=BatchJob | Pod)


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

    def put(self, key: Key, object_: T) -> Sequence[Key]:
        """Store the object under its key (`key_of`). One that equals the stored one affects no job.

        Of one that takes too much memory only what names it is stored, and that it is too large.
        """
        packed = self._encoder.encode(object_)
        if len(packed) > MAX_LABELS_BYTES and self._is_too_large(object_, packed):
            packed = self._encoder.encode(without_all_else(object_, TOO_LARGE))
        if self._packed.get(key) == packed:
            return ()
        self._packed[key] = packed
        return (key,)

    def _is_too_large(self, object_: T, packed: bytes) -> bool:
        labels = self._encoder.encode(object_.metadata.labels)
        return len(packed) > MAX_KEPT_BYTES or len(labels) > MAX_LABELS_BYTES

    def drop(self, key: Key) -> Sequence[Key]:
        return (key,) if self._packed.pop(key, None) is not None else ()


class OwnedCache(ObjectCache[Owned]):
    """Objects that belong to a controlling one. `put` and `drop` return the keys of the owners.

    An object without a controller belongs to no job, so it is not kept.
    """

    def put(self, key: Key, object_: Owned) -> Sequence[Key]:
        after = object_.metadata.controller
        if after is None:
            return self.drop(key)
        before = self.controller_of(key)
        if not super().put(key, object_):
            return ()
        if before is None or before.uid != after.uid:
            self._move(key, before, after)
        if before is None or before.name == after.name:
            return ((key[0], after.name),)
        return ((key[0], after.name), (key[0], before.name))

    def drop(self, key: Key) -> Sequence[Key]:
        before = self.controller_of(key)  # a deletion may bring only name and namespace
        if before is None:
            return ()
        super().drop(key)
        self._move(key, before, None)
        return ((key[0], before.name),)

    def controller_of(self, key: Key) -> OwnerReference | None:
        """Of the object that is stored; None when there is none."""
        stored = self.get(key)
        return None if stored is None else stored.metadata.controller

    def _move(self, key: Key, before: OwnerReference | None, after: OwnerReference | None) -> None:
        """The object belongs to another owner than before."""


class PodCache(OwnedCache[Pod]):
    """Pods, indexed by the uid of the Job that each names as its controller. It may be changed later."""

    def __init__(self) -> None:
        super().__init__(Pod)
        self._by_uid: dict[str, tuple[Key, ...]] = {}

    def of(self, job: BatchJob) -> list[Pod]:
        """The pods that name this very Job."""
        keys, namespace = self._by_uid.get(job.metadata.uid, ()), job.metadata.namespace
        return [pod for key in keys if key[0] == namespace and (pod := self.get(key)) is not None]

    def _move(self, key: Key, before: OwnerReference | None, after: OwnerReference | None) -> None:
        if before is not None:
            left = tuple(other for other in self._by_uid.get(before.uid, ()) if other != key)
            if left:
                self._by_uid[before.uid] = left
            else:
                self._by_uid.pop(before.uid, None)
        if after is not None:
            keys = self._by_uid[after.uid] = (*self._by_uid.get(after.uid, ()), key)
            if len(keys) > MAX_PODS_OF_ONE:
                # Or thousands of forged ones would be compared at every change.
                pods = [pod for each in keys if (pod := self.get(each)) is not None]
                self.drop(key_of(min(pods, key=precedence)))


def key_of(object_: AnyObject) -> Key:
    meta = object_.metadata
    return sys.intern(meta.namespace), meta.name  # there are far fewer namespaces than objects
