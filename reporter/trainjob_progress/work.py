"""A rank's own work for a step, without what it waits for other ranks, as far as the system knows it.

Own work is what its loop waits for data, as `track` and the frameworks' hooks measure it, and the time of the
thread that trains on a CPU, or ready for one that others use. Who waits for other ranks in a collective takes
none; but who waits for an accelerator may, by spinning. Sums of both never exceed the step. What its
checkpoints take comes on top, spread over the steps between them.
"""

from __future__ import annotations

import os
import threading

from .marks import LOADING, SAVE

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
SAVES = 4  # checkpoints, the last ones


def read_cpu_s(thread: int) -> Optional[float]:
    """For which a thread had a CPU, or was ready for one; None where nobody knows."""
    number = os.getpid()
    if thread != threading.main_thread().ident:
        number = next((one.native_id or 0 for one in threading.enumerate() if one.ident == thread), 0)
    try:
        with open(f"/proc/self/task/{number}/schedstat", "rb") as file:
            had_ns, ready_ns, _ = file.read().split()
        if int(had_ns):
            return (int(had_ns) + int(ready_ns)) / 1e9
    except (OSError, ValueError):  # a kernel without it
        pass
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
        self._saves: list[tuple[int, float]] = []  # the step after it, and what it took
        self._best_save_s = 0.0  # a step; 0: not known

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
        if before is None or step < before[1]:
            return
        waits_s = [now_s - then_s for now_s, then_s in zip(spent_s, before[2])]  # noqa: B905 — 3.9
        if waits_s[SAVE] > 0:
            self._saves = [*self._saves[1 - SAVES :], (step, waits_s[SAVE])]
            save_s = self._find_save_s()
            self._best_save_s = min(save_s, self._best_save_s or save_s)
        if section is not None or any(wait_s for kind, wait_s in enumerate(waits_s) if kind != LOADING):
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
        save_s, best_save_s = self._find_save_s(), self._best_save_s
        work_s, best_s = _add(now) + save_s, _add(best) + best_save_s
        if work_s <= 0:
            return {}
        parts = {"DataLoading": now[1], "Productive": now[2], "CheckpointSave": save_s}
        if work_s > CLEARLY * best_s:
            parts["DataLoading"] -= best[1]
            parts["Productive"] -= best[2]
            parts["CheckpointSave"] -= best_save_s
        return {
            "stepSeconds": _round(now[0] + save_s),
            "workSeconds": _round(work_s),
            "bestWorkSeconds": _round(min(best_s, work_s)),
            "slowest": max(sorted(parts, reverse=True), key=lambda kind: parts[kind]),
        }

    def _find_save_s(self) -> float:
        """What checkpoints take of a step, by the steps between the last ones."""
        if len(self._saves) < 2 or self._saves[-1][0] <= self._saves[0][0]:
            return 0.0
        return sum(took_s for _, took_s in self._saves[1:]) / (self._saves[-1][0] - self._saves[0][0])

    def _find_median(self) -> Window:
        """By what the windows have worked."""
        by_work = sorted(self._windows, key=_add)
        return by_work[len(by_work) // 2]


def _add(window: Window) -> float:
    step_s, waited_s, computed_s = window
    return min(waited_s + computed_s, step_s)


def _round(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")
