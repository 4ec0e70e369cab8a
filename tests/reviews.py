"""A kube-apiserver that answers reviews as it is told, on a clock that is ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any


class FakeApi:
    """A `Client` of `review_client`. `failures` come first, one a call: an exception to raise, or a response.

    `is_held`: answers wait for `release`. `sleep` takes no time; `time` is for caches.
    """

    def __init__(
        self, *, status: dict[str, Any], failures: Sequence[Exception | bytes] = (), is_held: bool = False
    ) -> None:
        self.status = status
        self.calls: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.timeouts_s: list[float] = []
        self.slept_s: list[float] = []
        self.time = 0.0
        self._failures = list(failures)
        self._released = asyncio.Event()
        if not is_held:
            self._released.set()

    def release(self) -> None:
        self._released.set()

    def hold(self) -> None:
        """Answers wait for `release` from now on."""
        self._released.clear()

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        self.calls.append(json.loads(body))
        self.paths.append(path)
        self.timeouts_s.append(timeout_s)
        await self._released.wait()
        if self._failures:
            failure = self._failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return json.dumps({"kind": "Review", "spec": {}, "status": self.status}).encode()


async def until(holds: Callable[[], bool]) -> None:
    """Let other tasks run until `holds`; gives up after many turns."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")
