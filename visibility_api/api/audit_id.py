"""The Audit-Id of every answer: the request's own, which the API server always sets, else a new one (R15)."""

from __future__ import annotations

import itertools
import uuid

from .message import Headers

MAX_BYTES = 128  # of one that is taken over
_PRINTABLE = bytes(range(0x21, 0x7F))


class AuditIds:
    """Makes ids for one process; they name answers and guard nothing."""

    def __init__(self) -> None:
        # A version 4 UUID whose last part counts: unique by the random rest, and cheap to make.
        self._form = str(uuid.uuid4())[:24].encode() + b"%012x"
        self._numbers = itertools.count(1)

    def find(self, headers: Headers) -> bytes:
        """The id the request came with, or a new one when it has none that is fit for a header."""
        for name, value in headers:
            if name == b"audit-id":
                if 0 < len(value) <= MAX_BYTES and not value.translate(None, _PRINTABLE):
                    return value
                break
        return self._form % next(self._numbers)
