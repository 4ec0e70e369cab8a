"""An event loop whose clock jumps to the next timer when nothing else is left to do: hours pass at once.

For code that only computes and waits. A real socket would be told that its time is up before it has answered.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from visibility_api.flowcontrol.report_shares import Budgets, LoopTurns
from visibility_api.probing.readings import Readings

P = ParamSpec("P")


class _Selector(selectors.DefaultSelector):
    """Waits for nothing; what it should have waited is added to `skipped_s`."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits for something that no timer will bring")
        self.skipped_s += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _Selector()
        super().__init__(self._jumps)

    def time(self) -> float:
        """What was waited for. What computing takes is no time here: on no machine is it the same."""
        return self._jumps.skipped_s


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run this async test on such a loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class NoTurns(LoopTurns):
    """Those of the event loop go by the real clock, and a machine that is busy would spoil them."""

    async def wait(self, namespace: str, size_bytes: int) -> None: ...


def readings_in_loop_time() -> Readings:
    return Readings(Budgets(clock=asyncio.get_running_loop().time), NoTurns())
