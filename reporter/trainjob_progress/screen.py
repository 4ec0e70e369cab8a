"""The lines of a terminal, as far as programs redraw them: text with control characters in, lines out.

A bar is drawn over and over in its line, below others, or a few characters at a time. A line comes in pieces.
What counts is what a terminal would show each time a line is left or begun anew. Not modelled: its width (a
line is as long as what is written into it), colours, characters that take two cells, scroll regions.

Work is bounded by the text: a control sequence changes one line of MAX_LINE characters, or the kept lines.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from .lines import MAX_LINE
from .patterns import lazily

MAX_LINES = 64  # of the screen: a program can come back to these; what is above is over
_TOKEN = lazily(
    r"([^\x00-\x1f\x7f]+)"  # text
    r"|\x1b\[([0-9;:<=>?]{0,32})[ -/]{0,4}([@-~])"  # a sequence: numbers, and what is to be done
    r"|\x1b\][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)"  # a title or a link, which shows nothing
    r"|\x1b[()*+#%][0-~]"  # character sets
    r"|(\x1b[78]|\x1b(?=[^\[\]()*+#%])[ -~]|[\x00-\x1f\x7f])"
)
# The beginning of a sequence whose end has not come.
_UNFINISHED = lazily(r"\x1b(?:\[[0-9;:<=>?]{0,32}[ -/]{0,4}|\][^\x07\x1b]{0,1024}\x1b?|[()*+#%])?\Z")
_LAST_CHARACTERS = 1100  # more than an unfinished sequence has


class Line(NamedTuple):
    """What a line showed when it was left."""

    text: str
    depth: int  # lines below the one to which the cursor went back: how tqdm draws an inner bar


class Screen:
    """Follows one output of a program."""

    def __init__(self) -> None:
        self._lines = [""]
        self._row = self._column = 0
        self._saved = (0, 0)
        self._is_new = False  # whether something was written into the line since it was left
        self._written: Optional[int] = None  # so far the line is new since a return; None: there was none
        self._is_quiet = False  # whether nothing was written since the last pause
        self._above: Optional[str] = None  # what a line below showed from which the cursor is on its way up
        self._rows_up = 0
        self._rest = ""  # a sequence of which more is to come
        self._left: List[Line] = []

    def write(self, text: str) -> List[Line]:
        """The lines that were left, in order."""
        if text:
            self._is_quiet = False
        if self._rest:
            text, self._rest = self._rest + text, ""
        end = len(text)
        unfinished = _UNFINISHED.search(text, max(0, end - _LAST_CHARACTERS))
        if unfinished:
            end, self._rest = unfinished.start(), unfinished.group()
        for match in _TOKEN.finditer(text, 0, end):
            words, numbers, action, control = match.groups()
            if words is not None:
                self._put(words)
            elif action is not None:
                self._act(action, numbers)
            elif control is not None:
                self._control(control)
        left, self._left = self._left, []
        return left

    def pause(self) -> List[Line]:
        """Some time has passed. What is as it was at the last pause counts, though nothing has left it, if it
        looks complete: a bar's end shows."""
        if self._is_quiet:
            self._arrive()
            if self._is_new and self._fresh.endswith("]"):
                self._leave()
        self._is_quiet = True
        left, self._left = self._left, []
        return left

    def end(self) -> List[Line]:
        """The output is over."""
        self._arrive()
        self._leave()
        left, self._left = self._left, []
        return left

    def _put(self, words: str) -> None:
        self._arrive()
        line, column = self._lines[self._row], self._column
        if column < len(line):
            line = line[:column] + words + line[column + len(words) :]
        else:
            line += " " * (column - len(line)) + words
        self._lines[self._row] = line[: MAX_LINE + 1]  # one more: too long to be read
        self._column = min(column + len(words), MAX_LINE + 1)
        self._is_new = True
        if self._written is not None:
            self._written = max(self._written, self._column)

    def _control(self, control: str) -> None:
        self._arrive()
        if control == "\t":
            if self._column < len(self._lines[self._row]):
                self._column = min(self._column // 8 * 8 + 8, MAX_LINE + 1)
            else:
                self._put(control)  # as it came: some lines are known by it
            return
        if control not in "\n\r\b\v\f" and control not in _TWO:
            return
        self._leave()
        self._written = 0 if control == "\r" else None
        if control == "\r":
            self._column = 0
            if "\t" in (line := self._lines[self._row]):  # what comes is put over columns
                self._lines[self._row] = line.expandtabs()[: MAX_LINE + 1]
        elif control == "\b":
            self._column = max(self._column - 1, 0)
        elif control == "\x1b7":
            self._saved = self._row, self._column
        elif control == "\x1b8":
            self._restore()
        elif control == "\x1bM" and self._row > 0:
            self._row -= 1
        elif control == "\x1bM":
            self._lines = ["", *self._lines[: MAX_LINES - 1]]
        else:  # a terminal's line end is a return as well
            self._column = 0
            self._row += 1
            if self._row == len(self._lines):
                self._add_line()

    def _act(self, action: str, numbers: str) -> None:
        if action == "m":
            return
        first, _, second = numbers.partition(";")
        count = int(first) if first.isdecimal() and len(first) < 6 else 0
        if action == "A":
            self._go_up(max(count, 1))
            return
        self._arrive()
        move = _MOVES.get(action)
        if move is not None:
            # What is behind the cursor goes, or stays for what comes: the line is still being written.
            if not (action == "C" or (action in "JK" and count == 0)):
                self._leave()
            if action not in "CJK":
                self._written = None
            column = int(second) if second.isdecimal() and len(second) < 6 else 0
            move(self, count, column)

    def _go_up(self, count: int) -> None:
        if self._is_new:
            self._above, self._rows_up = self._fresh, 0
            self._is_new = False
        self._written = None
        up = min(count, self._row)
        self._row -= up
        self._rows_up += up

    def _arrive(self) -> None:
        """The cursor goes no further up."""
        if self._above is not None:
            above, self._above = self._above, None
            self._add(above, self._rows_up)

    def _leave(self) -> None:
        if self._is_new:
            self._is_new = False
            self._add(self._fresh, 0)

    @property
    def _fresh(self) -> str:
        """The line as far as it was written since the last return: behind that may be what is left of a
        longer one, whose digits are not this one's."""
        return self._lines[self._row][: self._written]

    def _add(self, text: str, depth: int) -> None:
        text = text.rstrip()
        if text:
            self._left.append(Line(text, depth))

    def _add_line(self) -> None:
        self._lines.append("")
        if len(self._lines) > MAX_LINES:
            del self._lines[0]
            self._row -= 1
            self._saved = max(self._saved[0] - 1, 0), self._saved[1]

    def _go_to(self, row: int, column: int) -> None:
        self._row = max(0, min(row, MAX_LINES - 1))
        while len(self._lines) <= self._row:
            self._lines.append("")
        self._column = max(0, min(column, MAX_LINE + 1))

    def _restore(self) -> None:
        self._go_to(*self._saved)

    def _down(self, count: int, _: int) -> None:
        self._go_to(self._row + max(count, 1), self._column)

    def _right(self, count: int, _: int) -> None:
        self._go_to(self._row, self._column + max(count, 1))

    def _back(self, count: int, _: int) -> None:
        self._go_to(self._row, self._column - max(count, 1))

    def _next_line(self, count: int, _: int) -> None:
        self._go_to(self._row + max(count, 1), 0)

    def _earlier_line(self, count: int, _: int) -> None:
        self._go_to(self._row - max(count, 1), 0)

    def _to_column(self, count: int, _: int) -> None:
        self._go_to(self._row, max(count, 1) - 1)

    def _to_place(self, row: int, column: int) -> None:
        self._go_to(max(row, 1) - 1, max(column, 1) - 1)

    def _erase_in_line(self, part: int, _: int) -> None:
        line, column = self._lines[self._row], self._column
        if part == 1:
            line = " " * min(column + 1, len(line)) + line[column + 1 :]
        else:
            line = line[:column] if part == 0 else ""
        self._lines[self._row] = line

    def _erase(self, part: int, _: int) -> None:
        if part == 0:
            self._erase_in_line(0, 0)
            del self._lines[self._row + 1 :]
        elif part in (2, 3):
            self._lines = [""] * len(self._lines)

    def _save(self, *_: int) -> None:
        self._saved = self._row, self._column


_TWO = ("\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM")
_MOVES: Dict[str, Callable[[Screen, int, int], None]] = {
    "B": Screen._down,
    "C": Screen._right,
    "D": Screen._back,
    "E": Screen._next_line,
    "F": Screen._earlier_line,
    "G": Screen._to_column,
    "H": Screen._to_place,
    "J": Screen._erase,
    "K": Screen._erase_in_line,
    "f": Screen._to_place,
    "s": Screen._save,
    "u": lambda screen, *_: screen._restore(),
}
