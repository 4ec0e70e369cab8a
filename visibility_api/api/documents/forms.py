"""The forms in which documents leave: whole, as metadata only, or as a Table.

One choice, made from the Accept header, serves get, list and watch alike.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from visibility_api.api.message import Request
from visibility_api.api.negotiation import Representation
from visibility_api.store import Entry

from .list_options import read_include_object
from .metadata import MetadataForm
from .table import TableForm
from .v1alpha1 import Codec


class Form(Protocol):
    """How one object, a list's parts and a watch's objects are written. All is compact JSON."""

    @property
    def key(self) -> str:
        """Names the form among those of one resource: the key of what is encoded once and shared."""
        ...

    @property
    def is_timeless(self) -> bool:
        """The bytes depend on the entry alone, not on when they are asked for."""
        ...

    @property
    def items_field(self) -> str:
        """What a list calls its items; everything else of it stands before them."""
        ...

    def one(self, entry: Entry) -> bytes: ...

    def item(self, entry: Entry) -> bytes: ...

    def head(self, list_meta: bytes) -> bytes:
        """A list up to its first item; `list_meta` is its encoded `metadata`. It ends with `]}`."""
        ...

    def event(self, entry: Entry, *, is_first: bool) -> bytes:
        """The object of a watch event; `is_first` of its stream."""
        ...

    def bookmark(self, metadata: bytes) -> bytes:
        """The object of a BOOKMARK event around its encoded `metadata`."""
        ...


class DocumentForm:
    """Whole documents, as they are."""

    key = "document"
    is_timeless = True
    items_field = "items"

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.one = self.item = codec.document

    def head(self, list_meta: bytes) -> bytes:
        return b'%s%s,"items":[' % (self._codec.list_head, list_meta)

    def event(self, entry: Entry, *, is_first: bool) -> bytes:  # noqa: ARG002 - Tables need it
        return self._codec.document(entry)

    def bookmark(self, metadata: bytes) -> bytes:
        return b"%s%s}" % (self._codec.head, metadata)


class Forms:
    """The forms of one resource. `now` is the clock that ages are reckoned by."""

    def __init__(self, codec: Codec, now: Callable[[], datetime]) -> None:
        self._codec = codec
        self._now = now
        self.document = DocumentForm(codec)

    def choose(self, representation: Representation, request: Request) -> Form:
        """The form that was negotiated. Raises BadRequest for an unknown `includeObject` (T8)."""
        if representation.transform is None:
            return self.document
        if representation.transform == "Table":
            include = read_include_object(request)
            return TableForm(self._codec, representation.version, include, self._now)
        return MetadataForm(self._codec, representation.version)
