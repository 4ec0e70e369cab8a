"""A token bucket: a rate limit with a burst."""

from __future__ import annotations

from collections.abc import Hashable

from cachetools import LRUCache


class Bucket:
    """Full at first. `now` is a monotonic clock in seconds."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, *, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take one token; False when there is none."""
        left = self._left + (now - self._at) * self._per_s
        self._at = now
        if left > self._burst:
            left = self._burst
        if left < 1.0:
            self._left = left
            return False
        self._left = left - 1.0
        return True

    def charge(self, tokens: float) -> None:
        """Take so many more, which may not be there yet."""
        self._left -= tokens

    def wait_s(self, now: float) -> float:
        """Seconds until the next token; 0.0 when there is one."""
        return max(0.0, (1.0 - self._left) / self._per_s - (now - self._at))


class Buckets:
    """A bucket for each key, such as a user. The least recently used of `most` is dropped."""

    def __init__(self, *, per_s: float, burst: float, most: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: LRUCache[Hashable, Bucket] = LRUCache(most)

    def of(self, key: Hashable, now: float) -> Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(per_s=self._per_s, burst=self._burst, now=now)
        return bucket
