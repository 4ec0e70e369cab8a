"""Whether a thread is stalled by what it writes to, or only gets no core."""

from __future__ import annotations

import threading
import time

from .termination import let_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class StallClock:
    """How long a thread has waited for something else than a core, from now on and as far as it is looked at.

    A thread that waits for Python's lock wakes up each 5 ms: it is not still.
    """

    __slots__ = ("_looked_s", "_switches", "still_s", "waited_s")

    def __init__(self) -> None:
        self.still_s = 0.0  # since it ran last
        self.waited_s = 0.0  # in all
        self._looked_s = time.monotonic()
        self._switches = b"?"

    def look(self, thread: Optional[threading.Thread]) -> None:
        now_s = time.monotonic()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        state, switches = read_state(thread)
        if state == b"R":
            self.still_s = 0.0
            return
        self.waited_s += passed_s
        self.still_s = self.still_s + passed_s if switches == self._switches else 0.0
        self._switches = switches


def read_state(thread: Optional[threading.Thread]) -> tuple[bytes, bytes]:
    """R where a thread would run, if there were a core for it; and how often it has begun to wait.

    Empty where the kernel does not say, and of a greenlet: its thread is the one that looks.
    """
    number = thread.native_id if thread else None
    if number is None or number == threading.get_native_id():
        return b"", b""
    try:
        with open(f"/proc/self/task/{number}/status", "rb") as file:
            text = file.read()
    except OSError as error:
        let_through(error)
        return b"", b""
    state = text.partition(b"\nState:\t")[2][:1]
    return state, text.partition(b"\nvoluntary_ctxt_switches:")[2].partition(b"\n")[0]
