"""A progress bar below the output of a wrapped command: the last row of the terminal is kept for it."""

from __future__ import annotations

import os

from trainjob_progress.document import Snapshot

from .bar import BarSink, draw, find_size

_SAVE, _RESTORE = "\x1b7", "\x1b8"  # the cursor, with its colours


class BelowSink(BarSink):
    """The rows above scroll by themselves, so the command's output needs no care. Elsewhere: as BarSink."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = 0

    def write(self, snapshot: Snapshot) -> None:
        if not self._is_terminal:
            super().write(snapshot)
            return
        columns, rows = find_size(self._stream)
        begin = ""
        if rows != self._rows:  # a line feed makes room where the cursor is in the last row
            begin = f"\n\x1b[A{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}"
            self._rows = rows
        self._drawn = draw(snapshot, columns - 1)
        self._put(f"{begin}{_SAVE}\x1b[{rows};1H\x1b[2K{self._drawn}{_RESTORE}")

    def close(self) -> None:
        """All rows scroll again, and the bar stays as a line of its own."""
        if self._rows:
            rows, self._rows = self._rows, 0
            end = f"{_SAVE}\x1b[r\x1b[{rows};1H\x1b[2K{_RESTORE}"
            self._put(f"{end}{os.linesep}{self._drawn}{os.linesep}")
            self._drawn = ""
