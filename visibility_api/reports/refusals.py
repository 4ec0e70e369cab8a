"""JSON of unknown origin, parsed in time by its length, and why it is refused, in words of ours.

The parser is pydantic's. msgspec's takes 8 us for each number such as 1e308: half a second for 64 KiB.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from pydantic_core import from_json

from .document import Refusal

MAX_DEPTH = 200  # arrays and objects in one another, the parser's own limit; a report needs three
# Commas, colons and opening brackets, within text too: there are no more values and names. The longest report
# that a writer makes has some 5,000.
MAX_MARKS = 6144
MAX_ESCAPES = 2048  # of Unicode, in a text of which halves of pairs are replaced


def parse_json(data: bytes, *, allows_nan: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """The one value in `data`. `allows_nan`: the tokens NaN and Infinity too.

    Raises Refusal (TooComplex, TooDeep, NotJSON). Its message is to follow what was read: "The document".
    """
    if len(data) > MAX_MARKS and sum(map(data.count, b",:[{")) > MAX_MARKS:
        raise Refusal("TooComplex", f"has more than {MAX_MARKS} commas, colons and opening brackets")
    try:
        return from_json(data, allow_inf_nan=allows_nan, cache_strings=False)
    except ValueError as error:
        why = str(error)
    if why.startswith("recursion limit"):
        raise Refusal("TooDeep", f"is nested more than {MAX_DEPTH} levels deep")
    if why.startswith("number out of range"):
        raise Refusal("TooComplex", "has a number of more than 4300 digits")
    raise Refusal("NotJSON", "is not JSON")


def replace_halves(data: bytes) -> bytes:
    """`data` with a question mark for each half of a surrogate pair, which has no UTF-8 form.

    Unchanged where there are too many escapes: each takes a tenth of a microsecond.
    """
    escapes = data.count(b"\\u")
    return _HALF.sub(b"?", data) if 0 < escapes <= MAX_ESCAPES else data


_HALF = re.compile(
    rb"\\u(?<!\\\\u)[dD](?:[89abAB][\da-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][\da-fA-F]{2}\\u[dD])[c-fC-F][\da-fA-F]{2})"
)


def describe_mismatch(error: msgspec.ValidationError) -> str:
    """The field that has the wrong type, and the right one. Its value and names of metrics are left out."""
    match = _MISMATCH.match(str(error))
    if match is None:
        return "a field must be of another type"
    expected, path = match.groups()
    wanted = next(words for type_, words in _WORDS.items() if type_ in expected) if expected else "in range"
    return f"{_INDEX.sub('', path)} must be {wanted}"


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
