"""An event loop in a thread of its own, so that tests may block while the cluster goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """`call` runs a coroutine there and waits for it; `spawn` leaves it running until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._spawned: list[asyncio.Task[Any]] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster loop", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> None:
        async def start() -> None:
            self._spawned.append(asyncio.create_task(work, name=name))

        self.call(start())

    def check(self) -> None:
        """Raise what ended a spawned task, if one has ended: they are all meant to last."""
        for task in self._spawned:
            if task.done():
                task.result()
                raise RuntimeError(f"{task.get_name()} has ended")

    def stop(self) -> None:
        async def cancel_all() -> None:
            for task in self._spawned:
                task.cancel()
            await asyncio.gather(*self._spawned, return_exceptions=True)

        self.call(cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
