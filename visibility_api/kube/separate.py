"""Namespaces whose large objects would delay all others on one stream: each gets a watch of its own.

kube-apiserver encodes the events of one stream one after the other, and takes some 0.2 s for a pod of 9 MB.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparationLimits:
    """When a namespace leaves the shared watch."""

    large_bytes: int = 64 * 1024  # shorter events do not count: those of a pod have 5 to 20 KiB
    bytes_a_minute: int = 32 * 1024 * 1024  # of one namespace's large events: four of the largest pods
    namespaces: int = 8  # of one collection; those beyond stay on the shared watch


class SeparateNamespaces(Generic[W]):
    """The namespaces that a cluster-wide watch leaves out, with the watch of each. None comes back.

    make: a watch of one namespace, which is not running yet.
    """

    def __init__(self, make: Callable[[str], W], limits: SeparationLimits = SeparationLimits()) -> None:
        self._make = make
        self._limits = limits
        self._watches: dict[str, W] = {}
        self._bytes: Counter[str] = Counter()  # of large events in this minute, by namespace
        self._minute = 0

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._watches

    def __iter__(self) -> Iterator[W]:
        return iter(self._watches.values())

    def clear(self) -> None:
        """There are none again."""
        self._watches.clear()
        self._bytes.clear()

    @property
    def field_selector(self) -> str:
        """Selects the objects of all other namespaces; "" when there is none to leave out."""
        return ",".join(f"metadata.namespace!={namespace}" for namespace in self._watches)

    def count(self, namespace: str, size: int) -> W | None:
        """Count an event of `size` bytes. Returns a watch to run if its namespace is separate from now on."""
        limits = self._limits
        if size < limits.large_bytes or len(self._watches) >= limits.namespaces:
            return None
        if (minute := int(time.monotonic() / 60)) != self._minute:
            self._minute = minute
            self._bytes.clear()
        self._bytes[namespace] += size
        if self._bytes[namespace] <= limits.bytes_a_minute or not namespace or namespace in self._watches:
            return None
        self._watches[namespace] = self._make(namespace)
        return self._watches[namespace]
