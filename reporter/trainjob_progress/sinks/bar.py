"""Sinks for people: a progress bar on the terminal, and in a notebook one that updates itself."""

from __future__ import annotations

import os
import shutil
import sys
from html import escape
from importlib import import_module
from typing import Any, Optional, TextIO

from trainjob_progress.document import Snapshot

_EIGHTHS = " ▏▎▍▌▋▊▉█"


class BarSink:
    """Redraws a line on `stream` (default: stderr); prints some lines where that is no terminal."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.interval_s = 0.1 if self._is_terminal else 15.0
        self._drawn = ""

    def __reduce__(self) -> Any:  # noqa: ANN401 — whatever copy and pickle take
        return BarSink, ()  # a stream belongs to its process

    def write(self, snapshot: Snapshot) -> None:
        if not self._is_terminal:
            self._put(draw(snapshot, 120) + "\n")
        else:
            self._drawn = draw(snapshot, find_size(self._stream)[0] - 1)
            self._put("\r\x1b[2K" + self._drawn)

    def write_line(self, text: str) -> None:
        """Print above the bar, which is drawn again below."""
        if self._drawn:
            self._put("\r\x1b[2K")
        print_line(text)
        self._put(self._drawn)

    def close(self) -> None:
        if self._drawn:
            self._put("\n")
            self._drawn = ""

    def _put(self, text: str) -> None:
        try:
            descriptor = self._stream.fileno()
        except Exception:
            self._stream.write(text)
            self._stream.flush()
        else:
            # Past the stream's buffer: a thread that hangs in it at the end of the process holds the buffer's
            # lock, and the interpreter dies of that.
            os.write(descriptor, text.encode(getattr(self._stream, "encoding", None) or "utf-8", "replace"))


class NotebookSink:
    """A bar in the cell that began to report, drawn anew as the run goes on."""

    interval_s = 0.5
    reopens = True

    def __init__(self, display: Any) -> None:  # noqa: ANN401 — IPython.display, which is not installed here
        """`display`: the module that shows things in a notebook."""
        self._display = display
        self._handle = display.display(display.HTML(draw_html(None)), display_id=True)

    def __reduce__(self) -> Any:  # noqa: ANN401
        return BarSink, ()

    def write(self, snapshot: Snapshot) -> None:
        self._handle.update(self._display.HTML(draw_html(snapshot)))

    def write_line(self, text: str) -> None:
        print_line(text)

    def close(self) -> None:
        pass


def make_bar() -> Any:  # noqa: ANN401 — a Sink; its Protocol is for type checkers alone
    """The bar that fits: a notebook's where there is a notebook, else the terminal's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and type(shell).__name__ == "ZMQInteractiveShell":
        return NotebookSink(import_module("IPython.display"))
    return BarSink()


def print_line(text: str) -> None:
    """On stdout, as tqdm does; what its encoding does not have is a question mark."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def find_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal that a stream writes to: stdout may be another one, or none."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):
        columns = rows = 0
    return (columns, rows) if columns and rows else shutil.get_terminal_size()


def draw(snapshot: Snapshot, columns: int) -> str:
    """One line of at most `columns` characters: share, bar, steps, time, rate, metrics as far as they fit."""
    left = "" if snapshot.percentage is None else f"{snapshot.percentage:3d}% "
    right = ""
    for part in _describe(snapshot):
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


def draw_html(snapshot: Optional[Snapshot]) -> str:
    """The same for a notebook."""
    if snapshot is None:
        return "<progress></progress>"
    share = "" if snapshot.percentage is None else f' value="{snapshot.percentage}" max="100"'
    text = escape("  ".join(_describe(snapshot)))
    percentage = "" if snapshot.percentage is None else f"{snapshot.percentage}% "
    return f'<progress style="width:20em"{share}></progress> <code>{percentage}{text}</code>'


def format_duration(seconds: float) -> str:
    """1:05, 12:34, 3:00:07."""
    minutes, second = divmod(int(max(seconds, 0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _describe(snapshot: Snapshot) -> list[str]:
    parts = []
    if snapshot.step is not None:
        parts.append(str(snapshot.step) + (f"/{snapshot.total_steps}" if snapshot.total_steps else ""))
    elapsed = format_duration(snapshot.timestamp - snapshot.start_time)
    if snapshot.state == "running":
        parts.append(elapsed)
        if snapshot.remaining_s is not None:
            parts.append(f"{format_duration(snapshot.remaining_s)} left")
    else:
        parts.append(f"{'stopped' if snapshot.ending == 'stopped' else snapshot.state} after {elapsed}")
    if snapshot.rate:
        parts.append(
            f"{snapshot.rate:.3g} steps/s" if snapshot.rate >= 1 else f"{1 / snapshot.rate:.3g} s/step"
        )
    parts += [f"{name}={_short(value)}" for name, value in snapshot.metrics.items()]
    if snapshot.message:
        parts.append(snapshot.message.split("\n", 1)[0])
    return parts


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
