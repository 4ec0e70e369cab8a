"""Which of a request's headers matter, answered for the same few names again and again."""

from __future__ import annotations

from collections.abc import Sequence

MAX_KEPT = 512  # names; clients send at most some dozens of different ones
MAX_KEPT_BYTES = 128  # of one name


class HeaderNames(dict[bytes, bool]):
    """`names[name]`: whether a header's name (lower case) begins with one of the prefixes.

    A dictionary of what was asked before: the look-up costs half of comparing, on every header of every
    request.
    """

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        super().__init__()
        self._prefixes = tuple(prefixes)

    def __missing__(self, name: bytes) -> bool:
        matters = name.startswith(self._prefixes)
        if len(self) < MAX_KEPT and len(name) <= MAX_KEPT_BYTES:
            self[name] = matters
        return matters
