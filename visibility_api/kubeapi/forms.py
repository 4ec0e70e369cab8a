"""The forms of a response: whole documents, metadata only, or a Table.

The Accept header selects one, in the same way for get, list and watch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from visibility_api.store import Entry

from .list_layout import Listed
from .list_options import read_include_object
from .message import ResourceRequest
from .metadata import MetadataForm
from .negotiation import Representation
from .table import TableForm
from .v1alpha1 import Codec


class Form(Listed[Entry], Protocol):
    """Encodes an object, the parts of a list and the objects of watch events, as compact JSON."""

    @property
    def is_timeless(self) -> bool:
        """Whether the bytes depend on the entry alone, not on the time of the request."""
        ...

    def one(self, entry: Entry) -> bytes: ...

    def event(self, entry: Entry, *, is_first: bool) -> bytes:
        """The object of a watch event; `is_first` of its stream."""
        ...

    def bookmark(self, metadata: bytes) -> bytes:
        """The object of a BOOKMARK event with the encoded `metadata`."""
        ...


class DocumentForm:
    """Whole documents."""

    is_timeless = True
    items_field = "items"

    def __init__(self, codec: Codec) -> None:
        self.key = f"{codec.form}document"
        self._codec = codec
        self.one = codec.document

    def items(self) -> Callable[[Entry], bytes]:
        return self.one

    def moment(self) -> int:
        return 0

    def head(self, list_meta: bytes) -> bytes:
        return b'%s%s,"items":[' % (self._codec.list_head, list_meta)

    def event(self, entry: Entry, *, is_first: bool) -> bytes:  # noqa: ARG002 - Tables need it
        return self.one(entry)

    def bookmark(self, metadata: bytes) -> bytes:
        return b"%s%s}" % (self._codec.head, metadata)


class Forms:
    """The forms of one resource. `now` is the clock of the ages in Tables."""

    def __init__(self, codec: Codec, now: Callable[[], datetime]) -> None:
        self._codec = codec
        self._now = now
        self.document = DocumentForm(codec)

    def choose(self, representation: Representation, request: ResourceRequest) -> Form:
        """The form that was negotiated. Raises BadRequest for an unknown `includeObject`."""
        if representation.transform is None:
            return self.document
        if representation.transform == "Table":
            include = read_include_object(request)
            return TableForm(self._codec, representation.version, include, self._now)
        return MetadataForm(self._codec, representation.version)
