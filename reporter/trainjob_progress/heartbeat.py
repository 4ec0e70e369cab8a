"""A rank's own file: the step where it stands and, when that does not move any more, the stack that it is in.

Each rank writes its own, beside the progress file. A thread of ours looks at the run twice a second: the loop
does nothing for it. The form is docs/document.md's.
"""

from __future__ import annotations

import os
import time

from . import document, idleness, stacks  # here: what a thread imports takes memory of its own
from .document import format_time, now_s
from .positions import find_position
from .rank import find_world_size
from .sinks.file import remove_file, replace_file
from .watchdog import make_watchdog
from .work import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .live_run import LiveRun

INTERVAL_S = 15.0  # between two writes while steps come, but sooner at the beginning
STACK_INTERVAL_S = 5.0  # between two writes while stacks change
IDLE_INTERVAL_S = 5.0  # between two looks at what the process and its own do
WATCHED_S = 10.0  # a shorter run of one rank has no watchdog
MAX_BYTES = 2048
QUIET_S = 30.0  # without a step, until the stack is sampled
USUAL = 5  # times the usual step, until then
KEPT = 31  # steps whose median is the usual one
HALF_LIFE_S = 3600.0  # of the longest wait


class Rhythm:
    """How long a run goes without a step, as a rule. Pure."""

    def __init__(self) -> None:
        self._lately: list[float] = []  # seconds for a step
        self._longest_s = 0.0  # without one
        self._moved_s: Optional[float] = None

    def note(self, at_s: float, steps: int) -> None:
        """So many steps were done since the last call."""
        if self._moved_s is not None:  # what comes before the first step comes once
            wait_s = at_s - self._moved_s
            self._lately = [*self._lately[1 - KEPT :], wait_s / max(steps, 1)]
            self._longest_s = max(wait_s, self._longest_s * 0.5 ** (wait_s / HALF_LIFE_S))
        self._moved_s = at_s

    def is_explained(self, wait_s: float) -> bool:
        """Whether a wait of so long is nothing out of the way."""
        usual_s = sorted(self._lately)[len(self._lately) // 2] if self._lately else 0.0
        return wait_s <= max(QUIET_S, USUAL * usual_s, self._longest_s)


class Heartbeat:
    """Of one run: a sink of what it notes itself."""

    interval_s = 1.0

    def __init__(self, run: LiveRun, path: str, rank: int, *, is_alone: bool) -> None:
        """`is_alone`: the only rank; its file is written only when it does not get on."""
        self._run = run
        self._path = f"{os.path.abspath(path)}.rank-{rank}"
        self._temporary = f"{self._path}.{os.getpid()}.{id(self):x}.tmp"
        host = os.uname().nodename if hasattr(os, "uname") else ""
        began = format_time(now_s())
        self._known: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "host": host, "began": began}
        world_size = find_world_size()
        if world_size is not None:
            self._known["worldSize"] = world_size
        local_rank = os.environ.get("LOCAL_RANK", "")
        if local_rank.isdecimal():
            self._known["localRank"] = int(local_rank)
        self._is_wanted = not is_alone
        self._watchdog = make_watchdog(f"{self._path}.trace")
        self._rhythm, self._work = Rhythm(), Work()
        self._began_s = self._moved_s = time.monotonic()
        self._moved_at: Optional[float] = None  # Unix seconds; of the first step none is known
        self._position: Optional[tuple[Any, ...]] = None
        self._frames: list[str] = []
        self._sampled_at = self._same_since = 0.0  # Unix seconds
        self._idleness: Optional[idleness.Idleness] = None
        self._idle_since: Optional[float] = None  # Unix seconds
        self._asked_s = float("-inf")  # when that was looked at
        self._made_s = float("-inf")
        self._body: Optional[bytes] = None

    def look(self) -> Any:  # noqa: ANN401 — bytes, where a publisher expects a snapshot
        """What the file is to say now, a new object when there is something to write."""
        run, at_s = self._run, time.monotonic()
        if run.is_over:
            if self._is_wanted and "ended" not in self._known:
                self._known["ended"] = format_time(now_s())
                last = run.snapshot
                if last is not None and last.step is not None:
                    self._known["step"] = last.step
                self._make(at_s)
            return self._body
        has_changed = self._follow_step(at_s)
        if not self._rhythm.is_explained(at_s - self._moved_s):
            has_changed = self._sample() or has_changed
            self._follow_idleness(at_s)
        age_s = at_s - self._began_s
        if self._watchdog is not None and (self._is_wanted or age_s >= WATCHED_S):
            try:
                self._watchdog.arm()
            except OSError:
                watchdog, self._watchdog = self._watchdog, None
                watchdog.end()
        interval_s = STACK_INTERVAL_S if has_changed else INTERVAL_S
        if self._is_wanted and at_s - self._made_s >= min(interval_s, max(age_s / 2, 1.0)):
            self._make(at_s)
        return self._body

    def write(self, body: Any) -> None:  # noqa: ANN401 — as `look` gives it
        """In silence: rank 0's own file tells of a place where nothing can be written."""
        try:  # noqa: SIM105 — contextlib takes its time to be imported
            replace_file(self._path, self._temporary, body)
        except OSError:
            pass

    def close(self) -> None:
        remove_file(self._temporary)
        if self._watchdog is not None:
            watchdog, self._watchdog = self._watchdog, None
            watchdog.end()

    def close_in_child(self) -> None:
        if self._watchdog is not None:
            self._watchdog.forget()

    def _follow_step(self, at_s: float) -> bool:
        """Whether it moves again after a stack was sampled."""
        levels = tuple(self._run.levels)
        now = find_position([level for level in levels if level._counts]) if levels else None
        marks = self._run.marks
        position = None if now is None else (now.step, now.epoch, levels[0]._percentage)
        has_moved = position is not None and position != self._position
        if now is not None and marks is not None:
            self._work.note(at_s, now.step, marks)
        if not has_moved or now is None:
            return False
        before = self._known.get("step")
        if self._position is not None:
            steps = now.step - before if now.step is not None and before is not None else 1
            self._rhythm.note(at_s, steps)
            self._moved_at = now_s()
        self._position, self._moved_s = position, at_s
        if now.step is not None:
            self._known["step"] = now.step
        was_still, self._frames, self._idleness = bool(self._frames), [], None
        return was_still

    def _sample(self) -> bool:
        """Whether the stack is another one than before."""
        marks = self._run.marks
        if marks is None:
            return False
        frames = stacks.sample(marks.threads[-1])
        if not frames:
            return False
        self._sampled_at = now_s()
        self._is_wanted = True
        if frames == self._frames:
            return False
        self._frames, self._same_since = frames, self._sampled_at
        return True

    def _follow_idleness(self, at_s: float) -> None:
        if at_s - self._asked_s < IDLE_INTERVAL_S:
            return
        if self._idleness is None:
            self._idleness = idleness.Idleness(idleness.read)
        self._asked_s, self._idle_since = at_s, self._idleness.look()

    def _make(self, at_s: float) -> None:
        self._made_s = at_s
        said = {**self._known, "time": format_time(now_s()), **self._work.find()}
        if self._moved_at is not None:
            said["stepTime"] = format_time(self._moved_at)
        section = self._run.marks.read(is_over=self._run.is_over)[1] if self._run.marks is not None else None
        if section is not None:
            said["section"] = section[0]
        if self._run.devices:
            said["accelerators"] = self._run.devices
        frames = self._frames if "ended" not in said else []
        self._body = _encode(said)
        while frames:
            times = {"time": format_time(self._sampled_at), "since": format_time(self._same_since)}
            if self._idle_since is not None:
                times["idleSince"] = format_time(self._idle_since)
            body = _encode({**said, "stack": {**times, "frames": frames}})
            if len(body) <= MAX_BYTES:
                self._body = body
                return
            frames = frames[:-1]


def _encode(said: dict[str, Any]) -> bytes:
    return document._encode(said).encode("utf-8", "replace")
