"""Columns of numbers as few bytes, without loss: what the history of a job is kept as.

Times, steps and row numbers are whole and close together, most metrics are decimals of a few digits or came
from 32-bit floats: a number takes one, two or four bytes then, else the eight of a double.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

# Numbers are whole after multiplication with one of these. Division gives the same double again, since both
# are correctly rounded (IEEE 754), as long as the product is exact: below 2^53.
_SCALES = (1.0, 1e2, 1e4, 1e6, 1e8)
_EXACT = 2**53
_WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"))
_CODES = tuple(code for _, code in _WIDTHS)
_OFFSETS, _DIFFERENCES, _SINGLE, _DOUBLE = range(4)  # the first byte of a column
_OFFSET_HEAD, _DIFFERENCE_HEAD = struct.Struct("<BcBq"), struct.Struct("<BcBqq")


def pack(values: list[float] | list[int]) -> bytes:
    """The column as bytes, which do not depend on the machine."""
    if not values:
        return b""
    scaled = _scale(values)
    packed = None if scaled is None else _pack_whole(*scaled)
    if packed is not None and packed[1] in b"BH":
        return packed
    doubles = struct.pack(f"<{len(values)}d", *values)
    try:
        singles = struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return packed or bytes((_DOUBLE,)) + doubles
    if struct.pack(f"<{len(values)}d", *struct.unpack(f"<{len(values)}f", singles)) == doubles:
        return bytes((_SINGLE,)) + singles
    return packed or bytes((_DOUBLE,)) + doubles


def unpack(column: bytes) -> list[float]:
    """What was packed. Raises struct.error, IndexError for bytes that `pack` has not made."""
    if not column:
        return []
    kind = column[0]
    if kind in (_SINGLE, _DOUBLE):
        size, code = (4, "f") if kind == _SINGLE else (8, "d")
        return list(struct.unpack(f"<{(len(column) - 1) // size}{code}", column[1:]))
    if kind == _OFFSETS:
        _, code, scale, base = _OFFSET_HEAD.unpack_from(column)
        whole = [base + each for each in _numbers(column[_OFFSET_HEAD.size :], code)]
    else:
        _, code, scale, first, base = _DIFFERENCE_HEAD.unpack_from(column)
        steps = [base + each for each in _numbers(column[_DIFFERENCE_HEAD.size :], code)]
        whole = list(accumulate(steps, initial=first))
    factor = _SCALES[scale]
    return [each / factor for each in whole]


def _scale(values: list[float] | list[int]) -> tuple[int, list[int]] | None:
    """Which scale makes all of them whole numbers, and those; None when none does."""
    sample = values[:: max(1, len(values) // 4)]  # nearly all others are refused by these
    try:
        if list(map(int, sample)) == sample and (whole := list(map(int, values))) == values:
            return (0, whole) if _is_exact(whole) else None
        for index, factor in enumerate(_SCALES[1:], 1):
            if all(round(value * factor) / factor == value for value in sample):
                whole = [round(value * factor) for value in values]
                if [each / factor for each in whole] == values and _is_exact(whole):
                    return index, whole
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    return None


def _is_exact(whole: Sequence[int]) -> bool:
    return min(whole) > -_EXACT and max(whole) < _EXACT


def _pack_whole(scale: int, whole: Sequence[int]) -> bytes | None:
    """Offsets from the least, or differences if those are smaller; None if both are too large."""
    base = min(whole)
    plain = _code(max(whole) - base)
    if plain != "B" and len(whole) > _DIFFERENCE_HEAD.size:
        differences = [later - earlier for earlier, later in pairwise(whole)]
        least = min(differences)
        code = _code(max(differences) - least)
        if code is not None and (plain is None or struct.calcsize(code) < struct.calcsize(plain)):
            head = _DIFFERENCE_HEAD.pack(_DIFFERENCES, code.encode(), scale, whole[0], least)
            return head + struct.pack(f"<{len(differences)}{code}", *[each - least for each in differences])
    if plain is None:
        return None
    head = _OFFSET_HEAD.pack(_OFFSETS, plain.encode(), scale, base)
    return head + struct.pack(f"<{len(whole)}{plain}", *[each - base for each in whole])


def _code(span: int) -> str | None:
    return next((code for limit, code in _WIDTHS if span < limit), None)


def _numbers(data: bytes, code: bytes) -> tuple[int, ...]:
    letter = code.decode("latin-1")
    if letter not in _CODES:
        raise struct.error(f"no code of ours: {code!r}")
    return struct.unpack(f"<{len(data) // struct.calcsize('<' + letter)}{letter}", data)
