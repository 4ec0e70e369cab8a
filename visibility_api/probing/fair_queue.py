"""Who is next of those that wait: namespaces take turns, and a node gives out so many places at a time.

Pure. Every step costs the same however many wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Place:
    namespace: str
    node: str | None  # None: not known, so not bounded
    has_slot: bool = False  # of its node, from then on until `release` or `remove`


class FairQueue(Generic[K]):
    """First come, first served within a namespace; between namespaces in turn (round robin).

    At most `per_node` keys of one node are out at a time: those that find their node full step aside, so that
    a node that hangs keeps nobody else waiting, and come back in their order as it has room.
    """

    def __init__(self, *, per_node: int) -> None:
        self._per_node = per_node
        self._lines: OrderedDict[str, OrderedDict[K, _Place]] = OrderedDict()  # by namespace, next first
        self._aside: dict[str, OrderedDict[K, _Place]] = {}  # by node; only of nodes that are full
        self._slots: dict[str, int] = {}  # taken, by node
        self._waiting: dict[K, _Place] = {}
        self._out: dict[K, _Place] = {}

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    def push(self, key: K, *, namespace: str, node: str | None, is_urgent: bool = False) -> None:
        """Wait, ahead of others of the namespace when urgent; a key that waits already only moves ahead."""
        place = self._waiting.get(key)
        if place is None:
            place = self._waiting[key] = _Place(namespace, node)
            self._line_up(key, place, is_ahead=is_urgent)
        elif is_urgent:
            line = self._lines.get(place.namespace)
            if line is None or key not in line:
                line = self._aside[place.node or ""]
            line.move_to_end(key, last=False)

    def pop(self) -> K | None:
        """The next one that may go; `release` it afterwards. None when there is none."""
        while self._lines:
            namespace, line = next(iter(self._lines.items()))
            key, place = line.popitem(last=False)
            if line:
                self._lines.move_to_end(namespace)
            else:
                del self._lines[namespace]
            if self._take_slot(place):
                del self._waiting[key]
                self._out[key] = place
                return key
            self._aside.setdefault(place.node or "", OrderedDict())[key] = place
        return None

    def release(self, key: K) -> None:
        """One that was popped is done."""
        self._free_slot(self._out.pop(key))

    def remove(self, key: K) -> None:
        """Wait no more. Nothing happens to a key that does not wait."""
        place = self._waiting.pop(key, None)
        if place is None:
            return
        line = self._lines.get(place.namespace)
        if line is not None and line.pop(key, None) is not None:
            if not line:
                del self._lines[place.namespace]
            self._free_slot(place)
            return
        node = place.node or ""
        self._aside[node].pop(key)
        if not self._aside[node]:
            del self._aside[node]

    def _line_up(self, key: K, place: _Place, *, is_ahead: bool) -> None:
        line = self._lines.get(place.namespace)
        if line is None:
            line = self._lines[place.namespace] = OrderedDict()
        line[key] = place
        if is_ahead:
            line.move_to_end(key, last=False)

    def _take_slot(self, place: _Place) -> bool:
        if place.node is None or place.has_slot:
            return True
        taken = self._slots.get(place.node, 0)
        if taken >= self._per_node:
            return False
        self._slots[place.node] = taken + 1
        place.has_slot = True
        return True

    def _free_slot(self, place: _Place) -> None:
        """What one gives back the next one of the node that stepped aside has at once: none overtakes it."""
        if place.node is None or not place.has_slot:
            return
        aside = self._aside.get(place.node)
        if aside is not None:
            key, next_place = aside.popitem(last=False)
            if not aside:
                del self._aside[place.node]
            next_place.has_slot = True
            self._line_up(key, next_place, is_ahead=True)
        elif self._slots[place.node] > 1:
            self._slots[place.node] -= 1
        else:
            del self._slots[place.node]
