"""An event loop in a thread of its own, so that tests may block while the cluster goes on."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.e2e.processes import PATIENCE_S, wait_until

T = TypeVar("T")


class LoopThread:
    """`call` runs a coroutine there and waits for it, or raises TimeoutError."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster loop", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float = PATIENCE_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def check_alive(self) -> None:
        """Raise RuntimeError when the loop has ended."""
        if not self._thread.is_alive():
            raise RuntimeError("the event loop of the cluster has ended")

    def stop(self) -> None:
        """End the loop when its last connection has closed: TLS says goodbye in the background."""
        wait_until(
            lambda: len(self._selector.get_map()) <= 1,  # its own wake-up pipe is left
            what="every connection and pipe of the cluster's loop is closed",
        )
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
