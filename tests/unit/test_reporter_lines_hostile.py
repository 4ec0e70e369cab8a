"""Any line is read without an error, in a time that its length explains."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, strategies as st

from trainjob_progress.lines import MAX_LINE, LineReader

from .test_reporter_lines import read


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read_without_an_error(first: str, second: str) -> None:
    read(first, second, "[5]\t" + first + ":1", "{'" + second + "'}", "Epoch 1/2", "1/2 ━ - " + first)


@pytest.mark.parametrize(
    "line",
    [
        f"[rank{'9' * 5000}]: loss=0.5",
        f" 45%|██| {'9' * 5000}/{'9' * 5000} [00:01<00:01]",
        f"{'9' * 5000}/{'9' * 5000}",
        f"Epoch {'9' * 5000}/{'9' * 5000}",
        f"[{'9' * 5000}]\ttrain-rmse:0.45",
        '{"step": ' + "9" * 5000 + "}",
        '{"step": ' + "9" * 400 + ', "loss": 1e400}',
        '{"a":' * 1600,
        '{"a":' * 1300 + "1" + "}" * 1300,
        "{'a': " + "-" * 8000 + "1}",
        "{'a': " + "(" * 8000 + "}",
        "{'a': " + "9" * 8000 + "}",
        "{" + "'a': 1, " * 1000 + "}",
    ],
)
def test_a_line_that_sets_a_trap_is_read_without_an_error(line: str) -> None:
    read(line, "Epoch 1/2", line)


TRAPS = (
    "1", "a", "a ", "a=", "a=1 ", "a:1x", " ", "\t", "[", "{'", "{'a': 1,", "epoch ", "1%|", " 1%|",
    " 1%|x|1/1 [", "━", " ━", "\x1b[", "\x1b[1", "\x1b]", " - ", "a: 1 - ", "a.b/", "a|", "nan", ".1", "1.",
    "[1]\t", "a:1\t", "2026-01-23T10:30:45", "total:", "1:1<", "é",
    "INFO", "INFO ", "a:1:", "I0123 ", "1,234", "train ", "2|1|", "1/1", "a [1/",
)  # fmt: skip
STARTS = ("", "{", "{'a':", "Epoch 1/2 ", "1/1 ━ ", "1:\t", "[1]\t", " 1%|", " 1%||1/1 [", "a=", "1/1 - 1s ")


@pytest.mark.parametrize("start", STARTS)
def test_the_time_a_line_takes_grows_no_faster_than_the_line(start: str) -> None:
    for trap in TRAPS:
        longer = start + (trap * MAX_LINE)[: MAX_LINE - len(start) - 1]
        shorter = longer[: MAX_LINE // 4]
        longer_s = shorter_s = math.inf  # the least of some times, which noise cannot lower
        for _ in range(50):
            longer_s, shorter_s = min(longer_s, cost(longer)), min(shorter_s, cost(shorter))
            # Squared growth would be 16 times as slow, and what takes no time at all is no danger.
            if longer_s < 8 * shorter_s + 0.001:
                break
        else:
            raise AssertionError(f"{trap!r}: {shorter_s} s, and {longer_s} s for four times as much")


def cost(line: str) -> float:
    """CPU seconds."""
    reader, began = LineReader(), time.process_time()
    reader.read(line)
    reader.read(line + "x")
    return time.process_time() - began
