"""Lines as a terminal shows them, however they come to be there. pyte is a terminal to compare with."""

from __future__ import annotations

import io
from itertools import pairwise

import pyte
from hypothesis import given, strategies as st
from tqdm import tqdm

from trainjob_progress.lines import MAX_LINE
from trainjob_progress.screen import MAX_LINES, Line, Screen

MOVES = [
    "\r", "\n", "\b", "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[3C", "\x1b[2D", "\x1b[K", "\x1b[1K",
    "\x1b[2K", "\x1b[5G", "\x1b[2;7H", "\x1b[H", "\x1b[J", "\x1b[2J", "\x1b7", "\x1b8", "\x1b[1m",
    "\x1b[0;32m", "\x1bM", "\x1b]0;a title\x07",
]  # fmt: skip
WRITTEN = st.lists(
    st.one_of(st.sampled_from(MOVES), st.text(st.characters(codec="ascii", min_codepoint=33), max_size=9)),
    max_size=40,
)


def show(text: str) -> list[str]:
    """What stands on the screen."""
    screen = Screen()
    screen.write(text)
    return [line.rstrip() for line in screen._lines]


@given(WRITTEN)
def test_the_screen_shows_what_a_terminal_shows(written: list[str]) -> None:
    text = "".join(written)
    terminal = pyte.Screen(400, MAX_LINES)
    pyte.Stream(terminal).feed(text.replace("\n", "\r\n"))
    ours = show(text)
    rows = [terminal.buffer[number] for number in range(MAX_LINES)]
    theirs = [
        "".join(row[column].data for column in range(max(row, default=-1) + 1)).rstrip() for row in rows
    ]
    assert ours + [""] * (MAX_LINES - len(ours)) == theirs


@given(st.one_of(WRITTEN.map("".join), st.text(max_size=200)), st.lists(st.integers(0, 200), max_size=9))
def test_the_lines_are_the_same_whatever_pieces_the_text_comes_in(text: str, cuts: list[int]) -> None:
    whole = Screen()
    lines = [*whole.write(text), *whole.end()]
    screen, pieces = Screen(), []
    edges = [0, *sorted(cuts), len(text)]
    for begin, end in pairwise(edges):
        pieces += screen.write(text[begin:end])
    pieces += screen.write(text[edges[-1] :])
    assert [*pieces, *screen.end()] == lines


def test_a_line_counts_when_it_is_left_or_begun_anew() -> None:
    screen = Screen()
    assert screen.write("step 5/10") == []
    assert screen.write("0 loss 0.5\r") == [Line("step 5/100 loss 0.5", 0)]
    assert screen.write("step 6") == []
    assert screen.write("\n") == [Line("step 6", 0)]


def test_a_line_with_tabs_is_written_over_column_by_column() -> None:
    """Seen: a metric called AveragAverage Score."""
    text = "".join(f"\rEpisode {at}\tAverage Score: {at}.5" for at in (9, 10)) + "\n"
    assert [line.text.split() for line in Screen().write(text)] == [
        ["Episode", "9", "Average", "Score:", "9.5"], ["Episode", "10", "Average", "Score:", "10.5"],
    ]  # fmt: skip


def test_what_is_left_of_a_longer_line_is_none_of_the_next_ones_digits() -> None:
    """Seen: loss 0.523456."""
    lines = Screen().write("step 100 loss 0.123456\rstep 101 loss 0.5\rstep 102 loss 0.25\n")
    assert [line.text for line in lines] == [
        "step 100 loss 0.123456", "step 101 loss 0.5", "step 102 loss 0.25",
    ]  # fmt: skip
    assert [line.text for line in Screen().write("inner 10/10\x1b[A\router 1\r\n")] == [
        "inner 10/10",
        "outer 1",
    ]


def test_a_line_below_to_which_the_cursor_does_not_stay_is_an_inner_one() -> None:
    screen = Screen()
    lines = screen.write("\r outer 1/3\n\n\r inner 5/100\x1b[A\x1b[A\r outer 2/3\n")
    assert lines == [Line(" outer 1/3", 0), Line(" inner 5/100", 2), Line(" outer 2/3", 0)]


def test_a_bar_counts_when_it_stands_still_though_nothing_has_left_it() -> None:
    screen = Screen()
    bar = " 45%|██| 450/1000 [01:23<01:41]"
    assert screen.write("\n\r" + bar) == []
    assert screen.pause() == []  # perhaps the cursor is yet to go up
    assert screen.pause() == [Line(bar, 0)]
    assert screen.pause() == []
    screen.write("\r no bar\x1b[K")
    assert screen.pause() + screen.pause() == []
    assert screen.end() == [Line(" no bar", 0)]


def test_tabs_stay_where_they_are_written() -> None:
    assert Screen().write("[12]\ttrain-rmse:0.45\n") == [Line("[12]\ttrain-rmse:0.45", 0)]


def test_backspaces_change_a_part_of_a_line() -> None:
    assert show("done:   0%\b\b\b\b 45%") == ["done:  45%"]


def test_a_line_that_is_written_anew_and_erased_behind_says_nothing_of_the_old_one() -> None:
    assert Screen().write("step 4/9 loss 0.4\rstep 5/9\x1b[K\n") == [
        Line("step 4/9 loss 0.4", 0),
        Line("step 5/9", 0),
    ]


def test_nothing_of_a_long_line_is_kept_but_that_it_is_too_long() -> None:
    screen = Screen()
    for _ in range(100):
        assert screen.write("x" * 10_000) == []
    (line,) = screen.write("\n")
    assert len(line.text) == MAX_LINE + 1


def test_the_lines_of_a_screen_are_bounded() -> None:
    screen = Screen()
    screen.write("line\n" * 10_000 + "\x1b[9999B\x1b[9999;9999H")
    assert len(screen._lines) == MAX_LINES


def test_tqdms_bars_stand_where_it_draws_them() -> None:
    file, lines = io.StringIO(), []
    with tqdm(total=3, file=file, mininterval=0, desc="outer") as outer:
        for _ in range(3):
            with tqdm(total=2, file=file, mininterval=0, desc="inner", leave=False) as inner:
                inner.update(1)
                inner.update(1)
            outer.update(1)
    lines = Screen().write(file.getvalue())
    assert {(line.text.split(":")[0], line.depth) for line in lines} == {("outer", 0), ("inner", 1)}
    assert show(file.getvalue())[0].startswith("outer: 100%")
