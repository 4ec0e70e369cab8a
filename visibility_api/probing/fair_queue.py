"""Which waiting job is probed next: namespaces take turns, and share the slots of each node (decision 0029).

Pure. No step costs more with more keys; one that ends a probe looks at the namespaces that wait for its node.
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
class _Node(Generic[K]):
    """One node's slots, and the keys that wait for one."""

    jobs: Counter[str] = field(default_factory=Counter)  # that were joined, by namespace
    taken: Counter[str] = field(default_factory=Counter)  # slots, by namespace
    waiting: OrderedDict[str, OrderedDict[K, _Place]] = field(default_factory=OrderedDict)  # next one first

    def may_take(self, namespace: str, slots: int) -> bool:
        """Whether a slot is free, and the namespace holds less than its share of `slots`."""
        share = max(1, slots // max(1, len(self.jobs)))
        return self.taken.total() < slots and self.taken[namespace] < share


class FairQueue(Generic[K]):
    """First come, first served within a namespace; between namespaces in turn (round robin).

    At most `per_node` keys of one node are out at a time, and of one namespace its share of them: as many as
    of each other namespace that has jobs on that node. Keys that find no slot wait aside, so that a slow node
    delays no other; a slot that becomes free goes to the next namespace that waits for it.
    """

    def __init__(self, *, per_node: int) -> None:
        self._per_node = per_node
        self._lines: OrderedDict[str, OrderedDict[K, _Place]] = OrderedDict()  # by namespace, next first
        self._nodes: dict[str, _Node[K]] = {}
        self._waiting: dict[K, _Place] = {}
        self._out: dict[K, _Place] = {}

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    def join(self, namespace: str, node: str | None) -> None:
        """A job of this namespace is on this node, whether it waits or not: it counts for the shares."""
        if node is not None:
            self._nodes.setdefault(node, _Node()).jobs[namespace] += 1

    def leave(self, namespace: str, node: str | None) -> None:
        """The job that was joined has left the node."""
        if node is not None:
            _subtract(self._nodes[node].jobs, namespace)
            self._hand_out(node)

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
        while self._lines:
            key, place = _next_of(self._lines)
            if self._take_slot(place):
                del self._waiting[key]
                self._out[key] = place
                return key
            _line_up(self._nodes[place.node or ""].waiting, key, place)
        return None

    def release(self, key: K) -> None:
        """One that was popped is done."""
        self._free_slot(self._out.pop(key))

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
        node = self._nodes.setdefault(place.node, _Node())
        # Not before others of its namespace that wait already.
        if place.namespace in node.waiting or not node.may_take(place.namespace, self._per_node):
            return False
        node.taken[place.namespace] += 1
        place.has_slot = True
        return True

    def _free_slot(self, place: _Place) -> None:
        if place.node is None:
            return
        if place.has_slot:
            _subtract(self._nodes[place.node].taken, place.namespace)
        self._hand_out(place.node)

    def _hand_out(self, name: str) -> None:
        """Free slots are taken at once by the next ones that wait for them: none overtakes those."""
        node = self._nodes.get(name)
        if node is None:  # none of its jobs has come so far as to want a slot
            return
        found: list[tuple[K, _Place]] = []
        while namespace := next((n for n in node.waiting if node.may_take(n, self._per_node)), None):
            node.waiting.move_to_end(namespace, last=False)
            found.append(_next_of(node.waiting))
            node.taken[namespace] += 1
        for key, place in reversed(found):
            place.has_slot = True
            _line_up(self._lines, key, place, is_ahead=True)
        if not (node.jobs or node.taken or node.waiting):
            del self._nodes[name]


def _line_up(
    lines: OrderedDict[str, OrderedDict[K, _Place]], key: K, place: _Place, *, is_ahead: bool = False
) -> None:
    line = lines.setdefault(place.namespace, OrderedDict())
    line[key] = place
    if is_ahead:
        line.move_to_end(key, last=False)


def _next_of(lines: OrderedDict[str, OrderedDict[K, _Place]]) -> tuple[K, _Place]:
    """The first one of the namespace whose turn it is, which then waits for the other namespaces."""
    namespace, line = next(iter(lines.items()))
    found = line.popitem(last=False)
    if line:
        lines.move_to_end(namespace)
    else:
        del lines[namespace]
    return found


def _subtract(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
