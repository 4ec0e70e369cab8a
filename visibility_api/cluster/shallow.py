"""JSON with all that lies too deep replaced by null.

kube-apiserver takes objects that are nested up to ten thousand deep (`managedFields` may be), from whoever
may create any. A decoder gives up long before, and on the whole page that such an object is part of.
"""

from __future__ import annotations

import re

from .slices import in_slices

MAX_DEPTH = 100  # a pod's own fields lie some 15 deep

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


async def shallow(body: bytes, *, max_depth: int = MAX_DEPTH) -> bytes:
    """The same valid JSON down to `max_depth` arrays and objects; takes time by its length, with pauses."""
    kept: list[bytes] = []
    start = depth = 0
    async for token in in_slices(_TOKEN.finditer(body)):
        first = body[token.start()]
        if first in b"{[":
            depth += 1
            if depth == max_depth + 1:
                kept += (body[start : token.start()], b"null")
        elif first in b"}]":
            if depth == max_depth + 1:
                start = token.end()
            depth -= 1
    return b"".join((*kept, body[start:]))
