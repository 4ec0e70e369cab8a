"""A sink for people: a progress bar on the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Optional, TextIO

from trainjob_progress.document import Snapshot

_EIGHTHS = " ▏▎▍▌▋▊▉█"


class BarSink:
    """Redraws a line on `stream` (default: stderr); prints some lines where that is no terminal."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.interval_s = 0.1 if self._is_terminal else 15.0
        self._is_drawn = False

    def write(self, snapshot: Snapshot) -> None:
        if not self._is_terminal:
            self._stream.write(draw(snapshot, 120) + "\n")
        else:
            columns = shutil.get_terminal_size().columns
            self._stream.write("\r\x1b[2K" + draw(snapshot, columns - 1))
            self._is_drawn = True
        self._stream.flush()

    def close(self) -> None:
        if self._is_drawn:
            self._stream.write("\n")
            self._stream.flush()


def draw(snapshot: Snapshot, columns: int) -> str:
    """One line of at most `columns` characters: share, bar, steps, time left, metrics as far as they fit."""
    left = "" if snapshot.percentage is None else f"{snapshot.percentage:3d}% "
    steps = str(snapshot.step or 0) + (f"/{snapshot.total_steps}" if snapshot.total_steps else "")
    parts = [steps]
    if snapshot.state == "running" and snapshot.remaining_s is not None:
        parts.append(f"{format_duration(snapshot.remaining_s)} left")
    elif snapshot.state != "running":
        parts.append(f"{snapshot.state} after {format_duration(snapshot.timestamp - snapshot.start_time)}")
    parts += [f"{name}={_short(value)}" for name, value in snapshot.metrics.items()]
    if snapshot.message:
        parts.append(snapshot.message.split("\n", 1)[0])
    right = ""
    for part in parts:
        longer = f"{right}  {part}" if right else part
        if len(left) + len(longer) > columns:
            break
        right = longer
    width = min(30, columns - len(left) - len(right) - 3)
    if snapshot.percentage is None or width < 5:
        return _printable(f"{left}{right}")[: max(columns, 0)]
    eighths = width * 8 * snapshot.percentage // 100
    filled = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return _printable(f"{left}|{filled.ljust(width)}| {right}")


def format_duration(seconds: float) -> str:
    """1:05, 12:34, 3:00:07."""
    minutes, second = divmod(int(max(seconds, 0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
