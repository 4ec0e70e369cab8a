"""Why JSON of unknown origin is refused: it would cost too much, or has a field of the wrong type.

Both are described in words of ours, in time by the length alone.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

MAX_DEPTH = 100  # arrays and objects in one another; a report needs three
MAX_BRACKETS = 20_000  # counting their levels takes a third of a millisecond
# A number beyond 1e290 takes the decoder 9 us, one of hundreds of digits as long. Short documents have few.
MAX_EXTREMES, MAX_UNCHECKED_BYTES = 128, 1024


def describe_excess(data: bytes) -> str | None:
    """Why `data`, valid JSON or not, may cost more than its length; None when it does not.

    A decoder's own limit of levels depends on Python's version and on the stack.
    """
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        brackets = b"".join(pieces[::2]).translate(None, _NO_BRACKETS)  # every other piece is a string
        if len(brackets) > MAX_BRACKETS:
            return f"has more than {MAX_BRACKETS // 2} arrays and objects"
        if _is_deep(brackets):
            return f"is nested more than {MAX_DEPTH} levels deep"
    if len(data) > MAX_UNCHECKED_BYTES:
        digits = data.translate(_ZEROS, b"+-")
        if digits.count(b"0e000") + digits.count(b"0" * 40) > MAX_EXTREMES:
            return f"has more than {MAX_EXTREMES} numbers of extreme size or length"
    return None


_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ZEROS = bytes.maketrans(b"E123456789", b"e000000000")


def _is_deep(brackets: bytes) -> bool:
    depth = 0
    for bracket in brackets:
        if bracket in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        else:
            depth -= 1
    return False


def describe_mismatch(data: bytes, error: msgspec.ValidationError) -> tuple[str, str]:
    """The reason of a refusal, and the field that has the wrong type with the right one.

    The field's value and the names of metrics are left out.
    """
    match = _MISMATCH.match(str(error))
    if match is None:
        try:
            msgspec.json.decode(data, type=Raw)
        except msgspec.DecodeError:
            return "NotJSON", "is not JSON"
        return "NotAnObject", "must be an object"
    expected, path = match.groups()
    wanted = next(words for type_, words in _WORDS.items() if type_ in expected) if expected else "in range"
    return "InvalidField", f"{_INDEX.sub('', path)} must be {wanted}"


_MISMATCH = re.compile(r"(?:Expected `([^`]*)`, got `[^`]*`|[\w ]+ out of range) - at `\$\.([\w.\[\]]+)`$")
_INDEX = re.compile(r"\[[^\]]*\]")
_WORDS = {
    "int | float | str": "a number or a string",
    "int | float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "": "of another type",
}
