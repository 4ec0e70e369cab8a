"""The objects of one collection, each packed into a few hundred bytes.

As Python objects they would take ten times the memory; they are unpacked only when something of their job
changes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Sequence
from typing import Generic, TypeVar

import msgspec

from visibility_api.kube.object_reader import TOO_LARGE, UNREADABLE

from .objects import AnyObject, Meta, OwnerReference, Pod, without_all_else
from .rank0 import precedence

Key = tuple[str, str]  # namespace and name
Owner = tuple[str, str]  # kind and name of the controller of an object, which is in the same namespace
# Of one object: those that keep to what Kubernetes is used with take some KiB. Labels are in each document.
MAX_KEPT_BYTES, MAX_LABELS_BYTES = 64 * 1024, 16 * 1024
# Of those of one namespace and collection that are larger than usual ones.
LARGE_BYTES, MAX_LARGE_BYTES = 4 * 1024, 16 * 1024 * 1024
MAX_LABELS = 256  # each takes 150 bytes as Python objects, however short it is
# Pods that claim a place under one controller, which keeps one and deletes the others. All together they have
# MAX_KEPT_BYTES.
MAX_PODS_OF_ONE = 32

T = TypeVar("T", bound=AnyObject)


class ObjectCache(Generic[T]):
    """Objects by key. `put` and `drop` return the owners that the object has and had; None: nothing has
    changed.

    An object that nothing of these kinds controls belongs to no job. It is kept only if it may be one
    (`is_own`).
    """

    def __init__(self, kind: type[T], *, is_own: bool, owner_kinds: Container[str]) -> None:
        self._is_own = is_own
        self._owner_kinds = owner_kinds
        self._packed: dict[Key, bytes] = {}
        self._large: Counter[str] = Counter()  # bytes, by namespace
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def get(self, key: Key) -> T | None:
        packed = self._packed.get(key)
        return self._decoder.decode(packed) if packed is not None else None

    def keys(self, scope: str | None) -> list[Key]:
        """Of all objects in namespace `scope`; None: in every namespace."""
        return [key for key in self._packed if scope is None or key[0] == scope]

    def put(self, key: Key, object_: T) -> Sequence[Owner] | None:
        """Store the object under its key (`key_of`). One that equals the stored one changes nothing.

        Of one that takes too much memory, or cannot be stored, only what names it is, and why.
        """
        after = object_.metadata.controller
        if not self._is_own and (after is None or after.kind not in self._owner_kinds):
            return self.drop(key)
        try:
            packed = self._encoder.encode(object_)
        except OverflowError:  # a number of more than 64 bits
            object_ = without_all_else(object_, UNREADABLE)
            packed = self._encoder.encode(object_)
        if self._is_too_large(key, object_, packed):
            packed = self._encoder.encode(without_all_else(object_, TOO_LARGE))
        if self._packed.get(key) == packed:
            return None
        before = self._controller_of(key)
        self._count(key[0], _excess(packed) - _excess(self._packed.get(key, b"")))
        self._packed[key] = packed
        return self._moved(key, before, after)

    def _is_too_large(self, key: Key, object_: T, packed: bytes) -> bool:
        others = self._large[key[0]] - _excess(self._packed.get(key, b""))
        if (size := _excess(packed)) and others + size > MAX_LARGE_BYTES:
            return True
        labels: object = object_.metadata.labels  # of what is made for a job one alone is kept
        if len(packed) > MAX_KEPT_BYTES or (isinstance(labels, dict) and len(labels) > MAX_LABELS):
            return True
        return len(packed) > MAX_LABELS_BYTES < len(self._encoder.encode(labels))

    def drop(self, key: Key) -> Sequence[Owner] | None:
        if key not in self._packed:
            return None
        before = self._controller_of(key)  # a deletion may bring only name and namespace
        self._count(key[0], -_excess(self._packed.pop(key)))
        return self._moved(key, before, None)

    def _count(self, namespace: str, size: int) -> None:
        if size:
            self._large[namespace] += size
            if not self._large[namespace]:
                del self._large[namespace]

    def owners(self, key: Key) -> Sequence[Owner]:
        """Of the object that is stored: one, or none."""
        controller = self._controller_of(key)
        return () if controller is None else ((controller.kind, controller.name),)

    def _controller_of(self, key: Key) -> OwnerReference | None:
        stored = self.get(key)
        return None if stored is None else stored.metadata.controller

    def _moved(
        self, _key: Key, before: OwnerReference | None, after: OwnerReference | None
    ) -> Sequence[Owner]:
        """The object has the controller `after`, and had `before`."""
        return tuple({(each.kind, each.name): None for each in (after, before) if each is not None})


def _excess(packed: bytes) -> int:
    """What counts for the bound of large ones."""
    return len(packed) if len(packed) > LARGE_BYTES else 0


class PodCache(ObjectCache[Pod]):
    """Pods, indexed by namespace and uid of the object that each names as its controller. That may be changed
    later, and pods of another namespace may name it too."""

    def __init__(self, kind: type[Pod], *, is_own: bool, owner_kinds: Container[str]) -> None:
        super().__init__(kind, is_own=is_own, owner_kinds=owner_kinds)
        self._by_owner: dict[tuple[str, str], tuple[Key, ...]] = {}

    def of(self, owner: Meta) -> list[Pod]:
        """The pods that name this very object."""
        keys = self._by_owner.get((owner.namespace, owner.uid), ())
        return [pod for key in keys if (pod := self.get(key)) is not None]

    def _moved(
        self, key: Key, before: OwnerReference | None, after: OwnerReference | None
    ) -> Sequence[Owner]:
        before_uid, after_uid = (each.uid if each is not None else "" for each in (before, after))
        if before_uid != after_uid:
            self._leave(key, before_uid)
            if after is not None:
                of = key[0], after_uid
                self._by_owner[of] = (*self._by_owner.get(of, ()), key)
        if after is not None:
            self._bound(self._by_owner[key[0], after_uid])
        return super()._moved(key, before, after)

    def _bound(self, keys: Sequence[Key]) -> None:
        """Keep the likeliest of these pods, as many and as many bytes as may be compared at every change."""
        sizes = {key: len(self._packed[key]) for key in keys}
        if len(keys) <= MAX_PODS_OF_ONE and sum(sizes.values()) <= MAX_KEPT_BYTES:
            return
        pods, before = [pod for key in keys if (pod := self.get(key)) is not None], 0
        for number, pod in enumerate(sorted(pods, key=precedence, reverse=True)):
            before += sizes[key_of(pod)]
            if number and (number >= MAX_PODS_OF_ONE or before > MAX_KEPT_BYTES):
                self.drop(key_of(pod))

    def _leave(self, key: Key, uid: str) -> None:
        of = key[0], uid
        left = tuple(other for other in self._by_owner.get(of, ()) if other != key)
        if left:
            self._by_owner[of] = left
        else:
            self._by_owner.pop(of, None)


def key_of(object_: AnyObject) -> Key:
    meta = object_.metadata
    return sys.intern(meta.namespace), meta.name  # there are far fewer namespaces than objects
