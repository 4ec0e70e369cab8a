"""How deeply JSON is nested, checked before it is decoded: a decoder's limit depends on Python's version and
on the stack, and what is decoded may be too deep to be encoded again.
"""

from __future__ import annotations

import re

MAX_DEPTH = 100  # arrays and objects in one another; a report needs three

# One that never closes goes to the end, or each of its quotes would be tried as the begin of another one.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_too_deep(data: bytes) -> bool:
    """Whether `data`, valid JSON or not, is nested deeper than MAX_DEPTH; takes time by its length."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NO_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        else:
            depth -= 1
    return False
