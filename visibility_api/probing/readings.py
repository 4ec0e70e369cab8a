"""Reads what probes bring, in turns of the event loop with pushes, and within the same budgets of time.

A line of a log may take some milliseconds, and what is read of it some hundred. So it is read in steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar
from weakref import WeakValueDictionary

from visibility_api.flowcontrol.report_shares import MOST_MS, TURN_MS, Budgets, LoopTurns, expected_ms
from visibility_api.jobs.job import JobRef

T = TypeVar("T")

STEP_BYTES = 16 * 1024  # of which a turn is expected to read the lines of a log


class Readings:
    """A namespace whose budget is used up waits, and the probes of its jobs with it. Of each namespace one
    reading is under way: what is begun last does not delay what was begun before."""

    def __init__(self, budgets: Budgets | None = None, turns: LoopTurns | None = None) -> None:
        self._budgets = Budgets() if budgets is None else budgets
        self._turns = LoopTurns() if turns is None else turns
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by namespace

    async def read(self, ref: JobRef, size_bytes: int, parse: Callable[[], T]) -> T:
        """What `parse` makes of so many bytes of a report of this job, within some milliseconds."""
        return await self.read_in_steps(ref, size_bytes, _in_one_step(parse))

    async def read_in_steps(self, ref: JobRef, size_bytes: int, steps: Generator[None, None, T]) -> T:
        """What `steps` returns, each of which takes some milliseconds at most."""
        lock = self._under_way.get(ref.namespace) or self._under_way.setdefault(ref.namespace, asyncio.Lock())
        size_bytes = min(size_bytes, STEP_BYTES)
        async with lock:
            while True:
                await self._budgets.wait(ref.namespace)
                await self._turns.wait(ref.namespace, size_bytes)
                began = time.perf_counter()
                try:
                    while time.perf_counter() - began < TURN_MS / 1000:
                        next(steps)
                except StopIteration as done:
                    result: T = done.value
                    return result
                finally:
                    self.charge(ref, began, size_bytes)

    def charge(self, ref: JobRef, began: float, size_bytes: int = 0) -> None:
        """Since `began`, by `time.perf_counter`, a report of this job has kept the loop. What is beyond the
        most that it may take is the node's fault."""
        ms = min(1000 * (time.perf_counter() - began), expected_ms(size_bytes, MOST_MS))
        self._budgets.charge_probed(ref.namespace, ref.uid, ms)
        self._turns.spend(ref.namespace, ms)


def _in_one_step(parse: Callable[[], T]) -> Generator[None, None, T]:
    return parse()
    yield
