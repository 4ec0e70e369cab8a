"""What the output may have: colour, blocks, a width. And the pieces that are drawn with them."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from dataclasses import dataclass
from typing import List, Optional, Sequence, TextIO, Tuple

RED, GREEN, YELLOW, BLUE, DIM, BOLD = "31", "32", "33", "34", "2", "1"
_PHASES = {"Running": BLUE, "Succeeded": GREEN, "Failed": RED, "Suspended": DIM, "Pending": DIM}
_GAP = 3  # between columns
_BRAILLE = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)  # the dots of one character, by row and column


@dataclass(frozen=True)
class Terminal:
    """Where the output goes. A pipe is plain: no colour, no bars, and as wide as its lines are."""

    is_terminal: bool = False
    has_colour: bool = False
    has_blocks: bool = False
    width: Optional[int] = None  # None: no limit
    height: int = 24

    @classmethod
    def of(cls, stream: TextIO) -> "Terminal":
        """NO_COLOR and TERM=dumb are heeded: https://no-color.org."""
        is_terminal = stream.isatty()
        is_dumb = os.environ.get("TERM", "") in ("", "dumb")
        size = shutil.get_terminal_size()
        return cls(
            is_terminal=is_terminal and not is_dumb,
            has_colour=is_terminal and not is_dumb and not os.environ.get("NO_COLOR"),
            has_blocks=is_terminal and not is_dumb and "utf" in (stream.encoding or "").lower(),
            width=size.columns if is_terminal else None,
            height=size.lines,
        )

    def paint(self, text: str, *codes: str) -> str:
        """In that colour, where there are colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.has_colour and text and codes else text

    def paint_phase(self, phase: str) -> str:
        return self.paint(phase, *([_PHASES[phase.strip()]] if phase.strip() in _PHASES else []))

    def bar(self, share: float, cells: int, *codes: str) -> str:
        """`share` of it is full, in eighths of a cell; with # where there are no blocks."""
        share = min(max(share, 0.0), 1.0)
        if not self.has_blocks:
            full = int(share * cells + 0.5)
            return "#" * full + "." * (cells - full)
        eighths = int(share * cells * 8 + 0.5)
        text = "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")
        return self.paint(text, *codes) + self.paint("░" * (cells - len(text)), DIM)


def terminal() -> Terminal:
    """Of what is printed."""
    return Terminal.of(sys.stdout)


def cells_of(text: str) -> int:
    """How many columns a text takes: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(bool(unicodedata.combining(each)) for each in text)


def cut(text: str, cells: int, mark: str = "…") -> str:
    """At most so many columns, with the mark where something is missing."""
    if cells_of(text) <= cells:
        return text
    while text and cells_of(text) > cells - 1:
        text = text[:-1]
    return text + mark if cells > 0 else ""


def harmless(text: str) -> str:
    """Without control characters: what a run says may not drive a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def wrap(text: str, width: Optional[int], indent: str = "") -> str:
    """Into lines of the terminal; a pipe gets one line."""
    import textwrap

    if width is None:
        return indent + text
    return textwrap.fill(
        text, max(width, 20), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def columns(rows: Sequence[Sequence[str]], widths: Optional[List[int]] = None) -> List[str]:
    """Lines, each column as wide as its widest cell, as kubectl prints them. `widths` grows with the rows."""
    measure = len if all("".join(row).isascii() for row in rows) else cells_of
    widths = [] if widths is None else widths
    found = [max(map(measure, column)) + _GAP for column in zip(*rows)] if rows else []
    widths[:] = map(max, found, widths or found)
    if measure is len:
        return ["".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [
        "".join(cell + " " * (width - cells_of(cell)) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]


def curve(points: Sequence[Tuple[float, float]], width: int, height: int, shown: Terminal) -> List[str]:
    """A line through the points, with its least and greatest value: dots of Braille, or * in plain text."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high, left = min(ys), max(ys), min(xs)
    labels = [f"{high:.4g}", f"{low:.4g}"]
    margin = max(map(len, labels)) + 1
    across, down = (2, 4) if shown.has_blocks else (1, 1)
    wide, tall = max(2, (width - margin)) * across, height * down
    dots = set()
    last: Optional[Tuple[int, int]] = None
    for x, y in points:
        column = round((x - left) / ((max(xs) - left) or 1.0) * (wide - 1))
        # Halves: the difference of two doubles may be infinite.
        row = round((high / 2 - y / 2) / ((high / 2 - low / 2) or 1.0) * (tall - 1))
        if last is not None:  # without gaps: what lies between two columns is drawn as well
            steps = max(abs(column - last[0]), abs(row - last[1]), 1)
            dots |= {
                (
                    last[0] + round((column - last[0]) * n / steps),
                    last[1] + round((row - last[1]) * n / steps),
                )
                for n in range(steps)
            }
        dots.add((column, row))
        last = (column, row)
    lines = []
    for line in range(height):
        text = ""
        for column in range(wide // across):
            if across == 1:
                text += "*" if (column, line) in dots else " "
            else:
                bits = sum(
                    _BRAILLE[row][side]
                    for row in range(4)
                    for side in range(2)
                    if (column * 2 + side, line * 4 + row) in dots
                )
                text += chr(0x2800 + bits) if bits else " "
        label = labels[0] if line == 0 else labels[1] if line == height - 1 else ""
        lines.append(f"{label:>{margin - 1}} {text}".rstrip())
    ends = f"{left:g}", f"{max(xs):g}"
    lines.append(" " * margin + ends[0] + ends[1].rjust(max(1, wide // across - len(ends[0]))))
    return lines
