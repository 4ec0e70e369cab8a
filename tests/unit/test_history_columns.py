"""Columns of numbers: any are read again as they were, and common ones take few bytes."""

from __future__ import annotations

import contextlib
import math
import struct

import pytest
from hypothesis import example, given, strategies as st

from visibility_api.history.columns import pack, unpack

DECIMALS = st.decimals(min_value=-1000, max_value=1000, places=4).map(float)
WHOLE = st.integers(-(2**53), 2**53).map(float)
SINGLE = st.floats(width=32)


def bits(values: list[float]) -> bytes:
    """NaN equals itself here; 0 and -0 are one number, which is all that is asked of them."""
    return struct.pack(f"<{len(values)}d", *[value or 0.0 for value in values])


@given(
    st.one_of(*(st.lists(each) for each in (DECIMALS, WHOLE, SINGLE, st.floats(), DECIMALS | st.floats())))
)
@example([0.1, 0.2, math.nan, math.inf, -math.inf])
@example([1e308, -1e308, 5e-324])
@example([float(2**53), float(2**53 - 1)])
def test_any_numbers_are_read_again(values: list[float]) -> None:
    assert bits(unpack(pack(values))) == bits(values)


@pytest.mark.parametrize(
    ("values", "bytes_each"),
    [
        pytest.param([1_769_162_400_000.0 + 15_003 * n for n in range(100)], 1, id="times"),
        pytest.param([10.0 * n for n in range(100)], 2, id="steps"),
        pytest.param([round(2.5 - n / 100 + n % 7 / 1000, 4) for n in range(100)], 2, id="losses"),
        pytest.param(
            [struct.unpack("f", struct.pack("f", 1 / (n + 1)))[0] for n in range(100)], 4, id="float32"
        ),
        pytest.param([1 / (n + 3) for n in range(100)], 8, id="doubles"),
        pytest.param([0.001] * 100, 1, id="constant"),
    ],
)
def test_a_number_takes_few_bytes(values: list[float], bytes_each: int) -> None:
    assert len(pack(values)) <= 100 * bytes_each + 20


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_read(column: bytes) -> None:
    with contextlib.suppress(struct.error, IndexError, ValueError, OverflowError):
        unpack(column)


def test_no_code_of_structs_but_ours_is_read() -> None:
    """`100s` would be one value of bytes, `99x` none at all."""
    column = bytearray(pack([1.0, 2.0, 3.0]))
    assert unpack(column) == [1.0, 2.0, 3.0]
    for code in b"scxPn?":
        column[1] = code
        with pytest.raises(struct.error):
            unpack(bytes(column))
