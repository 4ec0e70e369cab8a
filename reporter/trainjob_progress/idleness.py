"""Since when this process and those that it has made do nothing: no work, no data from the network, no disk.

By /proc alone, on Linux; where that is not readable nothing is said. What waits for a lock, a pipe, a poll or
a sleep to end does nothing. What waits for a file, a volume or an answer on a socket may get it.
"""

from __future__ import annotations

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional

    # Seconds on the CPU, but for the thread that asks; bytes received, of all interfaces; the threads.
    Activity = tuple[float, int, frozenset[int]]

SHARE = 0.02  # of one CPU
RECEIVED_PER_S = 4096.0  # bytes: what launchers and stores send to see that all live is less
MAX_PROCESSES, MAX_TASKS = 1024, 512  # of the pod, and of this process and its own
# Where the kernel has what waits for a lock, a pipe, events, a child or a sleep.
_WAITS = (
    "futex", "pipe_", "anon_pipe", "do_poll", "do_sys_poll", "poll_schedule", "ep_poll", "do_epoll",
    "do_select", "do_wait", "hrtimer", "do_nanosleep", "unix_stream", "sigsuspend", "do_sigtimedwait",
)  # fmt: skip


class Idleness:
    """To be asked again and again, by one thread. `read`: what there is now; None while one is at work."""

    def __init__(self, read: Callable[[], Optional[Activity]]) -> None:
        self._read = read
        self._last: Optional[tuple[float, Activity]] = None
        self._since: Optional[float] = None  # Unix seconds

    def look(self) -> Optional[float]:
        """Since when, in Unix seconds; None: it is at work, or that is not known."""
        at_s, now, last = time.monotonic(), self._read(), self._last
        self._last = None if now is None else (at_s, now)
        if now is None or last is None:
            self._since = None
            return None
        took_s, (cpu_s, received, tasks) = at_s - last[0], last[1]
        is_idle = (
            now[2] == tasks
            and now[0] - cpu_s <= SHARE * took_s
            and now[1] - received <= RECEIVED_PER_S * took_s
        )
        if not is_idle:
            self._since = None
        elif self._since is None:
            self._since = time.time() - took_s
        return self._since


def read() -> Optional[Activity]:
    """Of this process now; None while one of them works, waits for a file, or cannot be read."""
    try:
        cpu_s, tasks = time.process_time() - time.thread_time(), set()
        own, asking, ticks = os.getpid(), threading.get_native_id(), os.sysconf("SC_CLK_TCK")
        for pid, spent in _find_family(own):
            cpu_s += 0.0 if pid == own else spent / ticks
            for name in os.listdir(f"/proc/{pid}/task"):
                tasks.add(int(name))
                is_asking = int(name) == asking
                if len(tasks) > MAX_TASKS or not (is_asking or _waits(f"/proc/{pid}/task/{name}")):
                    return None
        return cpu_s, _count_received(), frozenset(tasks)
    except (AttributeError, IndexError, OSError, ValueError):  # another system, or one that has just ended
        return None


def _find_family(own: int) -> Iterator[tuple[int, int]]:
    """Each process that is this one or was made by it, and its time on the CPU, in ticks."""
    found: dict[int, tuple[int, int]] = {}
    names = [name for name in os.listdir("/proc") if name.isdecimal()]
    if len(names) > MAX_PROCESSES:
        raise ValueError("more processes than are looked at")
    for name in names:
        try:
            fields = _read(f"/proc/{name}/stat").rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        found[int(name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    family = {own}
    while True:
        more = {pid for pid, (parent, _) in found.items() if parent in family} - family
        if not more:
            break
        family |= more
    for pid in family:
        yield pid, found[pid][1]


def _waits(task: str) -> bool:
    """Or would run: what it uses of a CPU is counted."""
    where = _read(f"{task}/wchan")
    is_ready = where in ("", "0") and _read(f"{task}/stat").rpartition(") ")[2].startswith("R")
    return is_ready or where.startswith(_WAITS)


def _count_received() -> int:
    lines = _read("/proc/self/net/dev").splitlines()[2:]
    return sum(int(line.partition(":")[2].split()[0]) for line in lines)


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()
