"""Which waiting job is served next: namespaces take turns, and none holds more slots than it leaves free.

Slots are those of the whole server, and of each node (decision 0055). Pure. No step costs more with more
keys; one that takes a slot, or gives one back, looks at the namespaces that wait for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Place:
    namespace: str
    node: str | None  # None: not known, so not limited
    has_slot: bool = False  # of its node, from then on until `release` or `remove`


@dataclass(slots=True)
class _Slots:
    """So many at one time, of all namespaces together."""

    limit: int
    taken: Counter[str] = field(default_factory=Counter)  # by namespace
    total: int = 0

    def may_take(self, namespace: str) -> bool:
        """Whether one is free, and so many that the namespace holds no more than it leaves."""
        return self.taken[namespace] < self.limit - self.total

    def take(self, namespace: str) -> None:
        self.taken[namespace] += 1
        self.total += 1

    def give_back(self, namespace: str) -> None:
        self.total -= 1
        self.taken[namespace] -= 1
        if not self.taken[namespace]:
            del self.taken[namespace]


@dataclass(slots=True)
class _Node(Generic[K]):
    """One node's slots, and the keys that wait for one."""

    slots: _Slots
    waiting: OrderedDict[str, OrderedDict[K, _Place]] = field(default_factory=OrderedDict)  # next one first


class FairQueue(Generic[K]):
    """First come, first served within a namespace; between namespaces in turn (round robin).

    At most `at_a_time` keys are out at one time, and `per_node` of one node. One namespace takes half of them
    at most, two a third each, and so on: one that comes next finds a free slot, however slow the others are.
    Keys that find no slot of their node wait aside; one that becomes free goes to the next namespace there.
    """

    def __init__(self, *, at_a_time: int, per_node: int) -> None:
        self._slots = _Slots(at_a_time)
        self._per_node = per_node
        self._lines: OrderedDict[str, OrderedDict[K, _Place]] = OrderedDict()  # by namespace, next first
        self._nodes: dict[str, _Node[K]] = {}
        self._waiting: dict[K, _Place] = {}
        self._out: dict[K, _Place] = {}

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    def __contains__(self, key: K) -> bool:
        """Whether it waits."""
        return key in self._waiting

    def push(self, key: K, *, namespace: str, node: str | None, is_urgent: bool = False) -> None:
        """Wait, ahead of others of the namespace when urgent; a key that waits already only moves ahead."""
        place = self._waiting.get(key)
        if place is None:
            place = self._waiting[key] = _Place(namespace, node)
            _line_up(self._lines, key, place, is_ahead=is_urgent)
        elif is_urgent:
            line = self._lines.get(place.namespace)
            if line is None or key not in line:
                line = self._nodes[place.node or ""].waiting[place.namespace]
            line.move_to_end(key, last=False)

    def pop(self) -> K | None:
        """The next one that may go; `release` it afterwards. None when there is none."""
        while (namespace := next(filter(self._slots.may_take, self._lines), None)) is not None:
            key, place = _next_of(self._lines, namespace)
            if self._take_slot(place):
                self._slots.take(namespace)
                del self._waiting[key]
                self._out[key] = place
                return key
            _line_up(self._nodes[place.node or ""].waiting, key, place)
        return None

    def release(self, key: K) -> None:
        """One that was popped is done."""
        place = self._out.pop(key)
        self._slots.give_back(place.namespace)
        self._free_slot(place)

    def remove(self, key: K) -> None:
        """Wait no more. Nothing happens to a key that does not wait."""
        place = self._waiting.pop(key, None)
        if place is None:
            return
        lines = self._lines
        if key not in lines.get(place.namespace, ()):
            lines = self._nodes[place.node or ""].waiting
        del lines[place.namespace][key]
        if not lines[place.namespace]:
            del lines[place.namespace]
        self._free_slot(place)

    def _take_slot(self, place: _Place) -> bool:
        if place.node is None or place.has_slot:
            return True
        node = self._nodes.setdefault(place.node, _Node(_Slots(self._per_node)))
        # Not before others of its namespace that wait already.
        if place.namespace in node.waiting or not node.slots.may_take(place.namespace):
            return False
        node.slots.take(place.namespace)
        place.has_slot = True
        return True

    def _free_slot(self, place: _Place) -> None:
        """Its slot is taken at once by the next one that waits for it: none overtakes that one."""
        node = self._nodes.get(place.node or "")
        if node is None:
            return
        if place.has_slot:
            node.slots.give_back(place.namespace)
        found: list[tuple[K, _Place]] = []
        while (namespace := next(filter(node.slots.may_take, node.waiting), None)) is not None:
            found.append(_next_of(node.waiting, namespace))
            node.slots.take(namespace)
        for key, waited in reversed(found):
            waited.has_slot = True
            _line_up(self._lines, key, waited, is_ahead=True)
        if not (node.slots.total or node.waiting):
            del self._nodes[place.node or ""]


def _line_up(
    lines: OrderedDict[str, OrderedDict[K, _Place]], key: K, place: _Place, *, is_ahead: bool = False
) -> None:
    line = lines.setdefault(place.namespace, OrderedDict())
    line[key] = place
    if is_ahead:
        line.move_to_end(key, last=False)


def _next_of(lines: OrderedDict[str, OrderedDict[K, _Place]], namespace: str) -> tuple[K, _Place]:
    """The first one of the namespace, which then waits for the other namespaces."""
    line = lines[namespace]
    found = line.popitem(last=False)
    if line:
        lines.move_to_end(namespace)
    else:
        del lines[namespace]
    return found
