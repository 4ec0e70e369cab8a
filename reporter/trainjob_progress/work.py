"""A rank's own work for a step, without what it waits for other ranks, as far as the system knows it.

Own work is what its loop waits for data, as `track` and the frameworks' hooks measure it, and the time on the
CPU of the thread that trains. Who waits for other ranks in a collective takes no time on the CPU; but who
waits for an accelerator may, by spinning. Sums of both never exceed the step.
"""

from __future__ import annotations

import os
import threading

from .marks import LOADING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .marks import Marks

    Window = tuple[float, float, float]  # of a step: seconds in all, waiting for data, on the CPU

WINDOW_S = 5.0
KEPT = 12  # windows
LEAST = 3
CLEARLY = 1.1  # times the best: what has grown since explains it
DIGITS = 4


def read_cpu_s(thread: int) -> Optional[float]:
    """That a thread has had; None where nobody knows."""
    number = os.getpid()
    if thread != threading.main_thread().ident:
        number = next((one.native_id or 0 for one in threading.enumerate() if one.ident == thread), 0)
    try:
        with open(f"/proc/self/task/{number}/stat", "rb") as file:
            user, system = file.read().rpartition(b") ")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Work:
    """Of one rank, from windows of some seconds."""

    def __init__(self, read_cpu_s: Callable[[int], Optional[float]] = read_cpu_s) -> None:
        self._read_cpu_s = read_cpu_s
        self._began: Optional[tuple[float, int, tuple[float, ...], float]] = None
        self._windows: list[Window] = []
        self._best: Optional[Window] = None

    def note(self, at_s: float, step: Optional[int], marks: Marks) -> None:
        """Where the rank stands. A section in between is no work of a step: its window is left out."""
        if step is None or (self._began is not None and at_s - self._began[0] < WINDOW_S):
            return
        if self._began is not None and step == self._began[1]:
            return  # a long step
        cpu_s = self._read_cpu_s(marks.threads[-1])
        if cpu_s is None:
            return
        spent_s, section = marks.read()
        before, self._began = self._began, (at_s, step, spent_s, cpu_s)
        if before is None or step < before[1] or section is not None:
            return
        waits_s = [now_s - then_s for now_s, then_s in zip(spent_s, before[2])]  # noqa: B905 — 3.9
        if any(wait_s for kind, wait_s in enumerate(waits_s) if kind != LOADING):
            return
        steps = step - before[1]
        window = (at_s - before[0]) / steps, waits_s[LOADING] / steps, (cpu_s - before[3]) / steps
        self._windows = [*self._windows[1 - KEPT :], window]
        if len(self._windows) == KEPT:
            now = self._find_median()
            if self._best is None or _add(now) < _add(self._best):
                self._best = now

    def find(self) -> dict[str, Any]:
        """The fields of a rank's file."""
        if len(self._windows) < LEAST:
            return {}
        now = self._find_median()
        best = self._best or now
        if _add(now) <= 0:
            return {}
        waited_s, computed_s = now[1], now[2]
        if _add(now) > CLEARLY * _add(best):
            waited_s, computed_s = waited_s - best[1], computed_s - best[2]
        return {
            "stepSeconds": _round(now[0]),
            "workSeconds": _round(_add(now)),
            "bestWorkSeconds": _round(min(_add(best), _add(now))),
            "slowest": "DataLoading" if waited_s > computed_s else "Productive",
        }

    def _find_median(self) -> Window:
        """By what the windows have worked."""
        by_work = sorted(self._windows, key=_add)
        return by_work[len(by_work) // 2]


def _add(window: Window) -> float:
    step_s, waited_s, computed_s = window
    return min(waited_s + computed_s, step_s)


def _round(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")
