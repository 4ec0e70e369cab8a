"""Objects, their revisions and the change feed, in memory. Stands for etcd and the watch cache.

One counter for everything, as etcd has. Changes never span an await, so nothing here needs a lock.
Stored objects are never changed in place: a write stores a new one, so readers may keep what they got.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from localcluster.machinery.metadata import Object, ObjectKey, key_of
from localcluster.machinery.resources import Resource

HISTORY_CHANGES = 20_000  # per resource; a watch from an older one gets 410
QUEUE_CHANGES = 5_000  # per watcher; a slower reader is cut and resumes (W20)

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored object, with its JSON so that lists and watches never encode again."""

    object: Object
    encoded: bytes

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])

    @property
    def encoded_item(self) -> bytes:
        """As the lists of built-in kinds hold it: without kind and apiVersion."""
        head = b'{"kind":"%b","apiVersion":"%b",' % (
            self.object["kind"].encode(),
            self.object["apiVersion"].encode(),
        )
        return b"{" + self.encoded.removeprefix(head)


@dataclass(frozen=True, slots=True)
class Change:
    type: ChangeType
    revision: int
    entry: Entry
    previous: Entry | None  # what selectors matched before (W12); None for a creation


class Expired(Exception):
    """The requested revision is not in the history any more."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One watcher's queue. `None` in it means: the stream ends here."""

    queue: asyncio.Queue[Change | None] = field(default_factory=lambda: asyncio.Queue(QUEUE_CHANGES + 1))
    expired: bool = False  # ended by compaction rather than by a cut

    def offer(self, change: Change) -> bool:
        if self.queue.qsize() >= QUEUE_CHANGES:
            self.end()
            return False
        self.queue.put_nowait(change)
        return True

    def end(self, *, expired: bool = False) -> None:
        self.expired = expired
        if not self.queue.full():
            self.queue.put_nowait(None)


class _Collection:
    """All objects of one resource."""

    def __init__(self) -> None:
        self.entries: dict[ObjectKey, Entry] = {}
        self.history: deque[Change] = deque(maxlen=HISTORY_CHANGES)
        self.subscriptions: set[Subscription] = set()
        self.compacted_at = 0  # changes up to here are forgotten


class Store:
    """Every object of the cluster. `listeners` are called after each change, in the writer's turn."""

    def __init__(self) -> None:
        self.revision = 1
        self.listeners: list[Callable[[Resource, Change], None]] = []
        self._collections: dict[str, _Collection] = {}
        self._encoder = msgspec.json.Encoder()

    def get(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        return self._collection(resource).entries.get((namespace, name))

    def entries(self, resource: Resource, namespace: str = "") -> list[Entry]:
        """By namespace, then name (L14)."""
        collection = self._collection(resource).entries
        return [collection[key] for key in sorted(collection) if not namespace or key[0] == namespace]

    def put(self, resource: Resource, thing: Object) -> Entry:
        """Store a new state; the resourceVersion is stamped here and nowhere else."""
        collection = self._collection(resource)
        key = key_of(thing)
        previous = collection.entries.get(key)
        entry = collection.entries[key] = self._stamp(thing)
        self._publish(
            resource, collection, Change("MODIFIED" if previous else "ADDED", self.revision, entry, previous)
        )
        return entry

    def remove(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Forget an object. The answer is its last state under the revision of the deletion (W13)."""
        collection = self._collection(resource)
        previous = collection.entries.pop((namespace, name))
        entry = self._stamp(previous.object)
        self._publish(resource, collection, Change("DELETED", self.revision, entry, previous))
        return entry

    def subscribe(self, resource: Resource, after: int) -> Subscription:
        """Every change after that revision; raises Expired when some are forgotten, or it is not ours."""
        collection = self._collection(resource)
        if after < collection.compacted_at or after > self.revision:
            raise Expired(f"too old resource version: {after} ({collection.compacted_at or self.revision})")
        subscription = Subscription()
        for change in collection.history:
            if change.revision > after:
                subscription.offer(change)
        collection.subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, resource: Resource, subscription: Subscription) -> None:
        self._collection(resource).subscriptions.discard(subscription)

    def compact(self) -> None:
        """Forget all history: open watches end with 410, older revisions are refused."""
        self.revision += 1
        for collection in self._collections.values():
            collection.history.clear()
            collection.compacted_at = self.revision
        self.end_subscriptions(expired=True)

    def end_subscriptions(self, *, expired: bool = False) -> None:
        for subscription in list(self._subscriptions()):
            subscription.end(expired=expired)

    def _subscriptions(self) -> Iterator[Subscription]:
        for collection in self._collections.values():
            yield from collection.subscriptions

    def _collection(self, resource: Resource) -> _Collection:
        return self._collections.setdefault(resource.qualified, _Collection())

    def _stamp(self, thing: Object) -> Entry:
        self.revision += 1
        named = {
            "kind": thing["kind"],
            "apiVersion": thing["apiVersion"],
        }  # first: Entry.encoded_item counts on it
        stamped = named | thing | {"metadata": thing["metadata"] | {"resourceVersion": str(self.revision)}}
        return Entry(stamped, self._encoder.encode(stamped))

    def _publish(self, resource: Resource, collection: _Collection, change: Change) -> None:
        if len(collection.history) == collection.history.maxlen:
            collection.compacted_at = collection.history[0].revision
        collection.history.append(change)
        collection.subscriptions -= {each for each in collection.subscriptions if not each.offer(change)}
        for listener in self.listeners:
            listener(resource, change)
