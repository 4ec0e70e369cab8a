"""What trials have reached, for those that come after them: curves of one metric. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from .job import JobRef

MAX_SAMPLES = 64  # of a completed trial


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of one metric of one trial, by step; by their number where there are no steps."""

    metric: str
    has_steps: bool
    positions: Sequence[float]
    values: Sequence[float]

    def averages(self) -> Curve:
        """Of all values until then, at some of the positions."""
        total, means = 0.0, []
        for count, value in enumerate(self.values, 1):
            total += value
            means.append(total / count)
        stride = -(-len(means) // MAX_SAMPLES) or 1
        kept = range((len(means) - 1) % stride, len(means), stride)  # the last one too
        positions = array("d", [self.positions[each] for each in kept])
        return Curve(self.metric, self.has_steps, positions, array("d", [means[each] for each in kept]))

    def at(self, position: float) -> float | None:
        """The value at the last position until then."""
        found = bisect_right(self.positions, position)
        return self.values[found - 1] if found else None


@dataclass(slots=True)
class Trials:
    """The jobs of one namespace with the same value of a label, and how those went that have completed."""

    key: tuple[str, ...]  # resource, namespace, label, value
    members: set[JobRef] = field(default_factory=set)
    completed: dict[JobRef, Curve] = field(default_factory=dict)  # oldest first

    @property
    def name(self) -> str:
        return "=".join(self.key[2:])
