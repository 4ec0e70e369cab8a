"""A token bucket: so many a second on average, some more at once."""

from __future__ import annotations


class Bucket:
    """Full at first. `now` is any clock in seconds that never goes back."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, *, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one more may pass now."""
        left = self._left + (now - self._at) * self._per_s
        self._at = now
        if left > self._burst:
            left = self._burst
        if left < 1.0:
            self._left = left
            return False
        self._left = left - 1.0
        return True

    def wait_s(self, now: float) -> float:
        """How long until one more may pass; 0.0 when it may now."""
        return max(0.0, (1.0 - self._left) / self._per_s - (now - self._at))
