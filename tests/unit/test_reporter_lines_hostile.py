"""Any line is read without an error; in what time, benchmarks/bounds.py measures."""

from __future__ import annotations

import codecs
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from trainjob_progress.lines import LineReader, find_bar
from trainjob_progress.screen import Line, Screen

from .test_reporter_lines import read


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read_without_an_error(first: str, second: str) -> None:
    read(first, second, "[5]\t" + first + ":1", "{'" + second + "'}", "Epoch 1/2", "1/2 ━ - " + first)


PARTS = [
    b" 45%|\xe2\x96\x88 | 450/1000 [01:23<01:41, 5.41it/s, loss=0.5]", b" 0%| | 0/3 [00:00<?, ?it/s]",
    b"100%|##| 3/3 [00:01<00:00]", b"\r", b"\n", b"\b\b\b", b"\x1b[A", b"\x1b[K", b"\x1b[", b"Epoch 1/2",
    b"1/2 \xe2\x94\x81 - loss: 0.5", b"[3]\ttrain-rmse:0.5", b"{'loss': nan, 'epoch': 1.0}",
    b"step 5/10 ", b"%|", b"9" * 400, b"Epochs: ", b"50%|| 1/2 [",
    b"1/3  2.3G  1.2  20  640: 45% ", b"Epoch(train) [1][10/90]  loss: 1", b"Epoch  GPU_mem  a  b",
    b"train_inner | epoch 001: 1 / 2 loss=1", b" iteration 1/ 2 | lm loss: 1 |", b"[Rank 0] step=1, lr=[1]",
    b"Training epoch 0, iteration 0/0 | x: 1", b"(A pid=1) step:1 - a:np.float64(1)", b"[D loss: 1] ",
    b"| a/  |  |", b"|    b  | 1 |", b"E    #   LOSS A  SCORE", b"  1     2   3.0  4",
    b"(A pid=2) step 2 loss 1",
]  # fmt: skip
DRAWN = st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=20)), max_size=30)


def read_output(pieces: list[bytes], *, pauses: bool) -> list[dict[str, object]]:
    """What a program's output says that comes in these pieces."""
    screen, reader = Screen(), LineReader()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    lines: list[Line] = []
    for piece in pieces:
        lines += screen.write(decode(piece))
        lines += screen.pause() if pauses else []
    lines += screen.end()
    return [fields for line in lines if (fields := reader.read(line.text, depth=line.depth)) is not None]


@given(DRAWN, st.lists(st.integers(0, 600), max_size=9))
def test_any_bytes_say_the_same_whatever_pieces_they_come_in(drawn: list[bytes], cuts: list[int]) -> None:
    data = b"".join(drawn)
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in pairwise(edges)] + [data[edges[-1] :]]
    assert str(read_output(pieces, pauses=False)) == str(read_output([data], pauses=False))


@given(DRAWN)
def test_any_bytes_say_what_can_be_reported(drawn: list[bytes]) -> None:
    for fields in read_output(drawn, pauses=True):
        assert fields.keys() <= KNOWN
        for name in ("step", "total_steps"):
            value = fields.get(name)
            assert value is None or isinstance(value, (int, float))


def test_of_a_bars_description_no_more_is_searched_than_a_line_may_cost() -> None:
    """Seen: 26 ms for one line of 8 KiB."""
    drawing = find_bar("a" * 7000 + "ing: 50%|| 1/2 [00:01<00:01, 1it/s]")
    assert drawing is not None
    assert len(drawing.description) == 500


KNOWN = {"step", "total_steps", "epoch", "total_epochs", "percentage", "remaining_s", "message", "metrics"}


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
